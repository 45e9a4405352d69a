"""The doctor: what it finds in a state directory, each thing with its remedy."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.manager import SessionManager
from strandline.runtime.engine_health import RecordedEngineHealth
from strandline.sessions.rows import SessionRow, new_row
from strandline.stores.engine_health_file import NAME, EngineHealthFile
from strandline.stores.rows_file import RowsFile
from strandline.testing import SimulatedClock
from strandline.wiring.doctor import CHECKS, Finding, diagnose

SHARED = Path(__file__).parents[3] / "shared"
MAIN = "agent:main:main"


class StateOf:
    """A state directory with a model of a server of one's own, and sessions as they are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SimulatedClock()
        self.sessions = folder / "agents" / "main" / "sessions"
        self.sessions.mkdir(parents=True, mode=0o700)
        for made in (folder, folder / "agents", folder / "agents" / "main"):
            made.chmod(0o700)
        self.settings()

    def settings(self, window: int = 100_000, **more: Any) -> None:
        models = [{"id": "one", "contextWindow": window, "maxTokens": 1000}]
        provider = {"baseUrl": "http://127.0.0.1:9/v1", "models": models}
        agents = {"defaults": {"model": "mine/one", **more.pop("defaults", {})}}
        told = {"models": {"providers": {"mine": provider}}, "agents": agents, **more}
        self.write("strandline.json", json.dumps(told))

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def session(self, session_id: str = "s1", key: str | None = MAIN, **row: Any) -> SessionManager:
        session = SessionManager.create(session_dir=self.sessions, session_id=session_id)
        if key is not None:
            fresh = new_row(session_id, self.clock.now_ms())
            self.row(key, SessionRow({**fresh.raw, **row}))
        return session

    def row(self, key: str, row: SessionRow) -> None:
        RowsFile(self.sessions / "sessions.json").patch(key, lambda _: row)

    def found(self, **options: Any) -> dict[str, list[Finding]]:
        by_id: dict[str, list[Finding]] = {}
        environ: dict[str, str] = options.pop("environ", {})
        for finding in diagnose(self.folder, environ, clock=self.clock, **options):
            by_id.setdefault(finding.id, []).append(finding)
        return by_id

    def the(self, finding_id: str, **options: Any) -> Finding:
        """The one finding of that id, which names a remedy."""
        found = self.found(**options)
        assert finding_id in found, sorted(found)
        [finding] = found[finding_id]
        assert finding.remedy
        assert finding.group in CHECKS
        return finding


@pytest.fixture
def state(tmp_path: Path) -> StateOf:
    return StateOf(tmp_path / "state")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text, "timestamp": 1}


