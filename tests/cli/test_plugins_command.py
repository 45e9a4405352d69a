"""``strandline plugins``: the real command, on real settings, folders and packages."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import strandline

EXAMPLE = Path(__file__).parents[2] / "examples" / "engine"
SETTINGS = """\
// my settings
{
  agents: { defaults: { thinkingDefault: "off" } }, // quick
  /* no plugins yet */
}
"""
ENGINE = """
from strandline.context.engine import EngineInfo, LegacyEngine


class Engine(LegacyEngine):
    info = EngineInfo("brief", "Brief", "1")


def register(api):
    api.register_context_engine("brief", lambda context: Engine())
"""
Run = Callable[..., Any]


@pytest.fixture
def settings(state: Path) -> Path:
    """The settings file, with comments."""
    path = state / "strandline.json"
    path.write_text(SETTINGS)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an engine."""
    path = tmp_path / "my-engine"
    path.mkdir()
    (path / "my_engine.py").write_text(ENGINE)
    return path


def comments_stand(settings: Path) -> bool:
    text = settings.read_text()
    whole = text.startswith("// my settings\n{\n  agents: ") and text.endswith("\n}\n")
    return whole and "}, // quick\n" in text and "\n  /* no plugins yet */\n" in text


def listed(run: Run) -> dict[str, Any]:
    report: dict[str, Any] = run("plugins", "list", "--json").json()
    return report


# -- linked --------------------------------------------------------------------------------------


def test_a_folder_is_linked_selected_switched_and_unlinked(
    run: Run, settings: Path, folder: Path
) -> None:
    done = run("plugins", "install", "-l", folder)
    assert done.code == 0, done.err
    enabled, how = done.out.splitlines()
    assert enabled == "my-engine is enabled"
    assert "'brief': `strandline plugins enable my-engine --select` selects it" in how
    assert comments_stand(settings)
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    assert listed(run)["contextEngine"] == "legacy"

    done = run("plugins", "enable", "my-engine", "--select")
    assert done.out.splitlines() == ["my-engine is enabled", "the context engine is 'brief'"]
    report = listed(run)
    assert report["contextEngine"] == "brief"
    assert report["contextEngineError"] is None
    assert report["engines"] == ["legacy", "brief"]
    (plugin,) = report["plugins"]
    assert plugin == {
        "id": "my-engine",
        "name": "",
        "version": "",
        "description": "",
        "source": str(folder),
        "package": None,
        "link": str(folder),
        "enabled": True,
        "status": "loaded",
        "engines": ["brief"],
        "tools": [],
        "phase": None,
        "error": None,
    }

    done = run("plugins", "disable", "my-engine")
    assert done.out.splitlines() == [
        "my-engine is disabled",
        "the context engine is 'legacy' again, because 'brief' was selected",
    ]
    report = listed(run)
    assert report["contextEngine"] == "legacy"
    assert [each["status"] for each in report["plugins"]] == ["disabled"]

    run("plugins", "enable", "my-engine", "--select")
    done = run("plugins", "uninstall", "my-engine")
    assert done.out.splitlines() == [
        "my-engine is uninstalled: its files stay",
        "the context engine is 'legacy' again, because 'brief' was selected",
    ]
    assert listed(run)["plugins"] == []
    assert (folder / "my_engine.py").exists()
    assert comments_stand(settings)


def test_the_example_is_installed_and_selected_in_one_command(run: Run, state: Path) -> None:
    done = run("plugins", "install", "-l", EXAMPLE, "--select")
    assert done.code == 0, done.err
    assert "the context engine is 'recall'" in done.out
    path = state / "strandline.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["plugins"]["slots"] == {"contextEngine": "recall"}
    assert listed(run)["contextEngineError"] is None


def test_linking_twice_links_once(run: Run, settings: Path, folder: Path) -> None:
    for _ in range(2):
        assert run("plugins", "install", "-l", folder).code == 0
    assert settings.read_text().count(str(folder)) == 1


def test_a_relative_path_is_linked_as_an_absolute_one(
    run: Run, settings: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    assert run("plugins", "install", "-l", "my-engine").code == 0
    assert f'"{folder}"' in settings.read_text()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ValueError('a\\nb')\ndef register(api): pass", "my-engine failed (import)"),
        ("def register(api): 1 / 0", "ZeroDivisionError"),
        ("import os", "none has `register`"),
        ("def register(api:", "none has `register` (my_engine: no Python that can be read)"),
        (
            "class Odd(BaseException): pass\ndef register(api): raise Odd",
            "(register): Odd: correct",
        ),
    ],
)
def test_a_folder_that_does_not_load_is_not_linked(
    run: Run, settings: Path, folder: Path, code: str, said: str
) -> None:
    (folder / "my_engine.py").write_text(code)
    done = run("plugins", "install", "-l", folder)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert settings.read_text() == SETTINGS


