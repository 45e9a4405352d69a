"""The diagnosis names the first byte of the prompt that changed, whose it is, and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.context.clean_path import CleanPath
from strandline.context.policy import AgeRule, CacheAware, ContextPolicy, ToolResultPruning
from strandline.context.prune import LayerSummary, Moment, prune, rules_digest
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.view import View, ViewMessage
from strandline.manager import SessionManager
from strandline.runtime.events import PrefixChange
from strandline.runtime.model import ModelInfo, ModelRequest
from strandline.runtime.prefix_watch import PrefixWatch
from strandline.transcript.messages import JsonObject, Message

INFO = ModelInfo("mine", "one", "openai-completions", 100_000, 1_000)
TOOLS: list[JsonObject] = [{"name": "read", "description": "It réads.", "parameters": {}}]
SYSTEM = "Be bri\u00e8f."
MINUTE_MS = 60_000
TOKENS = MessageTokens(HeuristicCounter())
NOTHING = ContextPolicy()


def user(words: str, **more: Any) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": words}], **more}


def answer(words: str, **more: Any) -> Message:
    return {"role": "assistant", "content": [{"type": "text", "text": words}], **more}


def request_of(messages: Sequence[Message], **changes: Any) -> ModelRequest:
    return replace(ModelRequest(INFO, SYSTEM, messages, 500, TOOLS), **changes)


def view_of(messages: Sequence[Message]) -> View:
    return View(tuple(ViewMessage(f"e{n}", m, 10) for n, m in enumerate(messages)))


def prompt(request: ModelRequest) -> bytes:
    parts = [list(request.tools), request.system_prompt, *request.messages]
    return "".join(json.dumps(part, ensure_ascii=False) for part in parts).encode()


def first_difference(one: ModelRequest, other: ModelRequest) -> int | None:
    """The first byte at which the prompts differ; None where one begins the other."""
    was, now = prompt(one), prompt(other)
    if now.startswith(was):
        return None
    pairs = zip(was, now, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(was), len(now)))


class Watched:
    """A session whose requests are watched, each made by the rules of its moment."""

    def __init__(self) -> None:
        self.session = SessionManager.in_memory()
        self.watch = PrefixWatch()
        self.path = CleanPath(TOKENS)
        self.last: ModelRequest | None = None

    def say(self, message: Message) -> str:
        return self.session.append_message(message)

    def send(
        self, policy: ContextPolicy = NOTHING, now_ms: int = 0, **more: Any
    ) -> PrefixChange | None:
        """Send a request and have it answered; its byte is checked against the JSON."""
        request_more = {key: more.pop(key) for key in ("model", "system_prompt") if key in more}
        addition = more.pop("addition", "")
        clean = self.path.follow(self.session.build_context().items, 1 << 20)
        moment = Moment(now_ms, more.pop("limit", 100_000), **more)
        view = prune(clean, policy, moment, TOKENS).view
        request = request_of([said.message for said in view.messages], **request_more)
        change = self.watch.sends(request, view, addition)
        self.watch.answered({"role": "assistant"}, None, 0)
        if self.last is not None and "model" not in request_more:
            byte = first_difference(self.last, request)
            assert (None if change is None else change.byte) == byte
        self.last = request
        return change


@pytest.fixture
def talk() -> Watched:
    """Five turns, a minute after the other."""
    watched = Watched()
    for number in range(5):
        watched.say(user(f"Question {number}", timestamp=number * MINUTE_MS))
        watched.say(answer(f"Answer {number}", timestamp=number * MINUTE_MS))
    assert watched.send() is None, "nothing is known of what was before the first"
    return watched


def test_a_prompt_that_only_grew_is_no_change(talk: Watched) -> None:
    assert talk.send() is None
    talk.say(user("More?"))
    assert talk.send() is None
    assert talk.send(now_ms=10**9) is None


def test_another_tool_is_named_with_its_byte(talk: Watched) -> None:
    assert talk.last is not None
    more = [*TOOLS, {"name": "write", "description": "", "parameters": {}}]
    change = talk.watch.sends(replace(talk.last, tools=more), view_of(talk.last.messages))
    assert change is not None
    assert (change.part, change.entry_id) == ("tools", None)
    assert change.byte == len(json.dumps(TOOLS, ensure_ascii=False).encode()) - 1
    assert change.why == "the tools changed"
    assert change.lost_tokens == 100


def test_a_system_prompt_that_changed_is_told_and_whether_an_engine_did_it(
    talk: Watched,
) -> None:
    change = talk.send(system_prompt="Be briex.")
    assert change is not None
    assert (change.part, change.why) == ("system prompt", "the system prompt changed")
    assert change.byte == len(json.dumps(TOOLS, ensure_ascii=False).encode()) + 7
    change = talk.send(system_prompt="Mind the bells.\n\nBe briex.", addition="Mind the bells.")
    assert change is not None
    assert change.part == "system prompt"
    assert change.why == "what the engine puts before the system prompt changed"


def test_another_model_begins_at_the_first_byte(talk: Watched) -> None:
    change = talk.send(model=replace(INFO, id="two"))
    assert change is not None
    assert (change.part, change.byte, change.entry_id) == ("model", 0, None)
    assert change.why == "mine/two answers instead of mine/one"


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (ContextPolicy(max_messages=4), "which are all that fit within 4"),
        (ContextPolicy(max_tokens=40), "tokens, which are all that fit within 40"),
        (ContextPolicy(ttl=(AgeRule(2 * MINUTE_MS, "all"),)), "it is older than 2m"),
        (
            ContextPolicy(ttl=(AgeRule(2 * MINUTE_MS, "all"), AgeRule(None, 1))),
            "of messages over 2m old, the newest 1 are kept",
        ),
        (
            ContextPolicy(max_messages=4, cache_aware=CacheAware(enabled=True)),
            "which are all that fit within 4",
        ),
    ],
)
def test_a_cut_that_a_layer_moved_is_told_by_the_rule(
    talk: Watched, policy: ContextPolicy, why: str
) -> None:
    talk.say(user("And now?", timestamp=5 * MINUTE_MS))
    first = talk.session.path()[0]
    change = talk.send(policy, 5 * MINUTE_MS)
    assert change is not None
    assert (change.part, change.entry_id) == ("message", first)
    assert why in change.why
    assert change.lost_tokens > 0


def test_a_summary_of_old_messages_is_told(talk: Watched) -> None:
    policy = ContextPolicy(ttl=(AgeRule(2 * MINUTE_MS, "all"), AgeRule(None, "summary")))
    old = talk.say(user("lantern " * 900, timestamp=0))
    assert talk.send() is None
    talk.say(user("And now?", timestamp=5 * MINUTE_MS))
    clean = talk.path.follow(talk.session.build_context().items, 1 << 20)
    wanted = prune(clean, policy, Moment(5 * MINUTE_MS, 10_000), TOKENS).wanted
    assert wanted is not None
    assert old in wanted.covers
    rules = rules_digest(policy)
    made = LayerSummary(wanted.covers, "Lanterns.", "nobody", 5 * MINUTE_MS, rules)
    change = talk.send(policy, 5 * MINUTE_MS, summaries=[made])
    assert change is not None
    assert change.entry_id == talk.session.path()[0]
    assert "it is told in the summary of" in change.why


def test_a_trimmed_result_is_told(talk: Watched) -> None:
    call = {"type": "toolCall", "id": "c1", "name": "read", "arguments": {}}
    talk.say({"role": "assistant", "content": [call], "timestamp": 5 * MINUTE_MS})
    content = [{"type": "text", "text": "lantern " * 2_000}]
    result = {"role": "toolResult", "toolCallId": "c1", "toolName": "read", "isError": False}
    entry = talk.say({**result, "content": content, "timestamp": 5 * MINUTE_MS})
    policy = ContextPolicy(tool_results=ToolResultPruning("cache-ttl", keep_last_assistants=1))
    talk.say(answer("So.", timestamp=5 * MINUTE_MS))
    assert talk.send(policy, 6 * MINUTE_MS, limit=10_000) is None, "the cache is warm"
    talk.say(user("And?", timestamp=20 * MINUTE_MS))
    change = talk.send(policy, 20 * MINUTE_MS, limit=10_000)
    assert change is not None
    assert (change.part, change.entry_id) == ("message", entry)
    assert change.why.startswith("an old result of 16,000 characters: the first 1,500")
    whole = talk.send(NOTHING, 20 * MINUTE_MS)
    assert whole is not None
    assert whole.why == "it is said otherwise"


def test_a_compaction_is_told_and_the_next_one_too(talk: Watched) -> None:
    path = talk.session.path()
    first = path[0]
    for number in (3, 1):
        compaction = talk.session.append_compaction(f"They spoke {number}.", path[-number], 100)
        change = talk.send()
        assert change is not None
        assert (change.part, change.entry_id) == ("message", first)
        assert change.why == "a compaction took the place of what was said before"
        first = compaction


def test_a_branch_is_told_with_the_message_that_was_there(talk: Watched) -> None:
    path = talk.session.path()
    talk.session.branch(path[3])
    talk.say(user("Or rather?"))
    change = talk.send()
    assert change is not None
    assert (change.part, change.entry_id) == ("message", path[4])
    assert change.why == "the conversation goes on from another place"
    talk.session.branch(path[1])
    shorter = talk.send()
    assert shorter is not None
    assert shorter.byte == len(prompt(request_of([])) + b"".join(_json(talk)))


def _json(talk: Watched) -> list[bytes]:
    assert talk.last is not None
    return [json.dumps(each, ensure_ascii=False).encode() for each in talk.last.messages]


def test_a_message_that_comes_back_is_told(talk: Watched) -> None:
    talk.say(user("And now?"))
    assert talk.send(ContextPolicy(max_messages=3)) is not None
    back = talk.send(ContextPolicy(max_messages=7))
    assert back is not None
    assert back.why == "what was left out before is in it again"


def test_a_thought_that_its_model_refused_is_told() -> None:
    watch = PrefixWatch()
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}
    said = [user("Hello"), thought]
    watch.sends(request_of(said), view_of(said))
    watch.answered(answer("x"), None, 0)
    change = watch.sends(request_of([said[0], answer("")]), view_of(said))
    assert change is not None
    assert (change.entry_id, change.why) == (
        "e1",
        "its model refused a thought of its own, which is not shown again",
    )


def test_requests_are_compared_with_the_last_that_was_answered() -> None:
    """One that failed and is sent again has the reason of the first time."""
    watch, said = PrefixWatch(), [user("a"), answer("b"), user("c")]
    watch.sends(request_of(said), view_of(said))
    watch.answered(answer("d"), None, 0)
    changed = [user("x"), *said[1:]]
    first = watch.sends(request_of(changed), view_of(changed))
    assert first is not None
    assert watch.sends(request_of(changed), view_of(changed)) == first


WORDS = st.text('aé\u2028😀"\\', max_size=3)
SAID = st.lists(st.builds(user, WORDS), max_size=4)


@settings(max_examples=200, deadline=None)
@given(SAID, SAID, st.booleans(), WORDS, WORDS, st.booleans())
def test_the_byte_is_the_first_that_differs_whatever_was_sent(
    one: list[Message],
    other: list[Message],
    grows: bool,  # noqa: FBT001 - drawn
    system: str,
    new_system: str,
    has_tools: bool,  # noqa: FBT001 - drawn
) -> None:
    before = request_of(one, system_prompt=system)
    tools = TOOLS if has_tools else []
    same = {"system_prompt": system} if grows else {"system_prompt": new_system, "tools": tools}
    now = request_of([*one, *other] if grows else other, **same)
    watch = PrefixWatch()
    watch.sends(before, view_of(before.messages))
    watch.answered(answer("x"), None, 0)
    change = watch.sends(now, view_of(now.messages))
    assert (None if change is None else change.byte) == first_difference(before, now)


# -- what the provider did ----------------------------------------------------------------------


def used(read: int, fresh: int, at_ms: int = 0, model: str = "one", written: int = 0) -> Message:
    usage = {"input": fresh, "cacheRead": read, "cacheWrite": written, "output": 1}
    return answer("x", usage=usage, timestamp=at_ms, provider="mine", model=model)


@pytest.fixture
def watch() -> PrefixWatch:
    """One that has seen a request and its answer."""
    watched, said = PrefixWatch(), [user("a")]
    watched.sends(request_of(said), view_of(said))
    watched.answered(used(0, 2_000), None, 300_000)
    return watched


def send(watch: PrefixWatch, *said: Message, **changes: Any) -> None:
    watch.sends(request_of(said or [user("a"), answer("b")], **changes), view_of(said))


def test_nothing_is_told_where_the_cache_gave_what_was_expected(watch: PrefixWatch) -> None:
    send(watch)
    told = watch.answered(used(1_900, 200), used(0, 2_000), 300_000)
    assert told is watch.used
    assert told is not None
    assert (told.read, told.fresh, told.expected, told.why) == (1_900, 200, 2_000, "")
    assert told.change is None


def test_too_little_to_be_cached_is_no_drop(watch: PrefixWatch) -> None:
    send(watch, user("other"))
    told = watch.answered(used(0, 1_000), used(0, 1_000), 300_000)
    assert told is not None
    assert (told.why, told.change is not None) == ("", True)


@pytest.mark.parametrize(
    ("idle_ms", "why"),
    [
        (200_000, "the request began with the same bytes; the provider did not have them"),
        (300_000, "the request began with the same bytes"),
        (600_000, "the last call was 10 min ago: the provider has forgotten it"),
    ],
)
def test_a_provider_that_forgot_is_told_as_such(watch: PrefixWatch, idle_ms: int, why: str) -> None:
    send(watch)
    told = watch.answered(used(0, 2_100, idle_ms), used(0, 2_000), 300_000)
    assert told is not None
    assert told.why.startswith(why)
    assert told.change is None


def test_a_drop_is_explained_by_the_change_whatever_the_time(watch: PrefixWatch) -> None:
    send(watch, system_prompt="Be otherwise.")
    told = watch.answered(used(0, 2_100, 10**9), used(0, 2_000), 300_000)
    assert told is not None
    assert told.change is not None
    assert (
        told.why == f"system prompt changed at byte {told.change.byte}: the system prompt changed"
    )


def test_thinking_that_was_switched_may_cost_the_cache(watch: PrefixWatch) -> None:
    send(watch, thinking="high")
    told = watch.answered(used(0, 2_100), used(0, 2_000), 300_000)
    assert told is not None
    assert told.why == "thinking is high instead of off, and the provider keeps the two apart"


def test_a_new_process_does_not_claim_to_know_what_was_sent_before() -> None:
    watch = PrefixWatch()
    send(watch)
    told = watch.answered(used(0, 2_100), used(0, 2_000), 300_000)
    assert told is not None
    assert told.why == "what was sent before is not known: this process did not send it"


def test_a_new_process_sees_from_the_transcript_that_another_model_answered() -> None:
    watch = PrefixWatch()
    send(watch)
    told = watch.answered(used(0, 2_100, model="two"), used(0, 2_000), 300_000)
    assert told is not None
    assert told.why == "model changed at byte 0: mine/two answers instead of mine/one"


@pytest.mark.parametrize("usage", [None, {}, {"input": 1}, "much", {"input": "1"}])
def test_nothing_is_told_where_the_provider_or_a_file_of_others_says_nothing(
    watch: PrefixWatch, usage: Any
) -> None:
    send(watch)
    assert watch.answered(answer("x", usage=usage), used(0, 2_000), 300_000) is None
    send(watch)
    told = watch.answered(used(0, 2_000), answer("x", usage=usage), 300_000)
    assert told is not None
    assert (told.expected, told.why) == (0, "")


def test_a_thread_that_the_backend_keeps_is_not_watched(watch: PrefixWatch) -> None:
    told = watch.answered(used(0, 50), used(0, 2_000), 300_000)
    assert told is not None
    assert (told.expected, told.why) == (0, "")
    send(watch, user("whole again"))
    told = watch.answered(used(0, 2_000), used(0, 2_000), 300_000)
    assert told is not None
    assert told.change is None, "what the thread held is not known"
