"""The frame of all commands: failures in one line, nothing heavy imported, pipes, Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import click
import pytest

from strandline.cli import main as frame
from strandline.cli.failures import guarded
from strandline.cli.output import SlowNotice, json_text
from strandline.cli.session import COMMANDS
from strandline.errors import EntryNotFound, SessionNotFound
from strandline.manager import SessionManager

STRANDLINE = [sys.executable, "-m", "strandline"]


# -- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["sesion"],
            "no command 'sesion' (did you mean 'session'?): `strandline --help` shows how",
        ),
        (
            ["session", "sho"],
            "no command 'sho' (did you mean 'show'?): `strandline session --help`",
        ),
        (["session", "zzz"], "no command 'zzz': `strandline session --help` shows how"),
        (
            ["session", "show"],
            "Missing argument 'FILE': `strandline session show --help` shows how",
        ),
        (["session", "show", "f", "--al"], "No such option"),
        (["--bad"], "No such option"),
        (["session", "--bad"], "No such option"),
        (["session", "show", "f", "--all", "--branch", "x"], "--branch and --all exclude"),
        (["session", "export", "f", "--format", "pdf"], "Invalid value for '--format'"),
        (["session", "list", "nowhere"], "Invalid value for 'DIR'"),
    ],
)
def test_wrong_use_is_told_in_one_line_with_exit_code_2(
    arguments: list[str], error: str, run: Any
) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"strandline: {error}")
    assert ran.err.count("\n") == 1


def fail(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (EntryNotFound("gone", remedy="look"), 1, "strandline: gone: look"),
        (SessionNotFound("no\x1b[2J key\nx", remedy="list"), 2, "strandline: no key x: list"),
        (click.UsageError("wrong."), 2, "strandline: wrong"),
        (
            PermissionError(13, "Permission denied", "/x"),
            1,
            "strandline: cannot use /x (Permission denied): check the path, its rights, the disk",
        ),
        (KeyboardInterrupt(), 130, ""),
        (KeyboardInterrupt("stopped in it"), 130, "strandline: stopped in it"),
        (click.Abort(), 130, ""),
    ],
)
def test_errors_become_a_line_and_an_exit_code(
    error: BaseException, code: int, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert guarded(lambda: fail(error)) == code
    assert capfd.readouterr() == ("", f"{line}\n" if line else "")


def test_a_fault_of_ours_is_told_in_one_line_that_says_what_to_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STRANDLINE_DEBUG", raising=False)
    assert guarded(lambda: fail(ZeroDivisionError("by zero"))) == 1
    told = capsys.readouterr().err
    assert re.fullmatch(
        r"strandline: a fault of Strandline, ZeroDivisionError \(by zero\) at \S+\.py:\d+: "
        r"report it, with what the same command prints under STRANDLINE_DEBUG=1\n",
        told,
    )
    monkeypatch.setenv("STRANDLINE_DEBUG", "1")
    assert guarded(lambda: fail(ZeroDivisionError("by zero"))) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_what_is_no_exception_is_told_in_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: fail(GeneratorExit())) == 1
    assert capsys.readouterr().err.startswith("strandline: a fault of Strandline, GeneratorExit")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("command", ["status", "doctor --json", "context replay nowhere"])
def test_a_stream_that_is_closed_is_no_fault(command: str, closed: str, tmp_path: Path) -> None:
    line = f'"$0" -m strandline --state-dir "$1" {command} {closed}'
    shell = ["sh", "-c", line, sys.executable, str(tmp_path / "state")]
    ran = subprocess.run(shell, capture_output=True, check=False)
    assert ran.returncode == (2 if "nowhere" in command else 0)
    assert b"fault" not in ran.stderr


def test_a_state_directory_that_is_a_file_is_refused(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for given in ({"env": {"STRANDLINE_STATE_DIR": str(tmp_path / "file")}}, {}):
        option = [] if given else ["--state-dir", tmp_path / "file"]
        ran = run(*option, "status", **given)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"strandline: the state directory {tmp_path}/file is no folder")


def test_a_command_may_return_its_exit_code() -> None:
    assert guarded(lambda: 1) == 1
    assert guarded(lambda: None) == 0


# -- what costs nothing --------------------------------------------------------------------------

HEAVY = ["pydantic", "rich", "httpx2", "asyncio", "prompt_toolkit", "lede", "bpe_openai", "json5"]
SCRIPT = """
import sys
import threading
from strandline.cli.main import main
for arguments in {commands!r}:
    try:
        main(arguments)
    except SystemExit:
        pass
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""


DOING = {"list", "compact"}
"""The first takes a folder, the second summarises and may ask a model."""


def test_session_commands_import_nothing_heavy(talk: Path) -> None:
    commands = [["--help"], ["--version"], ["session", "--help"]]
    commands += [["session", name, str(talk)] for name in COMMANDS if name not in DOING]
    commands += [["session", "label", str(talk), "user0001", "x"]]
    script = SCRIPT.format(commands=commands, heavy=HEAVY)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert ran.stderr.splitlines()[-1] == "[]"