def test_a_plugin_that_breaks_later_is_listed_and_can_be_got_rid_of(
    run: Run, settings: Path, folder: Path
) -> None:
    run("plugins", "install", "-l", folder, "--select")
    (folder / "my_engine.py").write_text("import nothing_of_the_kind\ndef register(api): pass")
    (plugin,) = listed(run)["plugins"]
    assert (plugin["status"], plugin["phase"]) == ("failed", "import")
    assert "nothing_of_the_kind" in listed(run)["contextEngineError"]
    done = run("plugins", "list")
    assert done.code == 0
    assert "my-engine" in done.out
    assert "nothing_of_the_kind" in done.out
    assert run("plugins", "enable", "my-engine").code == 2
    done = run("plugins", "disable", "my-engine")
    assert "the context engine is 'legacy' again" in done.out
    assert listed(run)["contextEngineError"] is None
    (folder / "my_engine.py").unlink()
    folder.rmdir()
    assert "there is no plugin folder" in run("plugins", "list").out
    assert run("plugins", "uninstall", folder).code == 0
    assert listed(run)["plugins"] == []
    assert comments_stand(settings)


@pytest.mark.parametrize("word", ["disable", "uninstall"])
@pytest.mark.parametrize("slot", ["legacy", "my-engine", "brief"])
def test_a_plugin_is_got_rid_of_without_being_loaded(
    run: Run, settings: Path, folder: Path, word: str, slot: str
) -> None:
    """What hangs as it is imported, or ends the process, would be there for ever otherwise."""
    run("plugins", "install", "-l", EXAMPLE)
    run("plugins", "install", "-l", folder, "--select")
    settings.write_text(settings.read_text().replace('Engine": "brief"', f'Engine": "{slot}"'))
    (folder / "my_engine.py").write_text("import os\nos._exit(9)\ndef register(api): pass")
    done = run("plugins", word, "my-engine")
    assert (done.code, done.err) == (0, "")
    report = listed(run)
    assert report["contextEngine"] == "legacy"
    assert {each["id"]: each["status"] for each in report["plugins"]}[
        "strandline-recall"
    ] == "loaded"


def test_a_disabled_plugin_whose_folder_is_gone_is_no_error(
    run: Run, settings: Path, folder: Path
) -> None:
    run("plugins", "install", "-l", folder)
    run("plugins", "disable", "my-engine")
    (folder / "my_engine.py").unlink()
    folder.rmdir()
    (plugin,) = listed(run)["plugins"]
    assert plugin["status"] == "disabled"
    assert plugin["error"].endswith(f"restore it, or `strandline plugins uninstall {folder}`")
    assert run("doctor").code == 0


def test_a_remedy_does_not_speak_of_a_plugin_that_is_not_there_yet(
    run: Run, settings: Path, folder: Path
) -> None:
    (folder / "my_engine.py").write_text("def register(api): 1 / 0")
    assert run("plugins", "install", "-l", folder).err.endswith("division by zero: correct it\n")
    (folder / "my_engine.py").write_text(ENGINE)
    run("plugins", "install", "-l", folder)
    (folder / "my_engine.py").write_text("def register(api): 1 / 0")
    assert "or `strandline plugins disable my-engine`" in run("plugins", "list").out


def test_disabling_a_plugin_leaves_the_engine_of_another_selected(
    run: Run, settings: Path, folder: Path
) -> None:
    run("plugins", "install", "-l", EXAMPLE, "--select")
    run("plugins", "install", "-l", folder)
    assert run("plugins", "disable", "my-engine").out == "my-engine is disabled\n"
    assert listed(run)["contextEngine"] == "recall"


def test_an_engine_id_that_is_taken_is_not_enabled_twice(
    run: Run, settings: Path, folder: Path
) -> None:
    run("plugins", "install", "-l", folder)
    other = folder.with_name("other")
    other.mkdir()
    (other / "other.py").write_text(ENGINE)
    before = settings.read_text()
    done = run("plugins", "install", "-l", other)
    assert done.code == 2
    assert "other registers brief, and so does my-engine" in done.err
    assert settings.read_text() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["install"], "give the NAME of a package, or -l PATH"),
        (["install", "x", "-l", "y"], "give the NAME of a package, or -l PATH"),
        (["install", "./x"], "link a folder with -l PATH"),
        (["install", "http://somewhere/x"], "not the name of a package"),
        (["install", "-l", "/no/such/folder"], "give the folder that the plugin is in"),
        (["disable", "brief"], "name the plugin that has it: my-engine"),
        (["enable", "my-engin"], "did you mean 'my-engine'?"),
        (["disable", "nothing-like-it"], "`strandline plugins list` shows"),
        (["uninstall", "nothing-like-it"], "there is no plugin 'nothing-like-it'"),
        (["enable", "my-engine\x1b[31m"], "there is no plugin"),
    ],
)
def test_what_cannot_be_tried_is_told_on_one_line(
    run: Run, settings: Path, folder: Path, words: list[str], said: str
) -> None:
    run("plugins", "install", "-l", folder)
    before = settings.read_text()
    done = run("plugins", *words)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert "\x1b" not in done.err
    assert settings.read_text() == before


