"""``context explain``: what the model would see of a session, and why; nothing is changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click import unstyle

from strandline.cli.budget_bar import bar_lines
from strandline.cli.context_table import reason_lines, table_lines
from strandline.cli.signs import Page
from strandline.cli.words import width
from strandline.context.budget import CompactionSettings, resolve_budget
from strandline.context.clean_path import CleanPath
from strandline.context.explain import explain, whole_path
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.manager import SessionManager
from strandline.transcript.messages import JsonObject

HOUR = 3_600_000
NOW = 1_760_000_000_000

EXAMPLES: dict[str, JsonObject] = {
    "personal": {
        "maxMessages": 100,
        "maxTokens": 32000,
        "ttl": {
            "enabled": True,
            "rules": [
                {"maxAge": "30m", "keep": "all"},
                {"maxAge": "4h", "keep": 30},
                {"maxAge": "24h", "keep": "summary"},
                {"maxAge": "inf", "keep": "none"},
            ],
        },
        "compaction": {"enabled": True, "summaryMaxTokens": 1024},
    },
    "service": {
        "maxMessages": 30,
        "maxTokens": 8000,
        "ttl": {
            "enabled": True,
            "rules": [
                {"maxAge": "10m", "keep": "all"},
                {"maxAge": "1h", "keep": 10},
                {"maxAge": "inf", "keep": "none"},
            ],
        },
    },
    "group": {
        "maxMessages": 15,
        "maxTokens": 4000,
        "ttl": {
            "enabled": True,
            "rules": [
                {"maxAge": "5m", "keep": "all"},
                {"maxAge": "30m", "keep": 5},
                {"maxAge": "inf", "keep": "none"},
            ],
        },
    },
}
"""The three configurations that the format's documentation gives as examples."""


def config(tmp_path: Path, context: JsonObject) -> Path:
    path = tmp_path / "rules.json5"
    path.write_text("// rules\n" + json.dumps({"context": context}))
    return path


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """Ten turns, one each hour, the newest at `NOW`."""
    with SessionManager.create(session_dir=tmp_path, session_id="talk") as session:
        for n in range(10):
            said_ms = NOW - (9 - n) * HOUR
            session.append_message(
                {"role": "user", "content": f"question {n}", "timestamp": said_ms}
            )
            answer = [{"type": "text", "text": f"answer {n} " + "word " * 50}]
            by = {"provider": "elsewhere", "model": "unknown", "stopReason": "stop", "usage": {}}
            session.append_message(
                {"role": "assistant", "content": answer, "timestamp": said_ms + 1000, **by}
            )
    return tmp_path / "talk.jsonl"


def outcomes(report: JsonObject) -> list[str]:
    return [message["outcome"] for message in report["messages"]]


def test_without_rules_all_is_kept_and_the_budget_is_told(run: Any, talk: Path) -> None:
    report = run("context", "explain", talk, "--now", NOW, "--window", 50_000, "--json").json()
    assert outcomes(report) == ["kept"] * 20
    assert (report["file"], report["engine"], report["sessionKey"]) == (str(talk), "legacy", None)
    assert report["nowMs"] == NOW
    budget = report["budget"]
    assert budget["window"] == 50_000
    assert budget["free"] == budget["limit"] - budget["used"] > 0
    assert budget["systemPrompt"] > 0
    assert budget["used"] == report["totals"]["tokens"]
    message = report["messages"][0]
    assert message == {
        "entryId": message["entryId"],
        "role": "user",
        "tokens": message["tokens"],
        "outcome": "kept",
        "layer": None,
        "rule": None,
        "reason": "",
        "decisions": [],
    }


def test_rules_of_a_file_are_explained_at_any_time(run: Any, talk: Path, tmp_path: Path) -> None:
    rules = [{"maxAge": "90m", "keep": "all"}, {"maxAge": "inf", "keep": "none"}]
    path = config(tmp_path, {"ttl": {"enabled": True, "rules": rules}})
    args = ("context", "explain", talk, "--config", path, "--json")
    report = run(*args, "--now", "2025-10-09T08:53:20Z").json()
    assert report["nowMs"] == NOW
    assert outcomes(report) == ["left_out"] * 16 + ["kept"] * 4
    assert {m["layer"] for m in report["messages"][:16]} == {"ttl"}
    assert all(m["reason"] for m in report["messages"][:16])
    later = run(*args, "--now", NOW + HOUR).json()
    assert outcomes(later) == ["left_out"] * 18 + ["kept"] * 2
    sums = report["totals"]["byOutcome"]
    assert sums["left_out"]["messages"] == 16 == report["totals"]["byLayer"]["ttl"]["messages"]


