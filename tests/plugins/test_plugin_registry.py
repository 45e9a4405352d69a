"""Enabled plugins are loaded once and apart from each other; what fails is recorded, and breaks
nothing but itself unless its engine is selected."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from strandline.context.engine import HOST_ABILITIES, LEGACY, EngineContext, LegacyEngine
from strandline.errors import EngineUnavailable
from strandline.plugins.finding import installed
from strandline.plugins.registry import PluginRegistry
from strandline.plugins.reports import PluginChoices, PluginEntry, PluginReport

Write = Callable[..., Path]
Registry = Callable[..., PluginRegistry]

TOOL = """
from strandline.runtime.tools import Tool
def tool(name, **more):
    return Tool(name, "Does it.", {"type": "object"}, lambda call: "done", **more)
"""
ENGINE = """
from strandline.context.engine import EngineInfo, LegacyEngine
class Engine(LegacyEngine):
    info = EngineInfo("fine", "Fine", "1")
def register(api):
    api.register_context_engine("fine", lambda context: Engine())
"""


def report_of(registry: PluginRegistry, plugin_id: str) -> PluginReport:
    return next(each for each in registry.reports() if each.id == plugin_id)


def unavailable(registry: PluginRegistry, engine_id: str) -> EngineUnavailable:
    with pytest.raises(EngineUnavailable) as caught:
        registry.make_engine(engine_id, EngineContext(), HOST_ABILITIES)
    error = caught.value
    assert error.engine == engine_id
    assert engine_id in error.what
    assert "plugins.slots.contextEngine to 'legacy'" in error.remedy
    assert "\n" not in str(error)
    return error


# -- what loads ------------------------------------------------------------------------------


def test_a_plugin_gives_engines_tools_and_hooks(link: Write, registry: Registry) -> None:
    code = TOOL + ENGINE.replace(
        "def register(api):",
        "def register(api):\n"
        "    assert api.id == 'one' and api.config['key'] == 5\n"
        "    api.register_tool(tool('zeta')); api.register_tool(tool('alpha'))\n"
        "    api.hooks.session_before_compact.append(lambda event: None)\n"
        "    api.hooks.session_before_tree.append(lambda event: None)",
    )
    made = registry(link("one", code), configs={"one": {"key": 5}})
    report = report_of(made, "one")
    assert (report.status, report.engines, report.tools) == ("loaded", ["fine"], ["alpha", "zeta"])
    assert [tool.name for tool in made.tools()] == ["alpha", "zeta"]
    assert len(made.hooks().session_before_compact) == len(made.hooks().session_before_tree) == 1
    engine = made.make_engine("fine", EngineContext(), HOST_ABILITIES)
    assert engine.info.name == "Fine"
    assert made.make_engine("fine", EngineContext(), HOST_ABILITIES) is not engine
    assert made.engine_ids() == [LEGACY, "fine"]


def test_an_engine_is_given_the_config_of_its_plugin_and_the_folders_of_its_agent(
    link: Write, registry: Registry
) -> None:
    code = ENGINE.replace("lambda context: Engine()", "make") + (
        "def make(context):\n"
        "    engine = Engine()\n"
        "    engine.told = (dict(context.config), context.agent_dir, context.workspace_dir)\n"
        "    return engine\n"
    )
    made = registry(link("one", code), configs={"one": {"key": 5}})
    engine = made.make_engine("fine", EngineContext({}, "/agent", "/work"), HOST_ABILITIES)
    assert vars(engine)["told"] == ({"key": 5}, "/agent", "/work")


def test_the_config_that_a_plugin_is_given_cannot_be_changed(
    link: Write, registry: Registry
) -> None:
    made = registry(link("one", "def register(api): api.config['x'] = 1"))
    assert "TypeError" in str(report_of(made, "one").error)


def test_what_is_not_enabled_is_not_imported(link: Write, registry: Registry) -> None:
    boom = link("boom", "raise ZeroDivisionError\ndef register(api): pass")
    for made in (
        registry(boom, disabled=("boom",)),
        registry(boom, enabled=False),
        PluginRegistry(PluginChoices(folders=[("x", boom)]), find_installed=list),
    ):
        assert report_of(made, "boom").status == "disabled"
        assert made.tools() == []


def test_nothing_is_even_looked_for_where_nothing_is_enabled() -> None:
    def find() -> list[Any]:
        raise AssertionError("it was looked for")

    made = PluginRegistry(PluginChoices(), find_installed=find)
    assert made.tools() == []
    assert made.hooks().session_before_tree == []
    engine = made.make_engine(LEGACY, EngineContext(), HOST_ABILITIES)
    assert type(engine) is LegacyEngine


def test_a_plugin_is_loaded_once_however_often_it_is_asked_for(
    link: Write, registry: Registry, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    code = f"with open({str(count)!r}, 'a') as f: f.write('x')\n" + ENGINE
    made = registry(link("one", code))
    for _ in range(3):
        made.tools()
        made.reports()
        made.make_engine("fine", EngineContext(), HOST_ABILITIES)
    assert count.read_text() == "x"


def test_two_linked_plugins_may_have_modules_of_the_same_names(
    link: Write, registry: Registry
) -> None:
    """Imported absolutely, relatively, and only when the engine is made."""
    folders = []
    for name in ("one", "two"):
        files = {
            "plug/__init__.py": "from plug.words import HELLO\nfrom .more import register\n",
            "plug/words.py": f"HELLO = '{name}'\n",
            "plug/late.py": f"LATE = '{name}'\n",
            "plug/more.py": ENGINE.replace('"fine"', f'"{name}"')
            .replace("from strandline", "from . import words\nimport side\nfrom strandline", 1)
            .replace("lambda context: Engine()", "make")
            + "def make(context):\n"
            "    from .late import LATE\n"
            "    engine = Engine()\n"
            "    engine.told = (words.HELLO, side.SIDE, LATE)\n"
            "    return engine\n",
            "side.py": f"SIDE = '{name}'\n",
        }
        folders.append(link(name, files=files, manifest={"id": name, "module": "plug"}))
    path, modules = list(sys.path), set(sys.modules)
    made = registry(*folders)
    for name in ("one", "two"):
        engine = made.make_engine(name, EngineContext(), HOST_ABILITIES)
        assert vars(engine)["told"] == (name, name, name)
    assert sys.path == path
    added = set(sys.modules) - modules
    assert not {"plug", "side", "plug.words"} & added


def test_what_a_plugin_prints_while_it_loads_is_no_output_of_ours(
    link: Write, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    registry(link("one", "print('hello')\n" + ENGINE)).reports()
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "hello\n")


def test_two_installed_engines_stand_side_by_side(
    site: Path, package: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    package("first-engine")
    package("second-engine", "raise ZeroDivisionError('broken')")
    package("third-engine")
    monkeypatch.syspath_prepend(site)
    names = ("first-engine", "second-engine", "third-engine")
    choices = PluginChoices(entries={name: PluginEntry(enabled=True) for name in names})
    made = PluginRegistry(
        choices, find_installed=lambda: installed(distributions(path=[str(site)]))
    )
    assert made.engine_ids() == [LEGACY, "first-engine", "third-engine"]
    assert "ZeroDivisionError: broken" in unavailable(made, "second-engine").what
    assert unavailable(made, "second-engine").phase == "import"


# -- what does not -----------------------------------------------------------------------------

BROKEN = [
    ("import", "def register(:", "SyntaxError"),
    ("import", "import no_such_module_at_all", "ModuleNotFoundError"),
    ("import", "from . import nothing_like_it", "ImportError"),
    ("import", "raise SystemExit(3)", "SystemExit: 3"),
    ("import", "def f(): f()\nf()", "RecursionError"),
    ("import", "x = 1", "no function `register`"),
    ("import", "register = 7", "no function `register`"),
    ("register", "def register(): pass", "TypeError"),
    ("register", "def register(api): raise KeyError('k')", "KeyError: 'k'"),
    ("register", "def register(api): raise SystemExit", "SystemExit"),
    ("register", "def register(api): return api", "returned a PluginApi"),
    ("register", "async def register(api): pass", "is a coroutine"),
    ("register", "def register(api): api.register_context_engine('legacy', print)", "built-in"),
    ("register", "def register(api): api.register_context_engine('A b', print)", "cannot be the"),
    ("register", "def register(api): api.register_context_engine(7, print)", "cannot be the id"),
    ("register", "def register(api): api.register_context_engine('x', 7)", "factory of the"),
    (
        "register",
        "def register(api): [api.register_context_engine('x', print) for _ in (1, 2)]",
        "registered already",
    ),
    ("register", "def register(api): api.register_tool('x')", "not a str"),
    ("register", TOOL + "def register(api): api.register_tool(tool('a b'))", "tool's name"),
    ("register", TOOL + "def register(api): api.register_tool(tool('read'))", "there already"),
    ("register", TOOL + "def register(api): api.register_tool(tool('x', needs='all'))", "needs"),
    ("register", TOOL + "def register(api): [api.register_tool(tool('x')) for _ in 'ab']", "two"),
    (
        "register",
        "class E(Exception):\n    def __str__(self): raise ValueError\ndef register(api): raise E",
        "E: it cannot be told",
    ),
    ("register", "def register(api): raise OSError('a\\nb' * 9999)", "OSError: a b"),
]


@pytest.mark.parametrize(("phase", "code", "said"), BROKEN, ids=[b[2] for b in BROKEN])
def test_a_broken_plugin_is_recorded_and_breaks_no_other(
    link: Write, registry: Registry, phase: str, code: str, said: str
) -> None:
    made = registry(link("bad", code), link("good", ENGINE), taken_tools={"read"})
    bad = report_of(made, "bad")
    assert (bad.status, bad.phase, bad.engines, bad.tools) == ("failed", phase, [], [])
    assert bad.error is not None
    assert f"the plugin bad failed ({phase})" in bad.error.what
    assert said in bad.error.what
    assert len(str(bad.error)) < 1000
    assert bad.error.remedy
    assert made.make_engine("fine", EngineContext(), HOST_ABILITIES).info.id == "fine"
    error = unavailable(made, "bad")
    assert error.phase == phase
    assert said in error.what


SECRETS = {"apiKey": "hunter2hunter2", "more": [{"token": "swordfish"}], "mode": "on"}


@pytest.mark.parametrize("raised", ["ValueError(str(dict(config)))", "PluginError(str(config))"])
@pytest.mark.parametrize("where", ["register", "create"])
def test_what_a_plugin_is_told_in_its_config_is_in_no_error(
    link: Write, registry: Registry, raised: str, where: str
) -> None:
    code = ENGINE.replace("lambda context: Engine()", "make") + (
        "from strandline.errors import PluginError\n"
        "def fail(config): raise " + raised + "\n"
        "def make(context): fail(context.config)\n"
    )
    if where == "register":
        code = code.replace("def register(api):", "def register(api):\n    fail(api.config)")
    made = registry(link("one", code), configs={"one": SECRETS})
    said = str(unavailable(made, "fine")) + "".join(str(each.error) for each in made.reports())
    assert "'apiKey': '…'" in said
    assert "'mode': 'on'" in said
    assert "hunter2" not in said
    assert "swordfish" not in said


def test_an_interrupt_while_a_plugin_loads_is_an_interrupt(link: Write, registry: Registry) -> None:
    made = registry(link("one", "raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        made.reports()


def test_a_plugin_that_is_enabled_and_not_there_is_told(registry: Registry) -> None:
    made = registry(entries={"gone": PluginEntry(enabled=True), "off": PluginEntry()})
    assert [each.id for each in made.reports()] == ["gone"]
    assert "enabled and not installed" in str(report_of(made, "gone").error)
    assert "not installed" in unavailable(made, "gone").what


def test_two_plugins_of_one_id_are_none(
    link: Write, registry: Registry, site: Path, package: Write
) -> None:
    package("twin")
    folder = link("twin", ENGINE)
    made = registry(folder, find_installed=lambda: installed(distributions(path=[str(site)])))
    (report,) = made.reports()
    assert report.status == "failed"
    assert "twin 1 and " in str(report.error)
    assert str(folder) in str(report.error)


def test_an_engine_that_two_plugins_register_is_nobodys(link: Write, registry: Registry) -> None:
    made = registry(link("one", ENGINE), link("two", ENGINE))
    error = unavailable(made, "fine")
    assert "one and two" in error.what
    assert error.phase == "register"
    for name in ("one", "two"):
        assert report_of(made, name).status == "loaded"
        assert "one and two" in str(report_of(made, name).error)
    assert registry(
        made.choices.folders[0][1], made.choices.folders[1][1], disabled=("two",)
    ).make_engine("fine", EngineContext(), HOST_ABILITIES)


def test_a_tool_that_two_plugins_offer_is_left_out_and_the_others_stay(
    link: Write, registry: Registry
) -> None:
    code = TOOL + "def register(api): [api.register_tool(tool(n)) for n in ('both', 'a')]"
    made = registry(link("one", code), link("two", code.replace("'a'", "'b'")))
    assert [tool.name for tool in made.tools()] == ["a", "b"]
    assert "tools, both" in str(report_of(made, "two").error)


# -- making the engine ---------------------------------------------------------------------------

FACTORIES = [
    ("lambda: Engine()", "create", "TypeError"),
    ("lambda context: 1 / 0", "create", "ZeroDivisionError"),
    ("exit", "create", "SystemExit"),
    ("lambda context: None", "create", "gave a NoneType"),
    ("Late", "create", "gave a coroutine"),
    ("lambda context: ContextEngine()", "create", "abstract"),
    ("with_info(None)", "create", "not an EngineInfo"),
    ("with_info(EngineInfo('other', 'x'))", "create", "calls itself 'other'"),
    ("with_info(EngineInfo('fine', ''))", "create", "name"),
    ("with_info(EngineInfo('fine', 'x', 1))", "create", "version"),
    ("with_info(EngineInfo('fine', 'x', '1', 1))", "create", "owns_compaction"),
    ("with_info(EngineInfo('fine', 'x', '1', True, 'later'))", "create", "turn_maintenance_mode"),
    (
        "with_info(EngineInfo('fine', 'x', host_requirements='llm.complete'))",
        "create",
        "host_requirements",
    ),
    (
        "with_info(EngineInfo('fine', 'x', host_requirements=('zeta', 'moon', 'llm.complete')))",
        "requirements",
        "moon, zeta",
    ),
]


@pytest.mark.parametrize(("factory", "phase", "said"), FACTORIES)
def test_an_engine_that_is_not_what_it_should_be_is_not_used(
    link: Write, registry: Registry, factory: str, phase: str, said: str
) -> None:
    code = (
        "from strandline.context.engine import ContextEngine\n"
        + ENGINE.replace("lambda context: Engine()", factory)
        + "async def Late(context): return Engine()\n"
        "def with_info(info):\n"
        "    return lambda context: type('Own', (Engine,), {'info': info})()\n"
    )
    made = registry(link("one", code))
    error = unavailable(made, "fine")
    assert error.phase == phase
    assert said in error.what


# -- an engine that nobody registered --------------------------------------------------------------


def test_an_engine_that_is_not_there_is_told_with_what_is(link: Write, registry: Registry) -> None:
    made = registry(link("one", ENGINE), link("off", ENGINE), disabled=("off",))
    error = unavailable(made, "fien")
    assert error.phase == "find"
    assert "registered: legacy, fine" in error.what
    assert "not enabled: off" in error.what
    assert "write 'fine'" in error.remedy
    assert "strandline plugins install" in error.remedy


def test_the_engine_of_a_plugin_that_is_not_enabled_says_so(
    link: Write, registry: Registry
) -> None:
    folder = link("fine", ENGINE)
    assert "enable` fine" in unavailable(registry(folder, disabled=("fine",)), "fine").remedy
    assert "plugins.enabled is false" in unavailable(registry(folder, enabled=False), "fine").what


def test_an_engine_of_openclaw_in_javascript_is_told_apart(
    registry: Registry, tmp_path: Path
) -> None:
    extensions = tmp_path / "extensions"
    (extensions / "lossless-claw").mkdir(parents=True)
    (extensions / "lossless-claw" / "openclaw.plugin.json").write_text("{}")
    for made in (
        registry(extensions=extensions),
        registry(openclaw_file=tmp_path / "openclaw.json"),
        registry(
            openclaw_file=tmp_path / "openclaw.json",
            entries={"lossless-claw": PluginEntry(enabled=True)},
        ),
    ):
        error = unavailable(made, "lossless-claw")
        assert "JavaScript for OpenClaw, which cannot run here" in error.what
        assert "install a context engine for Strandline" in error.remedy
    assert "JavaScript" not in unavailable(registry(extensions=extensions), "other").what
    assert "JavaScript" not in unavailable(registry(extensions=extensions), "../x").what


def test_a_python_engine_works_beside_an_openclaw_json(link: Write, registry: Registry) -> None:
    made = registry(link("one", ENGINE), openclaw_file=Path("/openclaw.json"))
    assert made.make_engine("fine", EngineContext(), HOST_ABILITIES).info.id == "fine"
