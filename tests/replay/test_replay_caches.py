"""The models of providers' caches: what each keeps, finds, counts and asks for."""

from __future__ import annotations

from itertools import accumulate
from typing import get_args

import pytest

from strandline.context.view import ViewMessage
from strandline.replay.caches import AutomaticCache, MarkedCache, NoCache, Use
from strandline.replay.pricing import (
    CACHE_NAMES,
    CacheName,
    cache_of,
    lifetime_of,
    new_cache,
    rates,
)
from strandline.replay.prompts import Prompt, Prompts
from strandline.runtime.model import ModelInfo, Prices

MINUTE = 60_000


def prompt(*parts: tuple[str, int], blocks: int = 1) -> Prompt:
    """A prompt of named parts with their tokens; `blocks` content blocks each."""
    beginnings = list(accumulate((name for name, _ in parts), lambda a, b: f"{a} {b}"))
    return Prompt(
        [hash(each) for each in beginnings],
        [0, *accumulate(tokens for _, tokens in parts)],
        [0, *accumulate(blocks for _ in parts)],
    )


SYSTEM = ("system", 1500)


def test_a_marked_cache_writes_all_of_a_prompt_and_reads_what_it_has_of_the_next() -> None:
    cache = MarkedCache()
    assert cache.use(prompt(SYSTEM, ("a", 100)), 0) == Use(written=1600)
    assert cache.use(prompt(SYSTEM, ("a", 100), ("b", 50)), 1) == Use(written=50, read=1600)


def test_a_changed_message_leaves_a_marked_cache_the_system_prompt() -> None:
    cache = MarkedCache()
    cache.use(prompt(SYSTEM, ("a", 100), ("b", 50)), 0)
    assert cache.use(prompt(SYSTEM, ("b", 50)), 1) == Use(written=50, read=1500)


def test_a_mark_some_messages_back_saves_what_is_before_a_change_of_the_newest() -> None:
    messages = [(f"m{n}", 100) for n in range(20)]
    cache = MarkedCache(cacheable_count=10)
    cache.use(prompt(SYSTEM, *messages), 0)
    changed = [*messages[:15], ("other", 100)]
    assert cache.use(prompt(SYSTEM, *changed), 1).read == 1500 + 10 * 100


def test_a_marked_cache_keeps_nothing_below_its_minimum() -> None:
    cache = MarkedCache()
    assert cache.use(prompt(("system", 1000)), 0) == Use(fresh=1000)
    assert cache.use(prompt(("system", 1000), ("a", 24)), 1) == Use(written=1024)


def test_a_mark_finds_what_was_written_at_most_twenty_blocks_before_it() -> None:
    first = prompt(SYSTEM, ("a", 100), blocks=1)
    near = prompt(SYSTEM, ("a", 100), *[(f"n{n}", 10) for n in range(19)])
    far = prompt(SYSTEM, ("a", 100), *[(f"n{n}", 10) for n in range(31)])
    for second, read in ((near, 1600), (far, 1500)):
        cache = MarkedCache()
        cache.use(first, 0)
        assert cache.use(second, 1).read == read


@pytest.mark.parametrize("name", ["anthropic", "anthropic-1h", "openai", "gemini"])
def test_a_cache_lives_from_its_last_use_on(name: CacheName) -> None:
    lifetime = lifetime_of(name)
    cache = new_cache(name, lifetime)
    whole = prompt(("system", 4096))
    assert cache.use(whole, 0).read == 0
    assert cache.use(whole, lifetime).read == 4096
    assert cache.use(whole, 2 * lifetime).read == 4096
    assert cache.use(whole, 3 * lifetime + 1).read == 0


def test_openai_counts_from_1024_tokens_in_steps_of_128() -> None:
    for tokens, read in ((1023, 0), (1024, 1024), (1151, 1024), (1152, 1152), (5000, 4992)):
        cache = new_cache("openai", 5 * MINUTE)
        cache.use(prompt(("system", tokens)), 0)
        assert cache.use(prompt(("system", tokens), ("a", 1000)), 1).read == read


def test_gemini_counts_every_token_from_2048_on() -> None:
    for tokens, read in ((2047, 0), (2048, 2048), (2049, 2049)):
        cache = new_cache("gemini", 5 * MINUTE)
        cache.use(prompt(("system", tokens)), 0)
        assert cache.use(prompt(("system", tokens), ("a", 1000)), 1).read == read


def test_an_automatic_cache_knows_every_prompt_that_lives() -> None:
    cache = AutomaticCache()
    one, other = prompt(SYSTEM, ("a", 1060)), prompt(SYSTEM, ("b", 1060))
    cache.use(one, 0)
    cache.use(other, 2 * MINUTE)
    assert cache.use(one, 4 * MINUTE).read == 2560
    assert cache.use(other, 8 * MINUTE).read == 1408  # the system prompt was used since


def test_without_a_cache_all_is_fresh() -> None:
    cache = NoCache()
    for at_ms in (0, 1):
        assert cache.use(prompt(SYSTEM), at_ms) == Use(fresh=1500)


def test_what_a_cache_costs_is_the_catalogs_price_or_a_share_of_the_inputs() -> None:
    bare = Prices(input=2.0, output=10.0)
    written = {name: rates(name, bare).written for name in CACHE_NAMES}
    read = {name: rates(name, bare).read for name in CACHE_NAMES}
    assert written == {
        "anthropic": 2.5,
        "anthropic-1h": 4.0,
        "openai": 2.0,
        "gemini": 2.0,
        "none": 2.0,
    }
    assert read == {
        "anthropic": 0.2,
        "anthropic-1h": 0.2,
        "openai": 0.2,
        "gemini": 0.5,
        "none": 2.0,
    }
    full = Prices(2.0, 10.0, cache_read=0.3, cache_write=2.6, cache_write_1h=4.4)
    assert (rates("openai", full).read, rates("openai", full).written) == (0.3, 2.6)
    assert rates("anthropic-1h", full).written == 4.4


def test_the_cache_is_that_of_the_models_provider_or_of_its_format() -> None:
    def of(provider: str, api: str) -> CacheName:
        return cache_of(ModelInfo(provider, "m", api, 1000, 100))

    assert of("anthropic", "anthropic-messages") == "anthropic"
    assert of("openai", "openai-responses") == "openai"
    assert of("google", "google-generative-ai") == "gemini"
    assert of("mine", "anthropic-messages") == "anthropic"
    assert of("local", "local") == "none"
    assert set(CACHE_NAMES) == set(get_args(CacheName))


def test_a_prompt_extends_the_one_before_where_it_begins_with_all_of_it() -> None:
    prompts = Prompts(100)
    said = [
        ViewMessage(f"e{n}", {"role": "user", "content": [{"type": "text", "text": str(n)}]}, 5)
        for n in range(4)
    ]
    first = prompts.of(said[:2])
    assert (first.tokens, first.newest, first.extends) == (110, 2, True)
    assert prompts.of(said[:3]).extends
    assert not prompts.of(said[1:3]).extends
    assert prompts.of(said[1:]).extends
    assert not prompts.of(said[1:3]).extends  # the newest is gone
    again = [ViewMessage(m.entry_id, {**m.message}, m.tokens) for m in said[:2]]
    assert prompts.of(again).beginnings == first.beginnings  # equal, not the same objects