def answer(*blocks: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    return {"role": "assistant", "content": content, "stopReason": "stop", "timestamp": 2}


# -- what is well ---------------------------------------------------------------------------


def test_a_state_without_faults_is_told_so(state: StateOf) -> None:
    session = state.session()
    session.append_message(user("hello"))
    session.append_message(answer("hi"))
    found = state.found()
    assert {f.severity for each in found.values() for f in each} == {"ok"}, found
    assert {f.group for each in found.values() for f in each} == set(CHECKS)


def test_a_place_where_nothing_is_yet_is_no_error(tmp_path: Path) -> None:
    found = list(diagnose(tmp_path / "nowhere", {}, clock=SimulatedClock()))
    assert "error" not in {finding.severity for finding in found}
    assert "config.nothing" in {finding.id for finding in found}
    assert not (tmp_path / "nowhere").exists()


def test_looking_changes_not_a_byte(state: StateOf) -> None:
    state.session().append_message(user("hello"))
    (state.sessions / "s1.jsonl.lock").write_text("{}")
    before = {path: path.stat() for path in sorted(state.folder.rglob("*"))}
    state.found()
    after = {path: path.stat() for path in sorted(state.folder.rglob("*"))}
    assert [(p, s.st_mtime_ns, s.st_size) for p, s in before.items()] == [
        (p, s.st_mtime_ns, s.st_size) for p, s in after.items()
    ]


# -- settings, models, engines ----------------------------------------------------------------


def test_settings_that_do_not_load_are_the_error_and_the_rest_is_looked_at(
    state: StateOf,
) -> None:
    state.write("strandline.json", "{ agents: { defaultz: {} } }")
    state.session()
    finding = state.the("config.unusable")
    assert finding.severity == "error"
    assert "strandline.json" in finding.what
    assert "store.read" in state.found()


def test_doubtful_settings_are_warnings(state: StateOf) -> None:
    rules = [{"maxAge": "1h", "keep": "all"}, {"maxAge": "5m", "keep": 3}]
    state.settings(defaults={"context": {"ttl": {"enabled": True, "rules": rules}}})
    found = state.found()["config.doubtful"]
    assert {finding.severity for finding in found} == {"warning"}
    assert any("ttl.rules" in finding.what for finding in found)


@pytest.mark.parametrize(
    ("model", "environ", "severity"),
    [
        ({"primary": "mine/nothing"}, {}, "error"),
        ({"primary": "mine/one", "fallbacks": ["openai/gpt-4o-mini"]}, {}, "warning"),
        (
            {"primary": "mine/one", "fallbacks": ["openai/gpt-4o-mini"]},
            {"OPENAI_API_KEY": "k"},
            None,
        ),
    ],
)
def test_a_model_that_cannot_be_asked_is_named(
    state: StateOf, model: Any, environ: dict[str, str], severity: str | None
) -> None:
    state.settings(defaults={"model": model})
    found = state.found(environ=environ).get("models.unusable", [])
    assert [finding.severity for finding in found] == ([severity] if severity else [])


def test_a_model_for_summaries_of_layers_that_cannot_be_asked_is_named(state: StateOf) -> None:
    rules = [{"maxAge": "1h", "keep": "all"}, {"maxAge": "inf", "keep": "summary"}]
    context = {"ttl": {"rules": rules}, "compaction": {"model": "mine/nothing"}}
    state.settings(defaults={"context": context})
    finding = state.the("models.unusable")
    assert "context.compaction.model mine/nothing" in finding.what
    assert finding.severity == "warning"


def test_the_model_that_comes_along_is_one_line_and_no_warning(state: StateOf) -> None:
    state.write("strandline.json", "{}")
    found = [f for each in state.found().values() for f in each if f.group == "budget"]
    assert [(f.id, f.severity) for f in found] == [("budget.local_model", "info")]
    assert found[0].remedy


def test_a_server_elsewhere_without_a_key_is_named(state: StateOf) -> None:
    path = state.folder / "strandline.json"
    path.write_text(path.read_text().replace("http://127.0.0.1:9", "https://models.example.com"))
    assert "models.providers.mine.apiKey" in state.the("models.unusable").what


def test_an_engine_that_is_not_there_is_an_error_with_both_ways_out(state: StateOf) -> None:
    state.settings(plugins={"slots": {"contextEngine": "lossless"}})
    finding = state.the("engine.unusable")
    assert finding.severity == "error"
    assert "lossless" in finding.what
    assert "legacy" in finding.remedy


PLUGIN = """
from strandline.context.engine import AssembleResult, ContextEngine, EngineInfo, Ingested

class Engine(ContextEngine):
    info = EngineInfo("mine", "Mine")
    async def ingest(self, request): return Ingested(False)
    async def assemble(self, request): return AssembleResult(request.messages, 0)
    async def compact(self, request): ...
    async def dispose(self): {dispose}

def register(api):
    {register}
    api.register_context_engine("mine", lambda context: Engine())
"""


def plugin(state: StateOf, dispose: str = "pass", register: str = "pass") -> None:
    folder = state.folder.parent / "mine"
    folder.mkdir()
    (folder / "mine.py").write_text(PLUGIN.format(dispose=dispose, register=register))
    plugins = {
        "slots": {"contextEngine": "mine"},
        "load": {"paths": [str(folder)]},
        "entries": {"mine": {"enabled": True}},
    }
    state.settings(plugins=plugins)


def test_an_engine_of_a_plugin_is_made_and_given_back(state: StateOf) -> None:
    plugin(state)
    found = state.found()
    assert "does not own compaction" in found["engine.usable"][0].what
    assert "engine mine" in found["plugins.loaded"][0].what


def test_an_engine_that_fails_when_it_is_given_back_is_named(state: StateOf) -> None:
    plugin(state, dispose="raise ValueError('no')")
    assert "dispose" in state.the("engine.failing").what


def test_a_plugin_that_breaks_is_named_with_its_engine(state: StateOf) -> None:
    plugin(state, register="raise ValueError('no')")
    found = state.found()
    assert "mine" in found["plugins.broken"][0].what
    assert "no" in found["engine.unusable"][0].what
    assert found["engine.unusable"][0].severity == "error"


def test_what_engines_failed_at_lately_is_told(state: StateOf) -> None:
    health = RecordedEngineHealth(EngineHealthFile(state.folder / NAME), state.clock)
    health.note("legacy", "assemble", "ValueError: no", MAIN)
    health.note_declined("other", MAIN)
    state.clock.advance(2 * 3_600_000)
    failed = state.the("engine.failed")
    assert failed.severity == "warning"
    assert all(word in failed.what for word in ("legacy", "assemble", MAIN, "no", "2 h"))
    declined = state.the("engine.declines_compaction")
    assert declined.severity == "info"  # it is not selected
    assert "delegate_compaction_to_runtime" in declined.remedy


# -- the disk -------------------------------------------------------------------------------


def test_rows_without_transcripts_and_transcripts_without_rows(state: StateOf) -> None:
    state.session("alone", key=None)
    state.row("agent:main:direct:ann", new_row("gone", 1))
    missing = state.the("store.missing_transcript")
    assert (missing.severity, "agent:main:direct:ann" in missing.what) == ("warning", True)
    assert "alone.jsonl" in state.the("store.no_row").what


def test_a_store_that_disagrees_with_its_transcripts(state: StateOf) -> None:
    state.session("s1")
    state.row("agent:main:direct:ann", new_row("s1", 1))
    state.session("s2", key=None)
    state.row("agent:main:direct:bob", new_row("other", 1, session_file="s2.jsonl"))
    state.row("agent:main:direct:cat", new_row("s3", 1, session_file="../../etc/.passwd"))
    state.session("s3", key=None)
    shared = state.the("store.shared_transcript").what
    assert MAIN in shared
    assert "direct:ann" in shared
    other = state.the("store.other_session_id").what
    assert "direct:bob (row other, transcript s2)" in other
    assert "direct:cat" in state.the("store.odd_file_name").what


def test_a_damaged_store_is_an_error_and_is_left_as_it_is(state: StateOf) -> None:
    state.session()
    path = state.sessions / "sessions.json"
    path.write_bytes(path.read_bytes()[:40])
    before = path.read_bytes()
    assert state.the("store.damaged").severity == "error"
    assert path.read_bytes() == before


def test_damaged_transcripts_are_told_by_kind(state: StateOf) -> None:
    session = state.session()
    session.append_message(user("hello"))
    with (state.sessions / "s1.jsonl").open("ab") as file:
        file.write(b'{"type": "mess\n')
    (state.sessions / "empty.jsonl").write_bytes(b"\x00" * 40)
    (state.sessions / "closed.jsonl").mkdir()
    assert "s1.jsonl: 1 " in state.found()["transcripts.damaged"][-1].what


def test_older_transcripts_are_counted_and_not_read(
    state: StateOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.wiring.doctor.patient.MOST_TRANSCRIPTS", 2)
    for number in range(5):
        state.session(f"s{number}", key=f"agent:main:direct:{number}")
    [read] = state.found()["transcripts.read"]
    assert read.what == "transcripts read: 2; not looked at, as older or larger: 3"


def test_locks_are_told_by_who_holds_them(state: StateOf) -> None:
    state.session()
    transcript = state.sessions / "s1.jsonl"
    stale = transcript.with_name("s1.jsonl.lock")
    stale.write_text('{"pid": 0}')
    os.utime(stale, (0, 0))
    (state.sessions / "sessions.json.lock").write_text('{"pid": 1}')
    note = {"holder": "a chat", "pid": 7, "host": "here"}
    held = transcript.with_name("s1.jsonl.run")
    held.write_text(json.dumps(note))
    with held.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = state.found()
        assert "a chat (process 7 on here)" in found["locks.held"][0].what
    assert str(stale) in found["locks.stale"][0].what
    assert "process 1" in found["locks.foreign"][0].what or "locks.stale" in found
    assert len(state.found()["locks.stale"]) >= 2


def test_left_overs_of_writes_are_told_once_they_are_old(state: StateOf) -> None:
    left = state.sessions / "sessions.json.strandline.tmp"
    left.write_text("")
    assert "locks.left_over" not in state.found()
    old = state.clock.now_ms() / 1000 - 3600
    os.utime(left, (old, old))
    assert str(left) in state.the("locks.left_over").what


def test_files_that_others_may_read_are_told_with_the_command(state: StateOf) -> None:
    (state.folder / "strandline.json").chmod(0o644)
    finding = state.the("permissions.shared")
    assert "strandline.json" in finding.what
    assert finding.remedy == f"chmod -R go-rwx {state.folder}"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_files_that_we_may_not_read_are_errors(state: StateOf) -> None:
    state.session()
    (state.sessions / "s1.jsonl").chmod(0)
    assert state.the("permissions.closed").severity == "error"


# -- the usual suspects -----------------------------------------------------------------------


def test_keys_that_nothing_writes_to_are_told(state: StateOf) -> None:
    state.row("agent:other:main", new_row("a", 1))
    state.row("no key", new_row("b", 1))
    state.row("Agent:Main:direct:Ann", new_row("c", 1))
    assert "agent:other:main" in state.the("keys.other_agent").what
    assert "'no key'" in state.the("keys.no_key").what
    assert "in use: agent:main:direct:Ann" in state.the("keys.unread").what


def test_a_main_key_that_was_changed_is_told(state: StateOf) -> None:
    state.session()
    state.settings(session={"mainKey": "home"})
    finding = state.the("keys.other_main")
    assert finding.severity == "warning"
    assert "agent:main:home" in finding.what
    assert MAIN in finding.what


def test_a_window_that_holds_little_and_a_reserve_that_leaves_little(state: StateOf) -> None:
    state.settings(window=8_000, defaults={"compaction": {"reserveTokens": 7_000}})
    found = state.found()
    assert [found[f"budget.{kind}"][0].severity for kind in ("small_window", "high_reserve")] == [
        "warning",
        "warning",
    ]
    assert "every turn compacts" in found["budget.compacts_often"][0].what


def test_a_system_prompt_that_leaves_no_room_is_an_error(state: StateOf) -> None:
    state.settings(window=2_000, defaults={"systemPrompt": "word " * 3_000})
    assert state.the("budget.no_room").severity == "error"


def bloated(state: StateOf) -> None:
    session = state.session()
    session.append_message(user("look"))
    call = {"type": "toolCall", "id": "a", "name": "read", "arguments": {}}
    session.append_message(answer(call))
    result = {"role": "toolResult", "toolCallId": "a", "toolName": "read", "timestamp": 3}
    session.append_message({**result, "content": [{"type": "text", "text": "word " * 20_000}]})


def test_bloated_results_are_told_where_none_is_ever_trimmed(state: StateOf) -> None:
    bloated(state)
    finding = state.the("conversations.bloated_results")
    assert MAIN in finding.what
    assert "cache-ttl" in finding.remedy
    state.settings(defaults={"contextPruning": {"mode": "cache-ttl"}})
    assert "conversations.bloated_results" not in state.found()


def test_replies_that_leak_their_silence_are_told(state: StateOf) -> None:
    session = state.session()
    for text in (
        "NO_REPLY",
        "All is well. NO_REPLY",
        "Fine.\n\nNO_REPLY",
        "what NO_REPLY means is",
    ):
        session.append_message(answer(text))
    leaking = state.the("conversations.leaking_silence")
    assert (leaking.severity, leaking.what.endswith(": 1 replies")) == ("warning", True)
    assert state.the("conversations.half_silent").what.endswith(": 1 replies")


def test_compactions_that_follow_each_other_are_told(state: StateOf) -> None:
    session = state.session()
    for _ in range(3):
        kept = session.append_message(user("again"))
        session.append_compaction("a summary", kept, 100)
    assert "3 compactions for 3 messages" in state.the("conversations.compacts_often").what


def test_a_cache_that_rules_lose_is_a_hint(state: StateOf) -> None:
    state.settings(defaults={"context": {"maxMessages": 20}})
    state.session(inputTokens=900_000, cacheRead=100_000)
    finding = state.the("conversations.cache_misses")
    assert (finding.severity, "10%" in finding.what) == ("info", True)
    assert "context replay" in finding.remedy
    aware = {"maxMessages": 20, "cacheAware": {"enabled": True}}
    state.settings(defaults={"context": aware})
    assert "conversations.cache_misses" not in state.found()


# -- and whatever comes -----------------------------------------------------------------------


def test_one_agent_alone_is_looked_at_and_one_that_is_not_there_is_an_error(
    state: StateOf,
) -> None:
    state.row("agent:other:main", new_row("a", 1))
    (state.folder / "agents" / "ops" / "sessions").mkdir(parents=True, mode=0o700)
    assert "keys.other_agent" not in state.found(agent_id="ops")
    assert state.the("store.no_agent", agent_id="nobody").severity == "error"


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(
    state: StateOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> Any:
        raise RuntimeError("as it comes")

    monkeypatch.setitem(CHECKS, "models", broken)
    finding = state.the("models.not_checked")
    assert (finding.severity, "as it comes" in finding.what) == ("error", True)
    assert "store.read" in state.found()


DAMAGE: list[Callable[[Path], object]] = [
    lambda sessions: (sessions / "sessions.json").write_text("[" * 10_000),
    lambda sessions: (sessions / "sessions.json").write_text('{"a": {"sessionId": "x"}, "b": 3}'),
    lambda sessions: (sessions / "sessions.json").write_text(
        '{"agent:main:main": {"sessionId": "s1", "sessionFile": 3, "updatedAt": "x", '
        '"inputTokens": -5, "chatType": 7, "compactionCount": []}}'
    ),
    lambda sessions: (sessions / "s1.jsonl").write_bytes(b"\x00" * 100),
    lambda sessions: (sessions / "s1.jsonl").write_bytes(b"\xff{]" * 100),
    lambda sessions: (sessions / "s1.jsonl").write_text(
        '{"type":"message","id":"a","parentId":null,"message":{"role":7,"content":[3,null]}}\n'
    ),
    lambda sessions: (sessions / "s1.jsonl").unlink(),
    lambda sessions: (sessions.parent.parent.parent / NAME).write_text("{"),
    lambda sessions: (sessions.parent.parent.parent / NAME).mkdir(),
    shutil.rmtree,
    lambda sessions: (sessions.parent.parent / "a file").write_text(""),
    lambda sessions: (sessions / "loop.jsonl").symlink_to("loop.jsonl"),
    lambda sessions: (sessions / "odd\n\x1b[31m.jsonl.lock").write_text("[]"),
    lambda sessions: os.mkfifo(sessions / "s1.jsonl.lock"),
    lambda sessions: (sessions / "s1.jsonl.run").mkdir(),
]


def test_a_row_with_a_number_that_no_float_holds_is_read(state: StateOf) -> None:
    state.row(MAIN, SessionRow({**new_row("s1", 1).raw, "inputTokens": 10**400}))
    assert not [f for each in state.found().values() for f in each if "report it" in f.remedy]


@pytest.mark.parametrize("damage", DAMAGE)
def test_no_damage_keeps_the_rest_from_being_told(
    state: StateOf, damage: Callable[[Path], object]
) -> None:
    state.session().append_message(user("hello"))
    damage(state.sessions)
    found = [finding for each in state.found().values() for finding in each]
    assert {finding.group for finding in found} >= {"config", "models", "store", "transcripts"}
    assert not [f for f in found if "report it" in f.remedy], found


def test_a_state_of_openclaw_is_looked_at(tmp_path: Path) -> None:
    fixture = SHARED / "fixtures" / "openclaw-state"
    if not fixture.is_dir():
        pytest.skip("../shared with its fixtures is not here")
    shutil.copytree(fixture, tmp_path / "state")
    found = list(diagnose(tmp_path / "state", {}, clock=SimulatedClock()))
    assert "error" not in {finding.severity for finding in found}, found
    [read] = [finding for finding in found if finding.id == "store.read"]
    assert read.what.startswith("rows read: 9 ")


def test_a_thousand_rows_cost_a_look_at_each_and_no_more(state: StateOf) -> None:
    """Work is bounded: every transcript is looked at once in the folder, fifty are read."""
    rows = {f"agent:main:direct:{n}": dict(new_row(f"s{n}", n).raw) for n in range(1000)}
    (state.sessions / "sessions.json").write_text(json.dumps(rows))
    header = '{"type":"session","version":3,"id":"%s","timestamp":"2025-06-01T10:00:00.000Z"}\n'
    for number in range(1000):
        (state.sessions / f"s{number}.jsonl").write_text(header % f"s{number}")
    found = state.found()
    assert found["transcripts.read"][0].what.startswith("transcripts read: 50; ")
    assert "store.missing_transcript" not in found
