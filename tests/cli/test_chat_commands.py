"""The slash commands of a chat, each as a person types it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.chat_commands import COMMANDS
from strandline.testing import RecordedRequest, Reply, ScriptedModelServer


@pytest.fixture
def server() -> Iterator[ScriptedModelServer]:
    def answer(request: RecordedRequest) -> Reply:
        if "Write the summary now." in json.dumps(request.body):
            return Reply("## Course of the conversation\nThey spoke of lanterns.")
        return Reply(f"heard {len(request.body['messages'])}")

    with ScriptedModelServer(answer) as up:
        yield up


@pytest.fixture
def chat(run: Any, setup: Any, server: ScriptedModelServer) -> Any:
    """Runs a chat of some lines."""
    setup(server)
    return lambda *lines, **options: run("chat", input="\n".join(lines), **options)


LONG = "lantern harbour " * 300


def test_compacting_is_told_and_undone(chat: Any) -> None:
    ran = chat(LONG, LONG, "/compact mind the ships", "/undo-compact", "after", "/undo-compact")
    assert ran.code == 1, "there is no second compaction to undo"
    started, receipt, undone, hint, error = ran.err.splitlines()
    assert started == "🧹 Compacting (manual) …"
    assert receipt.startswith("🧹 Compacted: ")
    assert " freed, budget " in receipt
    assert "by mine/one, 2 kept" in receipt
    assert undone.startswith("the conversation is in full again, without ")
    assert hint == "/compaction off keeps it from being compacted again"
    assert error.startswith("strandline: there is no compaction on this branch to undo: ")
    assert ran.out.splitlines() == ["heard 2", "heard 4", "heard 6"]


def test_undoing_takes_what_was_said_since_along(chat: Any) -> None:
    ran = chat(LONG, LONG, "/compact", "after", "/undo-compact", "and on")
    assert ran.out.splitlines() == ["heard 2", "heard 4", "heard 5", "heard 8"]
    assert "; 2 messages after it came along\n" in ran.err


def test_a_preview_changes_nothing(chat: Any, state: Path, server: ScriptedModelServer) -> None:
    chat(LONG, LONG)
    [transcript] = (state / "agents/main/sessions").glob("*.jsonl")
    before, asked = transcript.read_bytes(), len(server.requests)
    ran = chat("/compact --preview the ships", "/compact --preview")
    assert ran.code == 0
    assert ran.err == ""
    first, second, *_ = ran.out.splitlines()
    assert " freed, budget " in first
    assert " would be summarised by mine/one; " in second
    assert (transcript.read_bytes(), len(server.requests)) == (before, asked)


def test_nothing_to_compact_is_told_with_the_reason(chat: Any) -> None:
    ran = chat("hello", "/compact", "/compact --preview")
    assert (ran.code, ran.out) == (1, "heard 2\n")
    assert all(line.startswith("strandline: nothing was comp") for line in ran.err.splitlines())
    assert len(ran.err.splitlines()) == 2


def test_the_mode_of_compaction_is_kept_with_the_session(chat: Any) -> None:
    ran = chat("/compaction", "/compaction off", "/compaction", "/compaction perhaps")
    assert ran.err.splitlines() == [
        "compaction is auto here",
        "compaction is off here from now on",
        "compaction is off here",
        "strandline: 'perhaps' is no mode of compaction: say auto, off, error or default",
    ]
    ran = chat("/compaction", "/compaction default", "/compaction")
    assert ran.err.splitlines()[0] == "compaction is off here"
    assert ran.err.splitlines()[-1] == "compaction is auto here"


def test_branches_are_listed_entered_and_summarised(chat: Any) -> None:
    ran = chat("one", "/label start", "two", "/branch start", "three", "/branch", "/tree")
    tips = [line for line in ran.out.splitlines() if "assistant: heard 4" in line]
    assert len(tips) == 4, "the two tips, in both lists"
    assert [line[0] for line in tips[:2]] == [" ", "»"]
    ran = chat("/branch start --summary mind the ships", "/branch start --summary")
    assert ran.code == 0
    assert "a summary of what is left, by " in ran.err
    assert "standing at " in ran.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/branch zz", "/tree shows ids and labels"),
        ("/branch --summary", "no entry is named: say /branch ENTRY --summary"),
        ("/model mine/tow", "'mine/tow'"),
        ("/new mine/tow", "'mine/tow'"),
        ("/think deeply", "say one of off, minimal, low, medium, high, xhigh"),
        ("/verbose perhaps", "say /verbose on or off"),
        ("/label zzzz pin", "there is no entry 'zzzz': /tree shows their ids"),
        ("/spawn --frok it", "/spawn does not know '--frok': say /spawn [--fork] TASK"),
        ("/retry", "has its answer: say something new"),
        ("/undo-compact", "there is no compaction"),
        ("/nope", "/help lists them"),
    ],
)
def test_what_cannot_be_done_is_one_line_with_the_remedy(chat: Any, line: str, told: str) -> None:
    ran = chat("one", line, "two")
    assert ran.code == 1
    assert ran.out.splitlines() == ["heard 2", "heard 4"], "and nothing has changed"
    assert ran.err.startswith("strandline: ")
    assert told in ran.err
    assert ran.err.count("\n") == 1


def test_a_label_goes_to_the_newest_message_or_to_the_entry_whose_id_is_given(
    chat: Any, state: Path
) -> None:
    """Not to a label entry before it, and not to an entry that a short word happens to name."""
    chat("one", "/label first", "/label pin")
    [transcript] = (state / "agents/main/sessions").glob("*.jsonl")
    entries = [json.loads(line) for line in transcript.read_text().splitlines()]
    said, answered = [each["id"] for each in entries if each["type"] == "message"]
    labels = [each["targetId"] for each in entries if each["type"] == "label"]
    assert labels == [answered, answered]
    ran = chat(f"/label {said[:4]} pin", f"/label {said[:1]} quiet word", "/label pin the budget")
    assert ran.err.splitlines() == [
        f"{said} is now 'pin'",
        f"{answered} is now '{said[:1]} quiet word'",
        f"{answered} is now 'pin the budget'",
    ]


def test_thinking_is_asked_for_and_a_model_that_cannot_is_told(
    chat: Any, server: ScriptedModelServer
) -> None:
    ran = chat("/think", "/think high", "one", "/model mine/two", "/think low")
    assert ran.err.splitlines() == [
        "thinking is off here",
        "thinking is high here",
        "mine/two answers from here on",
        "thinking is low here; this model cannot",
    ]
    assert server.requests[-1].body["reasoning_effort"] == "high"


def test_what_got_no_answer_is_answered_without_saying_it_again(
    chat: Any, server: ScriptedModelServer
) -> None:
    answer, server.script = server.script, [Reply(status=401)]
    failed = chat("one")
    assert (failed.code, failed.out) == (1, "")
    server.script = answer
    assert chat("/retry", "two").out.splitlines() == ["heard 2", "heard 4"]


def test_tools_are_listed_each_in_a_sentence(run: Any, setup: Any, chat: Any) -> None:
    listed = chat("/tools")
    assert listed.err == ""
    names = [line.split()[0] for line in listed.out.splitlines() if line[0] != " "]
    assert names == [
        "edit", "list", "memory_search", "memory_write", "read", "search", "write"
    ]  # fmt: skip
    assert all(len(line) <= 120 for line in listed.out.splitlines())
    with ScriptedModelServer([]) as server:
        setup(server, workspaceAccess="none")
        assert run("chat", input="/tools").err == "mine/one is offered no tools here\n"


def test_verbose_off_is_remembered_by_the_session(chat: Any) -> None:
    ran = chat("/verbose", "/verbose off", "/verbose", LONG, LONG, "/compact")
    told, *later = ran.err.splitlines()
    assert told == "tools and compactions are told"
    assert later[:2] == ["tools and compactions are not told"] * 2
    assert "🧹 Compacted: " in later[-1], "it was asked for"
    again = chat("/verbose", "/verbose on")
    assert again.err.splitlines() == [
        "tools and compactions are not told",
        "tools and compactions are told",
    ]


def test_a_new_conversation_may_have_another_model(run: Any, chat: Any) -> None:
    ran = chat("one", "/new mine/two", "/status", "two", "/new", "/status")
    assert "new conversation: agent:main:tui-" in ran.err
    models = [line for line in ran.out.splitlines() if line.startswith("model ")]
    assert [line.split()[1] for line in models] == ["mine/two", "mine/two"]
    assert run("sessions", "--json").json()["totalCount"] == 3


def test_help_tells_every_command_within_the_width(chat: Any) -> None:
    lines = chat("/help").out.splitlines()
    for command in COMMANDS:
        assert any(line.startswith(f"{command.name} ") for line in lines)
    assert all(len(line) <= 120 for line in lines)


def test_quitting_ends_the_chat_where_it_stands(chat: Any) -> None:
    ran = chat("one", "/quit", "two")
    assert (ran.code, ran.out) == (0, "heard 2\n")
