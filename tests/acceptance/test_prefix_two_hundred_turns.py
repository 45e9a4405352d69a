"""Each request begins with the bytes of the one before, whatever happens between the two.

A conversation of days with tools that write into the files of which the system prompt is made,
with restarts, heartbeats, other models, thinking, and a window that is too small: its requests
are compared as they were on the wire. Where one does not begin like the last one to that model,
there is a decision that says why: a compaction, a cache that was lost anyway, thinking that
was switched, a rule of the operator's. Source: spec 3, Caches; faults K1 to K12, G9.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from strandline.context.clean_path import CleanPath
from strandline.context.policy import ContextPolicy, ToolResultPruning
from strandline.context.prune import Moment, prune
from strandline.context.prune.trimming import steady
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.manager import SessionManager
from strandline.testing import Reply, ToolCall

APIS = ["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"]
MINUTE_MS = 60_000
LIFETIME_MS = 5 * MINUTE_MS
KEY = "agent:main:main"
FLUSH = "Write down what lasts of this."
PAUSES_MS = [20_000, 60_000, 90_000, 4 * MINUTE_MS, 10_000, 6 * MINUTE_MS, 150_000, 30_000]
SMALL = 40_000
"""A window that is compacted every thirty turns or so."""


def tool_replies(number: int) -> list[Reply]:
    """What the model does in a turn before it answers: it changes what prompts are made of."""
    calls = {
        0: [ToolCall("read", {"path": "AGENTS.md"}, f"call_{number}")],
        2: [ToolCall("memory_write", {"note": f"Lantern {number} is lit."}, f"call_{number}")],
        4: [ToolCall("write", {"path": "log.md", "text": f"{number}"}, f"call_{number}")],
        5: [
            ToolCall("list", {"path": "."}, f"call_{number}a"),
            ToolCall("memory_search", {"query": "lantern"}, f"call_{number}b"),
        ],
    }.get(number % 7)
    return [Reply("I look.", tool_calls=calls)] if calls else []


async def live(talk: Any, turns: int, *, hours: bool = True) -> None:
    """Have a conversation of so many turns."""
    agents = talk.workspace / "AGENTS.md"
    agents.write_text("# House rules\n" + "Keep the lanterns lit. " * 300)
    pauses = itertools.cycle(PAUSES_MS)
    for number in range(turns):
        await change_something(talk, number)
        thinking = "Which lantern?" if talk.level != "off" else ""
        answer = Reply(f"Lantern {number} burns. " * 30, thinking=thinking, chunk_chars=4_000)
        await talk.say(f"Turn {number}: how are they?", *tool_replies(number), answer)
        if number % 3 == 0:
            agents.write_text(f"# House rules {number}\n" + "Keep the lanterns lit. " * 300)
        pause_ms = next(pauses)
        if hours and number % 45 == 44:
            pause_ms = 9 * 60 * MINUTE_MS
        talk.clock.advance(pause_ms)


async def change_something(talk: Any, number: int) -> None:
    """Before a turn."""
    if number % 20 == 13:
        await talk.restart()
    if number % 31 == 11:
        await talk.think("high")
    if number % 31 == 17:
        await talk.think("off")
    if number % 37 == 21:
        await talk.use(1)
    if number % 37 == 24:
        await talk.use(0)
    if number % 5 == 3:
        await talk.say("[heartbeat]", Reply("NO_REPLY"), heartbeat=True)
        talk.clock.advance(45_000)


def pairs(calls: list[Any]) -> list[tuple[Any, Any]]:
    """Each call with the one before it of the same model."""
    last: dict[str, Any] = {}
    found = []
    for call in calls:
        if call.model in last:
            found.append((last[call.model], call))
        last[call.model] = call
    return found


def in_one_process(calls: list[Any]) -> list[tuple[Any, Any]]:
    """Each call with the one before it, where both are known to one process and of one model."""
    return [
        (before, now)
        for before, now in itertools.pairwise(calls)
        if (before.opened, before.model) == (now.opened, now.model)
    ]


def begins_like(before: Any, now: Any) -> bool:
    """Whether the messages of `before` begin those of `now`; a newest one may be added to."""
    was, said = before.prompt.messages, now.prompt.messages
    last = was[-1].rstrip("]}")
    return (
        said[: len(was) - 1] == was[:-1]
        and len(said) >= len(was)
        and said[len(was) - 1].startswith(last)
    )


def is_compacted(before: Any, now: Any) -> bool:
    return bool(now.cuts > before.cuts)


def excuses(api: str, before: Any, now: Any) -> set[str]:
    """The parts of the prompt that may have changed, each for a reason that is recorded."""
    parts = set()
    if is_compacted(before, now):
        parts |= {"system", "messages"}
    if now.opened > before.opened and now.at_ms - before.at_ms > LIFETIME_MS:
        parts.add("system")
    if api == "anthropic-messages" and now.level != before.level:
        parts.add("messages")
    return parts


def changed(before: Any, now: Any) -> set[str]:
    parts = {"tools"} if before.prompt.tools != now.prompt.tools else set()
    if before.prompt.system != now.prompt.system:
        parts.add("system")
    if not begins_like(before, now):
        parts.add("messages")
    return parts


@pytest.mark.parametrize(
    ("api", "turns"), [(api, 200 if api == "anthropic-messages" else 45) for api in APIS]
)
async def test_prompts_begin_with_the_bytes_of_the_last_ones(
    api: str, turns: int, talk_for: Callable[..., Any]
) -> None:
    flush = {"enabled": True, "prompt": FLUSH, "softThresholdTokens": 2_000}
    talk = talk_for(api, SMALL, compaction={"memoryFlush": flush})
    await live(talk, turns)
    await talk.talk.close()
    assert len(talk.calls) > turns * 1.5
    assert len(talk.receipts) >= turns // 30
    assert talk.flush_calls
    assert talk.server.refused == []
    for before, now in pairs(talk.calls):
        assert changed(before, now) <= excuses(api, before, now)
    for before, now in in_one_process(talk.calls):
        if now.level == before.level:
            assert bool(changed(before, now)) == (now.used.change is not None)
    written = [entry.id for entry in talk.state().registry("main").open(KEY).session.entries()]
    assert {receipt.entry_id for receipt in talk.receipts} <= set(written)


# -- the operator's rules --------------------------------------------------------------------

HOURS = [{"maxAge": "30m", "keep": "all"}, {"maxAge": "4h", "keep": 30}]
POLICIES: dict[str, dict[str, Any]] = {
    "personal": {
        "maxMessages": 100,
        "maxTokens": 32_000,
        "ttl": {
            "enabled": True,
            "rules": [
                *HOURS,
                {"maxAge": "24h", "keep": "summary"},
                {"maxAge": "inf", "keep": "none"},
            ],
        },
        "compaction": {"enabled": True, "summaryMaxTokens": 1024},
    },
    "service": {
        "maxMessages": 30,
        "maxTokens": 8_000,
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
        "maxTokens": 4_000,
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
"""The three of the format's documentation."""
TRIMMED = {"mode": "cache-ttl", "minPrunableToolChars": 10_000}
AWARE = {"cacheAware": {"enabled": True}}
OWN: dict[str, dict[str, Any]] = {
    **{name: {"context": rules} for name, rules in POLICIES.items()},
    **{f"{name}, aware": {"context": {**rules, **AWARE}} for name, rules in POLICIES.items()},
    "limits, aware": {"context": {"maxMessages": 20, "maxTokens": 6_000, **AWARE}},
    "trimmed": {"contextPruning": TRIMMED},
    "trimmed, aware": {"contextPruning": TRIMMED, "context": {"maxMessages": 40, **AWARE}},
}


