"""The prompt cache as Anthropic keeps it: only before a mark (cases/faults, K)."""

from __future__ import annotations

from typing import Any

import httpx2
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.testing import ScriptedModelServer, SimulatedClock
from strandline.testing.prompt_cache import (
    LOOKBACK_BLOCKS,
    Block,
    CacheRule,
    MarkedCache,
    PromptCache,
)

Json = dict[str, Any]
MARK = {"cache_control": {"type": "ephemeral"}}
LONG = "x" * 8000


def text(text: str, **more: Any) -> Json:
    return {"type": "text", "text": text, **more}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def ask(server: ScriptedModelServer, *messages: Json, **more: Any) -> tuple[int, int, int]:
    """Tokens created, read, and neither."""
    body = {"model": "m", "max_tokens": 9, "messages": list(messages), **more}
    headers = {"anthropic-version": "2023-06-01"}
    url = f"{server.base_url}/messages"
    usage = httpx2.post(url, json=body, headers=headers, trust_env=False).json()["usage"]
    created, read = usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"]
    return created, read, usage["input_tokens"]


def test_without_a_mark_nothing_is_cached() -> None:
    with ScriptedModelServer() as server:
        for _ in range(2):
            assert ask(server, user(text(LONG))) == (0, 0, 2010)


def test_what_a_mark_ends_is_written_once_and_read_from_then_on() -> None:
    with ScriptedModelServer() as server:
        created, read, rest = ask(server, user(text("hi")), system=[text(LONG, **MARK)])
        assert (created, read, rest) == (2007, 0, 10)
        assert ask(server, user(text("hi")), system=[text(LONG, **MARK)]) == (0, 2007, 10)
        assert ask(server, user(text("hi")), system=LONG) == (0, 0, 2017), "no mark, no reading"


def test_a_mark_that_moves_on_reads_what_it_wrote_and_writes_the_rest() -> None:
    with ScriptedModelServer() as server:
        first = [user(text(LONG, **MARK))]
        second = [user(text(LONG)), {"role": "assistant", "content": "ok"}, user(text("y", **MARK))]
        created, read, _ = ask(server, *first)
        assert read == 0
        more, again, rest = ask(server, *second)
        assert (again, rest) == (created, 0)
        assert more > 0


def test_a_text_and_its_one_block_are_the_same_prompt() -> None:
    with ScriptedModelServer() as server:
        created, _, _ = ask(server, user(text(LONG, **MARK)))
        _, read, _ = ask(server, {"role": "user", "content": LONG}, user(text("y", **MARK)))
    assert read == created


def test_a_beginning_below_1024_tokens_is_not_kept() -> None:
    with ScriptedModelServer() as server:
        for _ in range(2):
            assert ask(server, user(text("x" * 4000, **MARK)))[:2] == (0, 0)


def test_a_change_before_the_mark_loses_the_cache_and_another_model_has_none() -> None:
    with ScriptedModelServer() as server:
        ask(server, user(text(LONG, **MARK)))
        assert ask(server, user(text("12:01"), text(LONG, **MARK)))[1] == 0
        assert ask(server, user(text(LONG, **MARK)), model="other")[1] == 0
        assert ask(server, user(text(LONG, **MARK)))[1] > 0


def test_tools_come_before_all_else() -> None:
    tools = [{"name": "b", "description": LONG, "input_schema": {}, **MARK}]
    with ScriptedModelServer() as server:
        created, _, _ = ask(server, user(text("hi")), tools=tools)
        assert created > 1024
        assert ask(server, user(text("hi")), tools=tools, system="new")[1] == created
        other = [{"name": "a"}, *tools]
        assert ask(server, user(text("hi")), tools=other)[1] == 0


def test_a_mark_on_the_request_marks_its_last_block_and_can_last_an_hour() -> None:
    with ScriptedModelServer() as server:
        mark = {"type": "ephemeral", "ttl": "1h"}
        body: Json = {"model": "m", "max_tokens": 9, "messages": [user(text(LONG))]}
        headers = {"anthropic-version": "2023-06-01"}
        url = f"{server.base_url}/messages"
        sent = {**body, "cache_control": mark}
        usage = httpx2.post(url, json=sent, headers=headers, trust_env=False).json()["usage"]
    assert usage["cache_creation"] == {
        "ephemeral_1h_input_tokens": 2010,
        "ephemeral_5m_input_tokens": 0,
    }


