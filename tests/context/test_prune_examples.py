"""The three configurations of the format's documentation, on a day of conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import pytest

from strandline.context.clean_path import CleanPath
from strandline.context.policy import AgeRule, ContextPolicy, LayerSummaries
from strandline.context.prune import LayerSummary, Moment, Pruned, prune
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.transcript.context import PathMessage

NOW_MS = 1_700_000_000_000
MINUTE, HOUR = 60_000, 3_600_000
TOKENS = MessageTokens(HeuristicCounter())

ASSISTANT = ContextPolicy(
    max_messages=100,
    max_tokens=32_000,
    ttl=(
        AgeRule(30 * MINUTE, "all"),
        AgeRule(4 * HOUR, 30),
        AgeRule(24 * HOUR, "summary"),
        AgeRule(None, "none"),
    ),
    summaries=LayerSummaries(max_tokens=1024),
)
SERVICE = ContextPolicy(
    max_messages=30,
    max_tokens=8000,
    ttl=(AgeRule(10 * MINUTE, "all"), AgeRule(HOUR, 10), AgeRule(None, "none")),
)
GROUP = ContextPolicy(
    max_messages=15,
    max_tokens=4000,
    ttl=(AgeRule(5 * MINUTE, "all"), AgeRule(30 * MINUTE, 5), AgeRule(None, "none")),
)


def talk(gap_ms: int, count: int, words: int = 20) -> list[PathMessage]:
    """Messages of `words` + 4 tokens, turn about, the newest said now by a person."""
    said = []
    for number in range(count):
        text = {"type": "text", "text": "abc " * words}
        role = "user" if (count - number) % 2 else "assistant"
        message = {
            "role": role,
            "content": [text],
            "timestamp": NOW_MS - (count - 1 - number) * gap_ms,
        }
        said.append(PathMessage(f"m{number}", message))
    return said


def pruned(items: Sequence[PathMessage], policy: ContextPolicy, *made: LayerSummary) -> Pruned:
    clean = CleanPath(MessageTokens(HeuristicCounter())).follow(items, 1 << 16)
    return prune(clean, policy, Moment(NOW_MS, 100_000, summaries=made), TOKENS)


def left_out(result: Pruned) -> dict[str, int]:
    return dict(Counter(said.decisions[-1].rule for said in result.view.left_out))


@pytest.mark.parametrize(
    ("policy", "gap_ms", "words", "kept", "out"),
    [
        # Chatting: the newest by number.
        (ASSISTANT, 10_000, 20, 100, {"maxMessages: 100": 400}),
        (SERVICE, 10_000, 20, 30, {"maxMessages: 30": 470}),
        (GROUP, 10_000, 20, 15, {"maxMessages: 15": 485}),
        # Long messages: the newest by tokens.
        (ASSISTANT, 10_000, 396, 80, {"maxMessages: 100": 400, "maxTokens: 32000": 20}),
        (SERVICE, 10_000, 396, 20, {"maxMessages: 30": 470, "maxTokens: 8000": 10}),
        (GROUP, 10_000, 396, 10, {"maxMessages: 15": 485, "maxTokens: 4000": 5}),
        # A message a minute or in four: the windows.
        (
            SERVICE,
            2 * MINUTE,
            20,
            6 + 10,
            {"maxMessages: 30": 470, "maxAge 1h keep 10": 14},
        ),
        (
            GROUP,
            4 * MINUTE,
            20,
            2 + 5,
            {"maxMessages: 15": 485, "maxAge 30m keep 5": 1, "maxAge inf keep none": 7},
        ),
    ],
)
def test_the_examples_keep_what_they_say(
    policy: ContextPolicy, gap_ms: int, words: int, kept: int, out: dict[str, int]
) -> None:
    result = pruned(talk(gap_ms, 500, words), policy)
    assert len(result.view.messages) == kept
    assert left_out(result) == out


def test_the_personal_assistant_summarises_what_is_four_hours_to_a_day_old() -> None:
    path = talk(20 * MINUTE, 99)  # of 33 hours
    waiting = pruned(path, ASSISTANT)
    assert waiting.wanted is not None
    assert len(waiting.wanted.covers) == 60  # 4 h 20 m to 24 h
    assert left_out(waiting) == {"maxAge inf keep none": 26}
    made = LayerSummary(waiting.wanted.covers, "told", "extractive", NOW_MS, waiting.wanted.rules)
    result = pruned(path, ASSISTANT, made)
    assert [
        (key, len([*all_])) for key, all_ in groupby(s.outcome for s in result.view.messages)
    ] == [
        ("added", 1),
        ("kept", 13),
    ]
    assert left_out(result) == {"maxAge inf keep none": 26, "summary": 60}
    assert result.wanted is None