LIMIT, AGE = "which are all that fit within", "of messages"


async def live_by_rules(talk: Any, *, restarts: bool) -> None:
    """A conversation that reads a book again and again, and rests for some hours."""
    (talk.workspace / "book.md").write_text("The lantern of the harbour. " * 500)
    for number in range(26):
        if restarts and number % 9 in {4, 6}:
            await talk.restart()
        if number % 4 == 3:
            await talk.say("[heartbeat]", Reply("NO_REPLY"), heartbeat=True)
        book = ToolCall("read", {"path": "book.md"}, f"call_{number}")
        calls = [Reply("I look.", tool_calls=[book])] * (number % 3 == 0)
        await talk.say(f"Turn {number}?", *calls, Reply(f"Lantern {number} burns. " * 20))
        talk.clock.advance(PAUSES_MS[number % 8] + (5 * 60 * MINUTE_MS) * (number == 20))
    await talk.talk.close()


@pytest.mark.parametrize("rules", OWN)
async def test_where_rules_move_a_cut_the_decision_that_moved_it_is_told(
    rules: str, talk_for: Callable[..., Any]
) -> None:
    talk = talk_for("anthropic-messages", 64_000, **OWN[rules])
    await live_by_rules(talk, restarts=False)
    reasons = []
    for before, now in itertools.pairwise(talk.calls):
        change = now.used.change
        assert changed(before, now) == (set() if change is None else {"messages"})
        if change is None:
            continue
        assert change.part == "message"
        assert change.why in now.used.why or not now.used.why
        reasons.append((now.at_ms - before.at_ms > LIFETIME_MS, change.why))
    assert reasons
    assert all(is_a_rule(why) or (cold and "is in it again" in why) for cold, why in reasons)
    if "aware" in rules:
        assert all(cold or LIMIT in why or AGE in why for cold, why in reasons)
    if rules in {"limits, aware", "trimmed, aware"}:
        assert all(cold or LIMIT in why for cold, why in reasons), "a low-water move"
    if rules == "trimmed":
        assert all(cold for cold, _ in reasons), "trimmed where the cache is lost anyway"