def test_select_needs_exactly_one_engine(run: Run, settings: Path, folder: Path) -> None:
    (folder / "my_engine.py").write_text("def register(api): pass")
    done = run("plugins", "install", "-l", folder, "--select")
    assert done.code == 2
    assert "my-engine has 0 context engines" in done.err
    assert settings.read_text() == SETTINGS


def test_openclaws_file_is_read_and_never_written(run: Run, state: Path, folder: Path) -> None:
    path = state / "openclaw.json"
    text = (
        '{ plugins: { slots: { contextEngine: "lossless-claw" }, '
        'entries: { "lossless-claw": { enabled: true } } } }'
    )
    path.write_text(text)
    report = listed(run)
    assert "JavaScript for OpenClaw" in report["contextEngineError"]
    for words in (["install", "-l", str(folder)], ["disable", "lossless-claw"]):
        done = run("plugins", *words)
        assert done.code == 2
        assert "is OpenClaw's and is not written: create " in done.err
        assert "strandline.json" in done.err
    assert path.read_text() == text
    assert sorted(each.name for each in state.iterdir()) == ["openclaw.json"]


def test_a_settings_file_that_cannot_be_written_stays_as_it_is(
    run: Run, settings: Path, folder: Path
) -> None:
    (settings.parent / "strandline.json.strandline.tmp").mkdir()
    done = run("plugins", "install", "-l", folder)
    assert done.code == 1
    assert "was not written" in done.err
    assert settings.read_text() == SETTINGS


def test_without_plugins_the_list_says_how_to_get_one(run: Run, state: Path) -> None:
    done = run("plugins", "list")
    assert done.code == 0
    assert "strandline plugins install NAME" in done.out
    assert done.out.endswith("context engine: legacy\n")


# -- packages, with a real pip in an environment of its own --------------------------------------


@pytest.fixture
def shell(tmp_path: Path) -> Run:
    """Runs the command in a process and an environment of its own; pip finds `wheel`s only."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is not here")
    home = tmp_path / "env"
    venv.create(home, symlinks=True)
    here = [str(Path(strandline.__file__).parents[1]), *filter(os.path.isdir, sys.path)]
    environ = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PIP_")},
        "PYTHONPATH": os.pathsep.join(here),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_CONFIG_FILE": os.devnull,
    }
    state = tmp_path / "shell-state"
    state.mkdir()
    (state / "strandline.json").write_text(SETTINGS)

    def go(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [home / "bin" / "python", "-m", "strandline", "--state-dir", state, *words],
            capture_output=True,
            encoding="utf-8",
            env=environ,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done

    return go


def wheel(folder: Path, name: str, code: str, entries: str) -> None:
    """A package of one module that pip can install."""
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{module}.py", code)
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{info}/entry_points.txt", entries)
        names = (f"{module}.py", f"{info}/METADATA", f"{info}/WHEEL", f"{info}/entry_points.txt")
        file.writestr(f"{info}/RECORD", "".join(f"{each},,\n" for each in names))


def test_a_package_is_installed_enabled_and_uninstalled(shell: Run, tmp_path: Path) -> None:
    wheel(tmp_path, "brief-engine", ENGINE, "[strandline.plugins]\nbrief = brief_engine:register\n")
    wheel(tmp_path, "no-plugin", "", "")
    settings = tmp_path / "shell-state" / "strandline.json"

    done = shell("plugins", "install", "Brief_Engine>=1", "--select")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "brief is enabled\nthe context engine is 'brief'\n"
    report = json.loads(shell("plugins", "list", "--json").stdout)
    (plugin,) = [each for each in report["plugins"] if each["id"] == "brief"]
    assert (plugin["source"], plugin["status"]) == ("brief-engine 1.0", "loaded")
    assert comments_stand(settings)

    done = shell("plugins", "uninstall", "brief")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "brief is uninstalled: the package brief-engine is removed",
        "the context engine is 'legacy' again, because 'brief' was selected",
    ]
    assert "brief" not in shell("plugins", "list").stdout
    assert comments_stand(settings)

    before = settings.read_text()
    done = shell("plugins", "install", "no-plugin")
    assert done.returncode == 2
    assert "the package no-plugin is installed and has no plugin" in done.stderr
    done = shell("plugins", "install", "not-there-at-all")
    assert done.returncode == 2
    assert "o matching distribution found for not-there-at-all" in done.stderr
    assert done.stderr.count("\n") == 1
    assert settings.read_text() == before