def test_a_summary_that_is_not_made_yet_is_told_with_its_size(
    run: Any, talk: Path, tmp_path: Path, state: Path
) -> None:
    rules = [{"maxAge": "90m", "keep": "all"}, {"maxAge": "inf", "keep": "summary"}]
    path = config(tmp_path, {"ttl": {"enabled": True, "rules": rules}})
    args = ("context", "explain", talk, "--config", path, "--now", NOW)
    report = run(*args, "--json").json()
    assert outcomes(report) == ["summarised"] * 16 + ["added"] + ["kept"] * 4
    added = report["messages"][16]
    assert added["entryId"] is None
    assert added["tokens"] > 0
    assert "would be summarised" in report["notes"][0]
    assert list(state.rglob("*")) == []
    assert "would be summarised" in run(*args).out


def test_what_compactions_summarised_is_in_the_rows(run: Any, talk: Path) -> None:
    with SessionManager.open(talk) as session:
        path = session.path()
        compaction = session.append_compaction("They spoke.", path[10], 100)
    report = run("context", "explain", talk, "--now", NOW, "--json").json()
    assert [m["entryId"] for m in report["messages"]] == [*path, compaction]
    assert outcomes(report) == ["summarised"] * 10 + ["kept"] * 11
    assert report["totals"]["byLayer"]["compaction"]["messages"] == 10


def test_a_person_sees_neighbours_of_one_fate_on_one_line(
    run: Any, talk: Path, tmp_path: Path
) -> None:
    path = config(tmp_path, {"maxMessages": 2})
    args = ("context", "explain", talk, "--config", path, "--now", NOW)
    shown = run(*args).out
    lines = shown.splitlines()
    assert sum("left out" in line and "…" in line for line in lines) == 1
    assert "18 msgs" in shown
    assert "question 9" in shown
    assert "window " in shown
    everything = run(*args, "--all").out
    assert sum(" user " in line for line in everything.splitlines()) == 10
    assert "question 0" in everything
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(
    "page", [Page(width, has_signs) for width in (60, 80, 120) for has_signs in (True, False)]
)
def test_lines_fit_and_the_bar_fills_its_line(talk: Path, page: Page) -> None:
    with SessionManager.open(talk) as session:
        session.append_message({"role": "user", "content": "船を見た。" * 50, "timestamp": NOW})
        tokens, context = MessageTokens(HeuristicCounter()), session.build_context()
        explanation = explain(
            CleanPath(tokens).follow(context.items, 40).view,
            context,
            budget=resolve_budget(20_000, CompactionSettings(), system_tokens=500, max_tokens=3000),
            system_tokens=400,
            engine="legacy",
            tokens=tokens,
            find_whole=lambda: whole_path(session, context),
        )
        table = list(table_lines(explanation, page, everything=True))
        reasons, bar = list(reason_lines(explanation, page)), list(bar_lines(explanation, page))
    assert all(width(unstyle(line)) <= page.width for line in [*table, *reasons])
    assert any("too_large" in line for line in reasons)
    signs = unstyle(bar[1])
    assert (len(signs), signs.isascii()) == (min(100, page.width), not page.has_signs)
    assert [unstyle(line)[2:].split("  ")[0] for line in bar[2:]] == [
        *("system prompt", "tools", "kept", "shortened", "free", "beyond maxTokens", "reserve")
    ]


