"""What people and programs see of a turn: answers, tools, retries, compactions, silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.testing import RecordedRequest, Reply, ScriptedModelServer, ToolCall

APIS = ["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"]
SECRETS = ("sk-secret-of-the-test", "header-secret-of-the-test")


def served(*replies: Reply, **options: Any) -> ScriptedModelServer:
    return ScriptedModelServer(list(replies), **options)


@pytest.mark.parametrize("api", APIS)
def test_every_answer_of_a_turn_has_lines_of_its_own_and_tools_are_told_beside(
    api: str, run: Any, setup: Any, state: Path
) -> None:
    (state / "workspace").mkdir()
    (state / "workspace" / "note.txt").write_text("41")
    calls = [ToolCall("read", {"path": "note.txt"}), ToolCall("read", {"path": "no"}, "call_2")]
    with served(Reply("I look.", tool_calls=calls), Reply("It says 41.")) as server:
        setup(server, api=api)
        ran = run("agent", "-m", "What does it say?")
    assert (ran.code, ran.out) == (0, "I look.\nIt says 41.\n")
    assert ran.err.splitlines() == [
        "· read note.txt",
        "· read no",
        "· read failed: there is no 'no': see what is there with list",
    ]


@pytest.mark.parametrize("api", APIS)
def test_an_answer_that_is_taken_back_reaches_no_pipe(api: str, run: Any, setup: Any) -> None:
    broken = Reply("words that do not hold", chunk_chars=4, disconnect_after=4)
    for command, options in ((["agent", "-m", "Hello"], {}), (["chat"], {"input": "Hello\n"})):
        with served(broken, Reply("This holds.")) as server:
            setup(server, api=api)
            ran = run(*command, **options)
        assert (ran.code, ran.out) == (0, "This holds.\n")
        assert ran.err == "mine/one broke off the connection; asking mine/one again in 0.1 s\n"


def test_what_came_of_an_answer_that_failed_for_good_is_shown_and_told(
    run: Any, setup: Any
) -> None:
    broken = Reply("half of it", chunk_chars=4, disconnect_after=3)
    with ScriptedModelServer(lambda _: broken) as server:
        setup(server)
        ran = run("agent", "-m", "Hello")
    assert ran.code == 1
    assert "half of it".startswith(ran.out.strip())
    assert ran.err.splitlines()[-1].startswith("strandline: mine/one broke off the connection: ")


def test_a_fallback_says_so_and_the_report_names_it(run: Any, setup: Any) -> None:
    fallbacks = {"primary": "mine/one", "fallbacks": ["mine/two"]}
    for asked in ([], ["--json"]):
        with served(Reply(status=401), Reply("Here.")) as server:
            setup(server, model=fallbacks)
            ran = run("agent", "-m", "Hello", *asked)
        assert ran.code == 0
        if asked:
            assert (ran.json()["model"], ran.err) == ("mine/two", "")
        else:
            assert ran.err.endswith("; asking mine/two\n")


def test_the_report_counts_the_calls_of_a_turn(run: Any, setup: Any) -> None:
    call = ToolCall("list", {"path": "."})
    with served(Reply("", tool_calls=[call]), Reply("Nothing there.")) as server:
        setup(server)
        report = run("agent", "-m", "Look", "--json").json()
    assert report["modelCalls"] == 2
    assert report["reply"] == "Nothing there."
    assert (report["compactions"], report["compactionReceipts"]) == (0, [])


def test_a_receipt_says_what_was_freed_of_which_budget_by_whom_and_what_it_kept(
    run: Any, setup: Any
) -> None:
    with ScriptedModelServer(lambda _: Reply("## Course\nharbour lights " * 8)) as server:
        setup(server, window=8_000, compaction={"memoryFlush": {"enabled": False}})
        reports = [
            run("agent", "-m", f"{n}: " + "lantern harbour " * 800, "--json").json()
            for n in range(4)
        ]
    receipts = [receipt for report in reports for receipt in report["compactionReceipts"]]
    assert len(receipts) == sum(report["compactions"] for report in reports) > 0
    for receipt in receipts:
        assert receipt["tokensFreed"] == receipt["tokensBefore"] - receipt["tokensAfter"] > 0
        assert receipt["budgetTokens"] < 8_000
        assert receipt["trigger"] in {"threshold", "pre-send"}
        assert receipt["summarizer"] == "mine/one"
        assert receipt["usage"]["totalTokens"] > 0
        assert set(receipt["audit"]) == {"named", "kept", "missing"}


def test_compactions_are_told_with_their_count(run: Any, setup: Any) -> None:
    with ScriptedModelServer(lambda _: Reply("## Course\nharbour lights")) as server:
        setup(server, window=8_000, compaction={"memoryFlush": {"enabled": False}})
        lines = "\n".join(f"{n}: " + "lantern harbour " * 800 for n in range(7))
        ran = run("chat", input=lines)
    told = [line for line in ran.err.splitlines() if "Auto-compaction complete" in line]
    assert [f"(count {n + 1})" in line for n, line in enumerate(told)] == [True] * len(told)
    assert len(told) > 1
    assert all(" freed, budget " in line and "by mine/one" in line for line in told)


@pytest.mark.parametrize("reply", ["NO_REPLY", "no_reply.", '{"reply": "NO_REPLY"}'])
def test_a_silent_reply_prints_nothing(reply: str, run: Any, setup: Any) -> None:
    with ScriptedModelServer(lambda _: Reply(reply, chunk_chars=3)) as server:
        setup(server)
        assert run("agent", "-m", "Hello") == (0, "", "")
        assert run("agent", "-m", "Hello", "--json").json()["reply"] == ""
        assert run("chat", input="Hello\nHello\n") == (0, "", "")


def test_an_answer_cannot_steer_the_terminal(run: Any, setup: Any) -> None:
    with served(Reply("a\x1b[31mred\x1b]0;title\x07\x08 end\r\n", chunk_chars=3)) as server:
        setup(server)
        ran = run("agent", "-m", "Hello")
    assert ran.out == "ared␈ end\n"


def test_long_arguments_are_cut_and_a_note_is_told_by_its_text(
    run: Any, setup: Any, state: Path
) -> None:
    note = ToolCall("memory_write", {"note": "berth\n" + "seven " * 300})
    odd = ToolCall("no\x1b[2Jtool", json.dumps({"x": "y" * 5000}), "call_2")
    with served(Reply("", tool_calls=[note, odd]), Reply("Noted.")) as server:
        setup(server)
        ran = run("agent", "-m", "Note it")
    assert ran.out == "Noted.\n"
    lines = ran.err.splitlines()
    assert lines[0].startswith("· memory_write berth seven seven")
    assert all(len(line) <= 120 and "\x1b" not in line for line in lines)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_no_error_of_a_provider_tells_a_secret(
    api: str, status: int, run: Any, setup: Any, state: Path
) -> None:
    error = {"type": "error", "error": {"message": f"bad: {SECRETS}", "status": "X", "code": 1}}
    with ScriptedModelServer(lambda _: Reply(status=status, error=error)) as server:
        setup(server, api=api)
        ran = run("agent", "-m", "Hello")
    assert ran.code == 1
    assert ran.err.splitlines()[-1].startswith("strandline: mine/one answered HTTP ")
    written = "".join(path.read_text() for path in (state / "agents").rglob("*.json*"))
    assert not any(secret in ran.out + ran.err + written for secret in SECRETS)


def test_bytes_that_are_no_text_are_said_as_far_as_they_go(run: Any, setup: Any) -> None:
    said: list[str] = []

    def heard(request: RecordedRequest) -> Reply:
        said.append(json.dumps(request.body, ensure_ascii=False))
        return Reply("Yes.")

    with ScriptedModelServer(heard) as server:
        setup(server)
        assert run("agent", "-m", "-", input=b"\xff ahoy\n").code == 0
        assert run("chat", input=b"\xfe ahoy").out == "Yes.\n"
    assert all("\ufffd ahoy" in each for each in said)