def is_a_rule(why: str) -> bool:
    """Whether the reason is a layer's, or that of trimmed results."""
    known = [LIMIT, AGE, "it is older than", "it is told in the summary of", "an old result of"]
    return any(each in why for each in known)


FOLDED = [name for name in OWN if "aware" in name or name == "trimmed"]


@pytest.mark.parametrize(("rules", "factor"), [*((n, 1.0) for n in FOLDED), ("trimmed", 1.25)])
async def test_restarts_change_nothing_of_what_the_rules_make(
    rules: str, factor: float, talk_for: Callable[..., Any]
) -> None:
    """K6, K11: what was pruned stays so, with the same bytes, in whatever process."""
    prompts = []
    for restarts in (False, True):
        talk = talk_for("anthropic-messages", 64_000, factor, **OWN[rules])
        await live_by_rules(talk, restarts=restarts)
        prompts.append([call.prompt for call in talk.calls])
    assert prompts[0] == prompts[1]


def test_what_was_trimmed_stays_so_when_the_limit_moves_a_little() -> None:
    """K6: the limit follows the provider's newest report; a call of the past keeps its own."""
    tokens = MessageTokens(HeuristicCounter())
    session = SessionManager.in_memory()
    for number in range(8):
        name = {"toolCallId": f"c{number}", "toolName": "read", "isError": False}
        call = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {}}
        for role, content, more in (
            ("user", [{"type": "text", "text": "Go on."}], {}),
            ("assistant", [call], {"contextLimit": 12_000}),
            ("toolResult", [{"type": "text", "text": "lantern " * 450}], name),
        ):
            said = {"role": role, "content": content, "timestamp": 2 * LIFETIME_MS * number, **more}
            session.append_message(said)
    results = ToolResultPruning("cache-ttl", min_prunable_chars=1_000)
    policy = ContextPolicy(tool_results=results)
    clean = CleanPath(tokens).follow(session.build_context().items, 1 << 20)
    now_ms = 14 * LIFETIME_MS + 1_000
    line = next(n for n in itertools.count(2 * clean.tokens_to[-4]) if steady(n) != steady(n - 1))
    prunings = [prune(clean, policy, Moment(now_ms, limit), tokens) for limit in (line - 1, line)]
    texts = [[said.message["content"] for said in each.view.messages] for each in prunings]
    assert texts[0] == texts[1]


async def test_cuts_that_know_the_cache_move_seldom(talk_for: Callable[..., Any]) -> None:
    moves = {}
    for aware in (False, True):
        rules = {"maxMessages": 20, "cacheAware": {"enabled": aware}}
        talk = talk_for("anthropic-messages", 64_000, context=rules)
        for number in range(30):
            await talk.say(f"Turn {number}?", Reply(f"Lantern {number} burns."))
            talk.clock.advance(MINUTE_MS)
        await talk.talk.close()
        moves[aware] = sum(call.used.change is not None for call in talk.calls)
    assert moves[False] == 20, "at every turn from the eleventh on"
    assert moves[True] <= moves[False] // 2