def test_every_listed_command_of_session_is_there(run: Any) -> None:
    shown = run("session", "--help").out
    for name, entry in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(entry.help)}$", shown, re.MULTILINE)
        ran = run("session", name, "--help")
        assert ran.code == 0
        assert ran.out.startswith(f"Usage: strandline session {name} ")
        assert "--json" in ran.out


def test_help_lists_the_commands_and_how_to_complete_them(run: Any) -> None:
    shown = run("--help").out
    for name, entry in frame.COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(entry.help)}$", shown, re.MULTILINE)
    assert "_STRANDLINE_COMPLETE=bash_source" in shown
    short = run("-h")
    assert short.out == shown, short


def test_version_is_that_of_the_package(run: Any) -> None:
    assert run("--version").out == "strandline 0.1.0\n"


def test_without_a_command_the_help_is_shown(run: Any) -> None:
    ran = run()
    assert ran.code == 2
    assert "Commands:" in ran.err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("strandline se", ["sessions", "session"]),
        ("strandline session re", ["repair"]),
        ("strandline session show x --a", ["--all"]),
    ],
)
def test_the_shell_completes_commands_and_options(words: str, wanted: list[str]) -> None:
    environment = {
        **os.environ,
        "_STRANDLINE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    ran = subprocess.run(STRANDLINE, env=environment, capture_output=True, check=True, text=True)
    assert [line.split(",")[1] for line in ran.stdout.splitlines()] == wanted


# -- output ----------------------------------------------------------------------------------


@pytest.fixture
def long_talk(tmp_path: Path) -> Path:
    """More than any pipe holds."""
    with SessionManager.create(
        session_dir=tmp_path, session_id="long", durability="none"
    ) as session:
        for _ in range(300):
            session.append_message({"role": "user", "content": "Grüße 🦀 " * 200})
    return tmp_path / "long.jsonl"


def test_colours_are_for_terminals_that_want_them(
    talk: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b[1m" in run("session", "show", talk, color=True).out
    assert "\x1b" not in run("session", "show", talk).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("session", "show", talk, color=True).out


def test_json_is_utf_8_whatever_the_locale(long_talk: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [*STRANDLINE, "session", "show", str(long_talk)]
    text = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert "Grüße \\U0001f980".encode("latin-1") in text.stdout
    raw = subprocess.run([*command, "--json"], env=environment, capture_output=True, check=True)
    assert "🦀" in json.loads(raw.stdout.decode("utf-8"))["entries"][0]["message"]["content"]


def test_json_text_takes_whatever_a_transcript_holds() -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    odd = {"\ud83d": "\udc00é\u2028", "n": float("inf"), "big": 2**80, "deep": deep}
    text = json_text(odd)
    assert "\n" not in text
    text.encode()
    assert json.loads(text) == {**odd, "n": None}


def test_a_reader_that_goes_away_ends_the_command_quietly(long_talk: Path) -> None:
    for more in ([], ["--json"]):
        command = [*STRANDLINE, "session", "show", str(long_talk), *more]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.read(10)
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141


def test_ctrl_c_ends_the_command_quietly_with_130(long_talk: Path) -> None:
    command = [*STRANDLINE, "session", "show", str(long_talk)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        select.select([process.stdout], [], [], 30)  # it writes more than the pipe takes
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read().strip() == b""


def test_a_full_disk_under_the_output_is_told_in_one_line(talk: Path) -> None:
    with Path("/dev/full").open("w") as full:
        for name in ("show", "tree"):
            command = [*STRANDLINE, "session", name, str(talk)]
            ran = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
            assert ran.returncode == 1
            assert ran.stderr == (
                "strandline: cannot use the output (No space left on device): "
                "check the path, its rights, the disk\n"
            )


def test_the_installed_script_is_the_same_command() -> None:
    script = Path(sys.executable).with_name("strandline")
    if not script.exists():
        pytest.skip("the package is not installed here")
    ran = subprocess.run([script, "--version"], capture_output=True, check=True, text=True)
    assert ran.stdout.startswith("strandline ")


class Terminal(io.StringIO):
    """Standard error that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_a_long_wait_is_announced_to_a_terminal_and_to_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for stream, said in ((Terminal(), "reading x\x07"), (io.StringIO(), "")):
        monkeypatch.setattr(sys, "stderr", stream)
        notice = SlowNotice(delay_s=0)
        notice.expect("reading x\x07")
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer):
                thread.join()
        assert stream.getvalue().count("\n") == bool(said)
        assert "\x07" not in stream.getvalue()
        notice.done()


def test_a_result_that_comes_soon_is_not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    notice = SlowNotice(delay_s=3600)
    notice.expect("reading x")
    notice.done()
    assert terminal.getvalue() == ""