def test_where_signs_cannot_be_shown_there_are_letters(talk: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "strandline", "--state-dir", tmp_path, "context", "explain", talk],
        env={"PYTHONIOENCODING": "ascii", "HOME": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    shown = done.stdout.decode("ascii")
    assert "# kept" in shown
    assert "\\" not in shown


def test_a_session_of_the_store_is_explained_by_its_key(run: Any, talk: Path, state: Path) -> None:
    sessions = state / "agents" / "ops" / "sessions"
    sessions.mkdir(parents=True)
    shutil.copy(talk, sessions / "talk.jsonl")
    key = "agent:ops:telegram:group:7"
    row = {"sessionId": "talk", "sessionFile": "/elsewhere/talk.jsonl", "updatedAt": 1}
    (sessions / "sessions.json").write_text(json.dumps({key: row}))
    overrides = {"group": {"maxMessages": 4}}
    context = {"maxMessages": 12, "channelOverrides": overrides}
    agents = {"defaults": {"context": context}}
    (state / "strandline.json").write_text(json.dumps({"agents": agents}))
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    report = run("context", "explain", "--session-key", key, "--json").json()
    assert (report["sessionKey"], report["agent"]) == (key, "ops")
    assert outcomes(report).count("kept") == 4
    file = run("context", "explain", talk, "--agent", "ops", "--json").json()
    assert outcomes(file).count("kept") == 12
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before


PLUGIN = """
from strandline.context.engine import AssembleResult, ContextEngine, EngineInfo, Ingested

class Engine(ContextEngine):
    info = EngineInfo("mine", "Mine", owns_compaction=True)
    async def ingest(self, request): return Ingested(False)
    async def assemble(self, request):
        {assemble}
    async def compact(self, request): ...

def register(api):
    api.register_context_engine("mine", lambda context: Engine())
"""


def with_engine(state: Path, talk: Path, assemble: str) -> str:
    """Selects an engine, and gives the transcript a key."""
    folder = state.parent / "mine"
    folder.mkdir()
    (folder / "mine.py").write_text(PLUGIN.format(assemble=assemble))
    plugins = {
        "slots": {"contextEngine": "mine"},
        "load": {"paths": [str(folder)]},
        "entries": {"mine": {"enabled": True}},
    }
    (state / "strandline.json").write_text(json.dumps({"plugins": plugins}))
    sessions = state / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    shutil.copy(talk, sessions / "talk.jsonl")
    row = {"sessionId": "talk", "sessionFile": "talk.jsonl", "updatedAt": 1}
    (sessions / "sessions.json").write_text(json.dumps({"agent:main:main": row}))
    return "agent:main:main"


def test_an_engine_is_asked_what_it_would_choose(run: Any, talk: Path, state: Path) -> None:
    note = '{"role": "user", "content": "a note", "timestamp": 0}'
    key = with_engine(state, talk, f"return AssembleResult([{note}, *request.messages[-2:]], 10)")
    report = run("context", "explain", "--session-key", key, "--json").json()
    assert report["engine"] == "mine"
    assert sorted(outcomes(report)) == sorted(["left_out"] * 18 + ["added"] + ["kept"] * 2)
    assert {m["layer"] for m in report["messages"] if m["outcome"] != "kept"} == {"engine"}
    file = run("context", "explain", talk, "--json").json()
    assert file["engine"] == "legacy"
    assert "the rules alone" in file["notes"][0]
    assert outcomes(file) == ["kept"] * 20


def test_an_engine_that_breaks_is_the_error_and_the_rules_are_still_explained(
    run: Any, talk: Path, state: Path
) -> None:
    key = with_engine(state, talk, "raise ValueError('no')")
    ran = run("context", "explain", "--session-key", key)
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert all(word in ran.err for word in ("mine", "assemble", "no", "legacy"))
    assert not (state / "engine-health.json").exists()
    assert run("context", "explain", talk, "--json").code == 0


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ("runtime.rewrite_transcript_entries([Rewrite(first.entry_id, {})])", "nothing is written"),
        ("runtime.delegate_compaction(None)", "nothing is compacted"),
        ("runtime.llm.complete('What?')", "no model is asked"),
    ],
)
def test_an_engine_that_is_looked_at_changes_nothing_and_asks_no_model(
    run: Any, talk: Path, state: Path, wish: str, told: str
) -> None:
    key = with_engine(
        state,
        talk,
        f"""
        from strandline.context.engine import Rewrite
        from strandline.errors import StrandlineError
        runtime, first = request.runtime, request.messages[0]
        try:
            await {wish}
        except StrandlineError as refused:
            note = {{"role": "user", "content": str(refused), "timestamp": 0}}
        return AssembleResult([note, request.messages[-1]], 10)
    async def maintain(self, request): raise AssertionError
""",
    )
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    ran = run("context", "explain", "--session-key", key, "--all")
    assert ran.code == 0, ran.err
    assert told in ran.out
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before