def test_a_mark_looks_back_only_so_far() -> None:
    def cached(added: int) -> int:
        cache = MarkedCache(CacheRule(minimum=1, marked=True))
        cache.use("m", [Block("old", "5m")], len)
        blocks = [Block("old"), *(Block(str(n)) for n in range(added - 1)), Block("new", "5m")]
        return cache.use("m", blocks, len).read

    assert cached(LOOKBACK_BLOCKS - 1) == len("old")
    assert cached(LOOKBACK_BLOCKS) == 0


MINUTE_MS = 60_000


def test_what_was_written_dies_unless_it_is_read_in_time() -> None:
    clock = SimulatedClock()
    system = [text(LONG, **MARK)]
    with ScriptedModelServer(now_ms=clock.now_ms) as server:
        assert ask(server, user(text("hi")), system=system)[1] == 0
        for _ in range(3):
            clock.advance(4 * MINUTE_MS)
            assert ask(server, user(text("hi")), system=system)[1] > 0, "reading keeps it alive"
        clock.advance(5 * MINUTE_MS)
        assert ask(server, user(text("hi")), system=system)[1] == 0


def test_an_hour_is_twelve_times_as_long_and_reading_does_not_shorten_it() -> None:
    clock = SimulatedClock()
    cache = MarkedCache(CacheRule(minimum=1, marked=True), clock.now_ms)
    prompt = [Block("old", "1h"), Block("new", "5m")]
    assert cache.use("m", prompt, len) == (0, len("old\nnew"), len("old"))
    clock.advance(6 * MINUTE_MS)
    assert cache.use("m", prompt, len).read == len("old")
    clock.advance(59 * MINUTE_MS)
    short = [Block("old", "5m"), Block("new", "5m")]
    assert cache.use("m", short, len).read == len("old")
    clock.advance(59 * MINUTE_MS)
    assert cache.use("m", short, len).read == len("old"), "it was written for an hour"
    clock.advance(60 * MINUTE_MS)
    assert cache.use("m", short, len).read == 0


def test_a_cache_without_marks_forgets_too_and_keeps_for_a_day_where_asked() -> None:
    clock = SimulatedClock()
    cache = PromptCache(CacheRule(minimum=1), clock.now_ms)
    cache.use("m", [Block("abc")], len)
    clock.advance(5 * MINUTE_MS - 1)
    assert cache.use("m", [Block("abd", "24h")], len).read == 2
    clock.advance(23 * 60 * MINUTE_MS)
    assert cache.use("m", [Block("abc")], len).read == 2
    assert cache.use("m", [Block("abc")], len).read == 3
    clock.advance(60 * MINUTE_MS)
    assert cache.use("m", [Block("abd")], len).read == 0


def test_a_server_can_be_made_to_forget() -> None:
    with ScriptedModelServer() as server:
        system = [text(LONG, **MARK)]
        ask(server, user(text("hi")), system=system)
        assert ask(server, user(text("hi")), system=system)[1] > 0
        server.forget()
        assert ask(server, user(text("hi")), system=system)[1] == 0


MARKS = st.sampled_from(["", "", "5m", "1h"])
BLOCKS = st.lists(st.builds(Block, st.sampled_from("ab"), MARKS), max_size=6)


@settings(max_examples=200)
@given(st.lists(BLOCKS, max_size=6), BLOCKS)
def test_it_reads_the_longest_beginning_that_a_mark_ended_before(
    earlier: list[list[Block]], blocks: list[Block]
) -> None:
    cache = MarkedCache(CacheRule(minimum=3, marked=True))
    written: set[tuple[str, ...]] = set()
    for each in earlier:
        cache.use("m", each, len)
        ends = [i for i, block in enumerate(each) if block.ttl and i >= 1]
        written |= {tuple(b.text for b in each[: i + 1]) for i in ends}
    use = cache.use("m", blocks, len)
    marks = [i for i, block in enumerate(blocks) if block.ttl]
    texts = [block.text for block in blocks]
    within = [i + 1 for i in range(max(marks, default=-1) + 1) if tuple(texts[: i + 1]) in written]
    assert use.read == len("\n".join(texts[: max(within, default=0)]))
    longest = len("\n".join(texts[: max(marks, default=-1) + 1]))
    assert use.read + use.created == (longest if longest >= 3 else 0)
    assert 0 <= use.created_1h <= use.created
