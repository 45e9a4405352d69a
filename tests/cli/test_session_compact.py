"""``session compact`` and ``session branch --summarize``: on any transcript, with any model."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from strandline.manager import SessionManager
from strandline.testing import Reply, ScriptedModelServer

SUMMARY = "## Course of the conversation\nThey spoke of lanterns in harbour-7."


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """Ten turns with a model that nobody here can reach."""
    with SessionManager.create(session_dir=tmp_path, session_id="talk") as session:
        for n in range(10):
            said = {"role": "user", "content": f"{n}: " + "lantern harbour " * 200, "timestamp": n}
            session.append_message(said)
            answer = [{"type": "text", "text": f"berth-{n} is free"}]
            by = {"provider": "elsewhere", "model": "unknown", "stopReason": "stop"}
            session.append_message(
                {"role": "assistant", "content": answer, "timestamp": n, "usage": {}, **by}
            )
    return tmp_path / "talk.jsonl"


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(run: Any, talk: Path) -> None:
    before = talk.read_bytes(), talk.stat().st_mtime_ns
    plan = run("session", "compact", talk, "--dry-run", "--window", 8000, "--json").json()
    assert (plan["file"], plan["dryRun"], plan["contextWindow"]) == (str(talk), True, 8000)
    assert plan["tokensFreedAtLeast"] == plan["tokensBefore"] - plan["tokensAfterAtMost"] > 0
    assert plan["tokensAfterAtMost"] <= plan["budgetTokens"] < 8000
    assert plan["messagesSummarised"] + plan["messagesKept"] == 20
    assert plan["summarizer"] == "extractive"
    told = run("session", "compact", talk, "--dry-run", "--window", 8000)
    assert f"{plan['messagesSummarised']} messages would be summarised by extractive" in told.out
    assert (talk.read_bytes(), talk.stat().st_mtime_ns) == before
    assert [path.name for path in talk.parent.iterdir()] == ["talk.jsonl"]


def test_it_appends_one_entry_that_says_what_it_did(run: Any, talk: Path) -> None:
    before = talk.read_bytes()
    report = run("session", "compact", talk, "--offline", "--window", 8000, "--json").json()
    after = talk.read_bytes()
    assert after.startswith(before)
    [entry] = after[len(before) :].decode().splitlines()
    written = json.loads(entry)
    assert (written["type"], written["id"]) == ("compaction", report["entryId"])
    receipt = {key: report[key] for key in report.keys() - {"file", "dryRun", "entryId"}}
    assert written["details"]["receipt"] == receipt
    assert (report["trigger"], report["summarizer"]) == ("manual", "extractive")
    assert report["tokensFreed"] > 0
    assert "usage" not in report
    assert run("session", "verify", talk).code == 0


def test_a_person_reads_one_line(run: Any, talk: Path) -> None:
    ran = run("session", "compact", talk, "--window", 8000)
    assert (ran.code, ran.err, ran.out.count("\n")) == (0, "", 1)
    assert ran.out.startswith("🧹 Compacted: ")
    assert " freed, budget " in ran.out
    assert " messages summarised by extractive, " in ran.out


def test_a_model_that_is_named_summarises_with_the_instructions(
    run: Any, talk: Path, setup: Any
) -> None:
    with ScriptedModelServer(lambda _: Reply(SUMMARY)) as server:
        setup(server)
        report = run(
            "session", "compact", talk, "--model", "mine/two", "--instructions", "mind harbour-7",
            "--json",
        ).json()  # fmt: skip
        assert "mind harbour-7" in json.dumps(server.requests[0].body)
    assert report["summarizer"] == "mine/two"
    assert report["usage"]["totalTokens"] > 0
    assert report["audit"]["kept"] <= report["audit"]["named"]


def test_a_model_that_fails_is_told_of_and_the_summary_is_made_without(
    run: Any, talk: Path, setup: Any, state: Path
) -> None:
    with ScriptedModelServer(lambda _: Reply(status=401)) as server:
        setup(server)
        ran = run("session", "compact", talk, "--model", "mine/one", "--json")
    assert ran.json()["summarizer"] == "extractive"
    assert ran.err.startswith("mine/one did not summarise (answered HTTP 401")
    assert ran.err.endswith("; the offline summariser did\n")
    assert (state / "cooldowns.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--model", "mine/tow"], 2, "no model 'mine/tow' can be used here: "),
        (["--agent", "../x"], 2, "cannot be an agent id: "),
        (["--window", "10"], 2, "Invalid value for '--window'"),
        (["--window", "256"], 1, "nothing was compacted: "),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    run: Any, talk: Path, options: list[str], code: int, told: str
) -> None:
    before = talk.read_bytes()
    for more in ([], ["--dry-run"], ["--json"]):
        ran = run("session", "compact", talk, *options, *more)
        assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)
        assert told in ran.err
    assert talk.read_bytes() == before


def test_a_branch_takes_a_summary_of_what_is_left_along(run: Any, talk: Path, setup: Any) -> None:
    with SessionManager.open(talk) as session:
        first = session.path()[0]
    offline = run("session", "branch", talk, first, "--summarize", "--json").json()
    assert offline["entryId"] == first
    with SessionManager.open(talk) as session:
        session.branch(session.path()[0])
        entry = session.entry(offline["leafId"])
        assert entry.type == "branch_summary"
        assert entry.data["summary"]
    with ScriptedModelServer(lambda _: Reply(SUMMARY)) as server:
        setup(server)
        ran = run("session", "branch", talk, first, "--summarize", "--model", "mine/one")
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--summarize", "--summary", "x"], "not both"),
        (["--model", "mine/one"], "--model is for --summarize"),
        (["--summarize", "--model", "mine/one"], "no model 'mine/one'"),
    ],
)
def test_wrong_use_of_branch_is_told_and_changes_nothing(
    run: Any, talk: Path, options: list[str], told: str
) -> None:
    before = talk.read_bytes()
    with SessionManager.open(talk) as session:
        first = session.path()[0]
    ran = run("session", "branch", talk, first, *options)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert told in ran.err
    assert talk.read_bytes() == before


@pytest.mark.parametrize("name", ["before-compaction", "large-session"])
def test_real_sessions_are_planned_compacted_and_stay_clean(
    name: str, run: Any, shared: Path, tmp_path: Path
) -> None:
    file = tmp_path / f"{name}.jsonl"
    shutil.copyfile(shared / "fixtures/pi" / file.name, file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    plan = run("session", "compact", file, "--dry-run", "--json").json()
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    report = run("session", "compact", file, "--offline", "--json").json()
    assert report["tokensAfter"] <= plan["tokensAfterAtMost"]
    assert report["messagesSummarised"] == plan["messagesSummarised"]
    assert run("session", "verify", file).code == 0


def test_sessions_of_an_openclaw_state_are_undone_in_a_chat(
    run: Any, shared: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "openclaw"
    shutil.copytree(shared / "fixtures/openclaw-state", copy)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
    file = copy / "agents/main/sessions/demo1.jsonl"
    talk = ["--state-dir", copy, "chat", "--session-key", "agent:main:explicit:demo1"]
    before = run("session", "context", file, "--json").json()["messages"]
    assert run("--state-dir", copy, "session", "compact", file, "--offline").code == 0
    assert len(run("session", "context", file, "--json").json()["messages"]) < len(before)
    ran = run(*talk, input="/undo-compact\n")
    assert ran.code == 0
    assert run("session", "context", file, "--json").json()["messages"] == before
