"""What a turn tells, in the order and words in which people are shown it."""

from __future__ import annotations

from typing import Any

from strandline.cli.telling import Telling
from strandline.runtime.events import (
    AnswerKept,
    AskedAgain,
    CompactionReceipt,
    CompactionStarted,
    MemoryFlushed,
    Notice,
    ReplyDiscarded,
    ReplyText,
    ThinkingText,
    ToolFinished,
    ToolStarted,
)


class Paper:
    """A screen that keeps what it is shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def reply(self, text: str) -> None:
        self.shown.append(f"> {text}")

    def end_reply(self) -> None:
        if self.shown and self.shown[-1].startswith("> "):
            self.shown.append("<")

    def discard_reply(self) -> None:
        self.shown.append("void")

    def status(self, text: str) -> None:
        self.shown.append(text)


def receipt(entry_id: str, trigger: Any = "threshold") -> CompactionReceipt:
    return CompactionReceipt(trigger, entry_id, 90, 30, 1, 2000, 60, "mine/one")


def shown(*events: Any, verbose: bool = True, noted: Any = lambda: ("s", 4)) -> list[str]:
    paper = Paper()
    telling = Telling(paper, noted, verbose=verbose)
    for event in events:
        telling.hear(event)
    telling.end()
    return paper.shown


def test_upkeep_that_ends_within_an_answer_is_told_behind_it() -> None:
    told = shown(ReplyText("one "), Notice("beside"), ReplyText("two"), AnswerKept({}, "e"))
    assert told == ["> one ", "> two", "<", "beside"]


def test_what_was_held_is_told_even_if_the_answer_is_never_kept() -> None:
    assert shown(ReplyText("one "), Notice("beside")) == ["> one ", "<", "beside"]
    assert shown(ReplyText("one "), Notice("beside"), ReplyDiscarded()) == [
        "> one ",
        "void",
        "beside",
    ]


def test_that_it_is_asked_again_is_told_at_once() -> None:
    told = shown(
        ReplyText("one "),
        ReplyDiscarded(),
        AskedAgain("mine/one", "mine/one broke off", 1500),
        AskedAgain("mine/one", "mine/one broke off", 3),
        AskedAgain("mine/two", "mine/one broke off", 0),
    )
    assert told == [
        "> one ",
        "void",
        "mine/one broke off; asking mine/one again in 1.5 s",
        "mine/one broke off; asking mine/one again in 0.1 s",
        "mine/one broke off; asking mine/two",
    ]


def test_a_compaction_that_two_wait_for_is_told_once() -> None:
    started, done = CompactionStarted("threshold"), receipt("c1")
    freed = "90 → 30 tokens (60 freed, budget 60), 1 message summarised by mine/one, 2,000 kept"
    told = shown(started, started, done, done, started, receipt("c2"))
    assert told == [
        "🧹 Compacting (threshold) …",
        f"🧹 Auto-compaction complete (count 5): {freed}",
        "🧹 Compacting (threshold) …",
        f"🧹 Auto-compaction complete (count 6): {freed}",
    ]
    refused = Notice("not compacted (threshold): it was stopped")
    assert shown(started, started, refused, refused, started) == [
        "🧹 Compacting (threshold) …",
        "not compacted (threshold): it was stopped",
        "🧹 Compacting (threshold) …",
    ]


def test_the_count_begins_anew_with_another_session() -> None:
    sessions = iter([("a", 7), ("a", 7), ("b", 0)])
    told = shown(receipt("c1"), receipt("c2"), receipt("c3"), noted=lambda: next(sessions))
    assert [line.partition(":")[0][-2:] for line in told] == ["8)", "9)", "1)"]


def test_a_compaction_that_was_asked_for_has_no_count() -> None:
    assert shown(receipt("c1", "manual"))[0].startswith("🧹 Compacted: 90 → 30 tokens")


def test_without_verbose_only_what_a_person_should_know_is_told() -> None:
    failed = {"content": [{"type": "text", "text": "no such file"}]}
    events = [
        ThinkingText("hm"),
        ToolStarted("t1", "read", {"path": "a"}),
        ToolFinished("t1", "read", True, failed),
        CompactionStarted("threshold"),
        receipt("c1"),
        MemoryFlushed(2, None),
        MemoryFlushed(0, None),
        Notice("mine/one is not asked"),
    ]
    assert shown(*events, verbose=False) == ["mine/one is not asked"]
    told = shown(*events)
    assert told[:2] == ["· read a", "· read failed: no such file"]
    assert told[-2:] == ["· memory: 2 notes written", "mine/one is not asked"]


def test_what_nobody_waits_for_any_more_is_not_told() -> None:
    paper = Paper()
    telling = Telling(paper, lambda: ("s", 0))
    telling.no_more()
    telling.hear(Notice("not compacted (threshold): it was stopped"))
    assert paper.shown == []
