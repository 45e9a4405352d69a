"""Two engines are installed, and one is broken in each of its methods, in each way there is.

Linked folders, a settings file, the real command: the failure names engine, phase and remedy,
what was said is there, what was in the file stays, `status` and `doctor` know of it, and
switching back, or to the other engine, works. Source: spec 3, Engine slot (No silent fallback).
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from strandline.cli.main import main
from strandline.errors import EngineError
from strandline.manager import SessionManager
from strandline.runtime import engine_host
from strandline.runtime.events import Notice
from strandline.runtime.tools import Tool
from strandline.testing import Reply, ScriptedModelServer
from strandline.testing.reply import ToolCall
from strandline.wiring import open_state
from strandline.wiring.doctor import engines as doctors_engines

STEADY = """
from strandline.context.engine import EngineInfo, LegacyEngine


class Steady(LegacyEngine):
    info = EngineInfo("steady", "Steady")


def register(api):
    api.register_context_engine("steady", lambda context: Steady())
"""

FRAGILE = Path(__file__).with_name("engine_that_breaks.py").read_text()

NOTICED = {"ingest", "after_turn", "maintain", "on_subagent_ended", "dispose"}
"""What fails here fails after the answer; `ingest` is told the answer, as the first that is new."""
"""Where these fail, the answer stands, and the failure is told beside it."""

CASES = [
    *(("register", how) for how in ("raise", "exit", "type")),
    *(("create", how) for how in ("raise", "exit", "type")),
    ("info", "type"),
    ("requirements", "type"),
    *(
        (phase, how)
        for phase in (
            "bootstrap",
            "ingest",
            "ingest_batch",
            "assemble",
            "compact",
            "after_turn",
            "maintain",
            "prepare_subagent_spawn",
            "on_subagent_ended",
            "dispose",
        )
        for how in ("raise", "exit", "type", "hang")
    ),
]
TOLD_AS = {"info": "create"}


def link(folder: Path, plugin_id: str, code: str) -> None:
    folder.mkdir()
    (folder / f"{plugin_id}_of_it.py").write_text(code)
    manifest = {"id": plugin_id, "module": f"{plugin_id}_of_it"}
    (folder / "strandline-plugin.json").write_text(json.dumps(manifest))


@dataclass
class Home:
    """A state directory with both engines, of which `fragile` is selected."""

    folder: Path
    server: ScriptedModelServer
    notices: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        link(self.folder / "steady", "steady", STEADY)
        link(self.folder / "fragile", "fragile", FRAGILE)
        self.broken("", "")
        self.select("fragile")

    def broken(self, phase: str, how: str, reason: str = "turn") -> None:
        wanted = {"phase": phase, "how": how, "reason": reason}
        (self.folder / "fragile" / "broken.json").write_text(json.dumps(wanted))

    def select(self, engine: str) -> None:
        model = {"id": "one", "contextWindow": 16_000, "maxTokens": 500}
        provider = {"baseUrl": self.server.base_url, "apiKey": "k", "models": [model]}
        settings = {
            "models": {"providers": {"mine": {**provider, "api": "openai-completions"}}},
            "agents": {"defaults": {"model": {"primary": "mine/one"}}},
            "plugins": {
                "load": {"paths": ["steady", "fragile"]},
                "entries": {"steady": {"enabled": True}, "fragile": {"enabled": True}},
                "slots": {"contextEngine": engine},
            },
        }
        (self.folder / "strandline.json").write_text(json.dumps(settings))

    def run(self, *args: str) -> Any:
        """The command, in this process."""
        env = {"STRANDLINE_STATE_DIR": str(self.folder)}
        ran = CliRunner().invoke(main, [*args], env=env)
        assert "Traceback" not in ran.output
        return ran

    def talk(self, *texts: str, phase: str = "") -> None:
        """As one process: says something, and does what calls the phase."""
        asyncio.run(self._talk(texts, phase))

    async def _talk(self, texts: tuple[str, ...], phase: str) -> None:
        state = open_state(self.folder, {}, warn=self.notices.append)
        state.register_tool(Tool("look", "It looks.", {"type": "object"}, lambda _: "seen"))
        conversation = state.conversation("main", "agent:main:main", holder="a test")
        try:
            for text in texts:
                await conversation.say(text, listener=self._hear)
            if phase == "compact":
                await conversation.compact(listener=self._hear)
            if "subagent" in phase and conversation.subagents is not None:
                conversation.subagents.attend(self._hear)
                await conversation.subagents.spawn("look around", listener=self._hear)
            await conversation.settle()
        finally:
            await conversation.close(self._hear)

    def _hear(self, event: object) -> None:
        if isinstance(event, Notice):
            self.notices.append(event.text)

    @property
    def transcript(self) -> Path:
        store = self.folder / "agents" / "main" / "sessions"
        row = json.loads((store / "sessions.json").read_text())["agent:main:main"]
        return store / str(row["sessionFile"])

    def said(self) -> list[str]:
        """What people said, as the file has it."""
        with SessionManager.open(self.transcript) as session:
            messages = session.build_context().messages
        return [m["content"][0]["text"] for m in messages if m["role"] == "user"]


def reply(request: Any) -> Reply:
    messages = request.body["messages"]
    if messages[-1]["role"] == "user" and "use the tool" in str(messages[-1]["content"]):
        return Reply("I look.", tool_calls=[ToolCall("look", {})])
    return Reply("Fine.")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with ScriptedModelServer(reply) as server:
        yield Home(tmp_path, server)


def names_it(text: str, phase: str) -> bool:
    return all(word in text for word in ("fragile", phase, "plugins.slots.contextEngine", "legacy"))


@pytest.mark.parametrize(("phase", "how"), CASES)
def test_a_failure_is_told_loses_nothing_and_can_be_left_behind(
    home: Home, phase: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.talk("one", "two")
    before, told_as = home.transcript.read_bytes(), TOLD_AS.get(phase, phase)
    text = "use the tool" if phase == "ingest_batch" else "and this"
    home.broken(phase, how)
    monkeypatch.setattr(engine_host, "MOST_S", 0.3)
    monkeypatch.setattr(engine_host, "MOST_COMPACTING_S", 0.3)
    monkeypatch.setattr(doctors_engines, "DISPOSE_S", 0.3)
    if phase in NOTICED:
        home.talk(text, phase=phase)
        assert any(names_it(notice, told_as) for notice in home.notices), home.notices
        assert home.said()[:3] == ["one", "two", text]
    else:
        with pytest.raises(EngineError) as failed:
            home.talk(text, phase=phase)
        assert (failed.value.engine, failed.value.phase) == ("fragile", told_as)
        assert names_it(str(failed.value), told_as)
        was_made = phase not in {"register", "create", "info", "requirements"}
        assert home.said() == ["one", "two", *[text] * was_made]
    assert home.transcript.read_bytes().startswith(before)
    known_by_status_and_doctor(home, told_as)
    left_behind(home, before)


def known_by_status_and_doctor(home: Home, phase: str) -> None:
    failure = json.loads(home.run("status", "--json").stdout)["engineFailure"]
    assert (failure["engine"], failure["phase"]) == ("fragile", phase)
    assert f"fragile in {phase}" in home.run("status").stdout
    doctor = home.run("doctor", "--json")
    assert doctor.exit_code in {0, 1}
    assert any("fragile" in line and phase in line for line in doctor.stdout.split("{"))


def left_behind(home: Home, before: bytes) -> None:
    """The ways out: another engine, or none; each goes on with all that was said."""
    home.select("steady")
    home.talk("with the other")
    home.select("fragile")
    done = home.run("plugins", "disable", "fragile")
    assert done.exit_code == 0, done.output
    slot = json.loads((home.folder / "strandline.json").read_text())["plugins"]["slots"]
    assert slot == {"contextEngine": "legacy"}
    home.talk("and with none")
    assert home.transcript.read_bytes().startswith(before)
    said = home.said()
    assert said[:2] == ["one", "two"]
    assert [text for text in said if text.startswith(("with", "and with"))] == [
        "with the other",
        "and with none",
    ]
    assert len(home.server.requests[-1].body["messages"]) > 2 * len(said) - 2


def test_a_failing_upkeep_before_the_first_turn_is_an_error(home: Home) -> None:
    """Nothing was answered yet that could stand."""
    home.broken("maintain", "raise", reason="bootstrap")
    with pytest.raises(EngineError) as failed:
        home.talk("one")
    assert names_it(str(failed.value), "maintain")
    assert home.said() == ["one"]
    home.broken("", "")
    home.talk("two")
    assert home.said() == ["one", "two"]


def test_an_engine_that_does_not_take_an_answer_gets_no_further_turn(home: Home) -> None:
    home.broken("ingest", "raise")
    with pytest.raises(EngineError) as failed:
        home.talk("one", "two")
    assert names_it(str(failed.value), "ingest")
    assert any(names_it(notice, "ingest") for notice in home.notices), "the answer stood"
    assert home.said() == ["one", "two"]


@pytest.mark.parametrize(
    ("phase", "how", "code"),
    [
        ("register", "exit", 2),
        ("create", "raise", 2),
        ("requirements", "type", 2),
        ("bootstrap", "exit", 1),
        ("assemble", "raise", 1),
    ],
)
def test_the_command_prints_one_line_and_no_traceback(
    home: Home, phase: str, how: str, code: int
) -> None:
    home.broken(phase, how)
    command = [sys.executable, "-c", "from strandline.cli.main import main; main()"]
    ran = subprocess.run(
        [*command, "--state-dir", str(home.folder), "agent", "--message", "hi", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == code, ran.stderr
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1, ran.stderr
    assert names_it(ran.stderr, phase)