def test_what_an_engine_prints_is_no_part_of_the_answer_and_it_is_given_back(
    run: Any, talk: Path, state: Path
) -> None:
    key = with_engine(
        state,
        talk,
        """
        print("assembling")
        return AssembleResult(request.messages, 10)
    async def dispose(self):
        print("over")
        raise ValueError("no way")
""",
    )
    ran = run("context", "explain", "--session-key", key, "--json")
    assert "failed in dispose (ValueError: no way)" in ran.json()["notes"][-1]
    assert ran.err == "assembling\nover\n"
    ran = run("doctor", "--json")
    assert ran.err.endswith("over\n")
    assert ran.json()["errors"] == 1


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "give a FILE or a --session-key"),
        (["FILE", "--session-key", "agent:main:main"], "give a FILE or a --session-key"),
        (["FILE", "--now", "yesterday"], "--now 'yesterday'"),
        (["FILE", "--model", "no/such"], "no model 'no/such' can be used here"),
        (["FILE", "--window", "1" * 400], "is not in the range"),
        (["FILE", "--config", "no-such-file"], "no-such-file cannot be read"),
        (["--session-key", ""], "give a FILE or a --session-key"),
        (["--session-key", "agent:main:main"], "agent main has no session agent:main:main"),
        (["--session-key", "agent:main:main", "--agent", "ops"], "is of agent main, not ops"),
        (["no-such-file"], "there is no transcript"),
    ],
)
def test_what_cannot_be_explained_is_told_in_one_line(
    run: Any, talk: Path, args: list[str], told: str
) -> None:
    ran = run("context", "explain", *[str(talk) if arg == "FILE" else arg for arg in args])
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert told in ran.err


@pytest.mark.parametrize(
    ("context", "told"),
    [
        ({"ttl": {"rules": [{"maxAge": "x", "keep": "all"}]}}, "ttl.rules[0].maxAge"),
        ({"maxMessages": -1}, "context.maxMessages"),
        ({"maxMesages": 1}, "did you mean 'maxMessages'?"),
    ],
)
def test_bad_rules_are_told_with_their_key(
    run: Any, talk: Path, tmp_path: Path, context: JsonObject, told: str
) -> None:
    ran = run("context", "explain", talk, "--config", config(tmp_path, context))
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err


def test_a_context_that_is_too_large_says_what_the_next_turn_does(run: Any, talk: Path) -> None:
    with SessionManager.open(talk) as session:
        for _ in range(5):
            session.append_message({"role": "user", "content": "word " * 900, "timestamp": NOW})
    report = run("context", "explain", talk, "--now", NOW, "--window", 8000, "--json").json()
    assert report["budget"]["free"] < 0
    assert report["notes"] == ["the context is larger than it may be: the next turn compacts first"]
    assert " tokens over the " in run("context", "explain", talk, "--window", 8000).out


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("file", ["large-session.jsonl", "before-compaction.jsonl"])
def test_each_example_explains_every_message_of_real_sessions(
    run: Any, shared: Path, tmp_path: Path, name: str, file: str
) -> None:
    path = shared / "fixtures" / "pi" / file
    before = path.stat().st_mtime_ns
    with SessionManager.open(path) as session:
        ids = [i for i in session.path() if session.entry(i).type in {"message", "compaction"}]
        newest_ms = max(
            m["timestamp"] for m in session.build_context().messages if "timestamp" in m
        )
    rules = config(tmp_path, EXAMPLES[name])
    report = run(
        "context", "explain", path, "--config", rules, "--now", int(newest_ms) + 60_000, "--json"
    ).json()
    messages = report["messages"]
    assert [m["entryId"] for m in messages if m["entryId"]] == ids
    assert all(m["reason"] for m in messages if m["outcome"] != "kept")
    sent = [m for m in messages if m["outcome"] in {"kept", "shortened", "added"}]
    assert sum(m["tokens"] for m in sent) == report["budget"]["used"]
    assert report["budget"]["used"] <= EXAMPLES[name]["maxTokens"]
    assert path.stat().st_mtime_ns == before


def test_every_session_of_an_openclaw_state_is_explained(
    run: Any, shared: Path, tmp_path: Path
) -> None:
    state = tmp_path / "openclaw"
    shutil.copytree(shared / "fixtures" / "openclaw-state", state)
    rows = json.loads((state / "agents" / "main" / "sessions" / "sessions.json").read_text())
    for key in rows:
        report = run(
            "--state-dir", state, "context", "explain", "--session-key", key, "--json"
        ).json()
        assert report["messages"]
        assert report["model"] == "fake/fake-1"
