"""Sessions that grow at random on a real store, and the whole way of their messages to requests.

Transcripts are as they may look in the wild, rules and budgets of every kind and size.
Properties are about values, never about time: a busy machine must not fail them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from strandline import SessionManager
from strandline.context.assemble import within
from strandline.context.budget import Budget, CompactionSettings, resolve_budget
from strandline.context.clean_path import Clean, CleanPath
from strandline.context.compaction import CompactionPlan, plan_compaction
from strandline.context.explain import Explanation, explain, whole_path
from strandline.context.extractive import extract_summary
from strandline.context.policy import (
    AgeRule,
    CacheAware,
    ContextPolicy,
    LayerSummaries,
    ProviderCache,
    ToolResultPruning,
)
from strandline.context.prune import LayerSummary, Moment, Pruned, PruneMemo, SummaryWanted, prune
from strandline.context.summarize import SummaryRequest
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.context.view import View
from strandline.errors import CompactionRefused, ContextOverflow
from strandline.models import anthropic_wire, gemini_wire, openai_chat_wire, openai_responses_wire
from strandline.models.openai_chat_wire import ServerTraits
from strandline.replay.policies import EXAMPLES
from strandline.runtime.cache_marks import cache_marks
from strandline.runtime.context_caching import ContextCaching, key_of
from strandline.runtime.model import ModelInfo, ModelRequest
from strandline.stores.context_cache_memory import MemoryContextCache
from strandline.testing import CountingIds, SimulatedClock
from strandline.testing.issued import Issued
from strandline.testing.wire import RecordedRequest
from strandline.testing.wires import find_wire
from strandline.transcript.context import SessionContext
from strandline.transcript.session import Session

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

COUNTER = HeuristicCounter()
START_MS = 1_700_000_000_000
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
GAPS = [SECOND, SECOND, SECOND, 0, MINUTE, MINUTE, 6 * MINUTE, HOUR, 7 * HOUR, -3 * MINUTE]

Step = tuple[str, dict[str, Any], int]
"""What happens to a session, by the name of a method of `Grown`, and how long after it (ms)."""

SIZE = st.sampled_from([1, 5, 20, 100, 100, 1500])
WHEN = st.sampled_from(["now", "now", "now", "now", "unsaid", "odd", "later", "before"])
PLACE = st.integers(0, 60)
CALLS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3)
ENDS = st.sampled_from(["stop", "stop", "length", "error", "aborted"])

BROKEN_LINES = [
    b'{"type":"message","id":"torn',
    b"[1, 2]",
    b'{"type":"message","id":"0000aaaa","parentId":"gone0000","message":{"role":"user"}}',
    b'{"type":"message","id":"00000003","parentId":null,"message":{"role":"user","content":"x"}}',
    b'{"type":"no such type","id":"0000bbbb","parentId":null}',
]
ODD_MESSAGES = [
    '{"role": "user", "content": "at no time", "timestamp": NaN}',
    '{"role": "user", "content": "never", "timestamp": -Infinity}',
    '{"role": "user", "content": "for ever", "timestamp": 1e400}',
    '{"role": "strange", "content": "half \\ud83c"}',
    '"no object"',
]
ANY_JSON = st.recursive(
    st.sampled_from([None, True, 0, -1.5, 10**20, "", "a", "text", "error", "half \ud83c"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["type", "text", "id", "name", "data"]), inner, max_size=3),
    ),
    max_leaves=4,
)
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "image", "toolCall", "audio", 3])},
    optional=dict.fromkeys(["text", "id", "name", "arguments", "thinking", "data"], ANY_JSON),
)
ODD_MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(
            ["user", "assistant", "assistant", "toolResult", "bashExecution", {}]
        )
    },
    optional={
        "content": st.one_of(ANY_JSON, st.lists(st.one_of(BLOCK, ANY_JSON), max_size=3)),
        **dict.fromkeys(
            ["stopReason", "toolCallId", "toolName", "timestamp", "usage", "contextLimit", "api"],
            ANY_JSON,
        ),
        **dict.fromkeys(["command", "output", "exitCode", "excludeFromContext"], ANY_JSON),
    },
)


MODEL, SIGNATURE = "gemini-2.5", "c2lnbmVk"
BY = st.sampled_from([None, None, "anthropic-messages", "google-generative-ai"])
LIMIT = st.sampled_from([None, None, 300, 5_000, 10**6])


def step(name: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), st.fixed_dictionaries(fields), st.sampled_from(GAPS))


TALK = st.one_of(
    step("user", size=SIZE, when=WHEN),
    step("answer", size=SIZE, when=WHEN, ends=ENDS, by=BY, limit=LIMIT),
    step("calls", ids=CALLS, when=WHEN, ends=st.sampled_from(["toolUse", "aborted"]), by=BY),
    step("result", of=PLACE, size=SIZE, when=WHEN, image=st.sampled_from([False, False, True])),
    step("result", of=PLACE, size=SIZE, when=WHEN, image=st.just(value=False)),
)
ELSE = st.one_of(
    step("command", size=SIZE, excluded=st.booleans()),
    step("custom", size=SIZE),
    step("label", place=PLACE, label=st.sampled_from(["pin", "pin", "here", None])),
    step("branch", place=PLACE),
    step("leave", place=PLACE, size=SIZE),
    step("compact"),
    step("compact"),
    step("compact_to", place=PLACE, size=SIZE),
    step("odd", message=st.one_of(st.sampled_from(ODD_MESSAGES), ODD_MESSAGE.map(json.dumps))),
    step("broken", line=st.sampled_from(BROKEN_LINES)),
)
TURN = step(
    "turn",
    size=SIZE,
    results=st.lists(st.one_of(SIZE, SIZE, st.none()), max_size=3),
    by=BY,
    limit=LIMIT,
)
HAPPENINGS = st.sampled_from([TURN, TURN, TURN, TALK, TALK, ELSE]).flatmap(lambda kind: kind)
GROWTH = st.sampled_from([1, 6, 12]).flatmap(
    lambda least: st.lists(HAPPENINGS, min_size=least, max_size=16)
)


@dataclass
class Grown:
    """A session that grows, and the file that it is in."""

    session: SessionManager
    clock: SimulatedClock
    path: Path
    odd_count: int = 0
    asked: list[str] = field(default_factory=lambda: ["nobody asked"])
    tokens: MessageTokens = field(default_factory=lambda: MessageTokens(COUNTER))

    def take(self, step: Step) -> None:
        """Let something happen, and time pass."""
        name, fields, gap_ms = step
        getattr(self, name)(**fields)
        self.clock.advance(gap_ms)

    @property
    def tips(self) -> list[str]:
        """Where a conversation can go on: the ends of all branches, and where it stands."""
        leaf = self.session.leaf_id
        return list(dict.fromkeys([*self.session.tips(), *([leaf] if leaf else [])]))

    # -- what is said ----------------------------------------------------------------------

    def user(self, size: int, when: str) -> None:
        self._say(when, role="user", content="Is the lantern lit? " * size)

    def answer(
        self,
        size: int,
        when: str = "now",
        ends: str = "stop",
        by: str | None = None,
        limit: int | None = None,
    ) -> None:
        self._answer(when, by, _text("It is lit. " * size), stopReason=ends, contextLimit=limit)

    def calls(self, ids: list[str], when: str, ends: str, by: str | None) -> None:
        self.asked += ids
        calls = [{"type": "toolCall", "id": i, "name": "read", "arguments": {}} for i in ids]
        self._answer(when, by, [*_text("look"), *calls], stopReason=ends)

    def _answer(self, when: str, by: str | None, content: list[Any], **more: Any) -> None:
        """An answer of a model that says its thoughts, or of one that nobody knows."""
        if by is not None:
            thought = {"type": "thinking", "thinking": "hm", "thinkingSignature": SIGNATURE}
            content = [thought, *content]
            more |= {"api": by, "provider": "fake", "model": MODEL}
        self._say(when, role="assistant", content=content, **more)

    def result(self, of: int, size: int, when: str = "now", *, image: bool = False) -> None:
        """A result for one of the calls so far: late, for the second time, in another branch."""
        content = _text("row\n" * size)
        if image:
            content.append({"type": "image", "data": "aGk=", "mimeType": "image/png"})
        about = {
            "toolCallId": self.asked[of % len(self.asked)],
            "toolName": "Read",
            "isError": False,
        }
        self._say(when, role="toolResult", content=content, **about)

    def turn(
        self,
        size: int,
        results: list[int | None],
        by: str | None = None,
        limit: int | None = None,
    ) -> None:
        """A whole turn: a question, tools (None: no result comes), an answer."""
        self.user(1, "now")
        for rows in results:
            self.calls([f"call {len(self.asked)}"], "now", "toolUse", by)
            self.clock.advance(SECOND)
            if rows is not None:
                self.result(-1, rows)
        self.answer(size, by=by, limit=limit)

    def command(self, size: int, *, excluded: bool) -> None:
        about = {"command": "ls", "output": "a b\n" * size, "excludeFromContext": excluded}
        self._say("now", role="bashExecution", **about)

    def custom(self, size: int) -> None:
        self.session.append_custom_message("a.plugin", "it is dark " * size)

    def _say(self, when: str, **message: Any) -> None:
        now_ms = self.clock.now_ms()
        times = {"now": now_ms, "odd": "noon", "later": now_ms + 400 * HOUR, "before": 5}
        if when in times:
            message["timestamp"] = times[when]
        self.session.append_message(message)

    # -- what happens to the tree ----------------------------------------------------------

    def label(self, place: int, label: str | None) -> None:
        if (entry := self._somewhere(place)) is not None:
            self.session.append_label(entry, label)

    def branch(self, place: int) -> None:
        if (entry := self._somewhere(place)) is not None:
            self.session.branch(entry)

    def leave(self, place: int, size: int) -> None:
        self.session.branch_with_summary(self._somewhere(place), "The other way was dark. " * size)

    def compact_to(self, place: int, size: int) -> None:
        """A compaction as others may write it: what it keeps may be anywhere in the tree."""
        if (entry := self._somewhere(place)) is not None:
            self.session.append_compaction("We lit lanterns. " * size, entry, 9)

    def compact(self) -> None:
        """A real compaction of where the session stands: one entry more, or a reason."""
        budget = resolve_budget(4_096, CompactionSettings(reserve_tokens_floor=0))
        items = self.session.build_context().items
        plan = plan_compaction(items, self.tokens, budget, force=True)
        if not isinstance(plan, CompactionPlan):
            assert plan.reason
            return
        text = plan.summary(extract_summary(plan.request, COUNTER), COUNTER)
        try:
            after = plan.tokens_after(text, self.tokens)
        except CompactionRefused:
            return  # the reason is in it, and nothing was written
        assert after < plan.tokens_before
        before = self.path.read_bytes()
        self.session.append_compaction(text, plan.first_kept_entry_id, plan.tokens_before)
        grown = self.path.read_bytes()
        assert grown.startswith(before)
        assert grown.count(b"\n") == before.count(b"\n") + 1, "one entry more, nothing else"

    # -- what others do to the file --------------------------------------------------------

    def odd(self, message: str) -> None:
        """A line of another program, in the middle of the conversation."""
        ids = {"id": f"0dd{self.odd_count:05x}", "parentId": self.session.append_parent_id}
        self.odd_count += 1
        head = json.dumps({"type": "message", **ids})
        self.broken(f'{head[:-1]}, "message": {message}}}'.encode())

    def broken(self, line: bytes) -> None:
        """A line that is none, or of nowhere."""
        with self.path.open("ab") as file:
            file.write(line + b"\n")
        self.session.refresh()

    def _somewhere(self, number: int) -> str | None:
        ids = [entry.id for entry in self.session.entries()]
        return ids[number % len(ids)] if ids else None


def _text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


@contextmanager
def _begin() -> Iterator[Grown]:
    with tempfile.TemporaryDirectory() as folder:
        clock = SimulatedClock(START_MS)
        with SessionManager.create(
            session_dir=folder, cwd="/", clock=clock, ids=CountingIds(), durability="none"
        ) as session:
            assert session.path_name
            yield Grown(session, clock, Path(session.path_name))


# -- the way of a message ---------------------------------------------------------------------

RULE = st.builds(
    AgeRule,
    st.sampled_from([0, MINUTE, 5 * MINUTE, HOUR, 6 * HOUR, 10**15, None]),
    st.sampled_from(["all", "all", "summary", "summary", "none", 0, 2, 10**9]),
)
TRIMS = st.builds(
    ToolResultPruning,
    mode=st.just("cache-ttl"),
    ttl_ms=st.sampled_from([0, 5 * MINUTE, 10**15]),
    keep_last_assistants=st.sampled_from([0, 1, 3, 10**9]),
    soft_trim_ratio=st.sampled_from([0.0, 0.3]),
    hard_clear_ratio=st.sampled_from([0.0, 0.5]),
    min_prunable_chars=st.sampled_from([0, 200]),
    soft_max_chars=st.sampled_from([0, 60]),
    soft_head_chars=st.sampled_from([0, 20]),
    soft_tail_chars=st.sampled_from([0, 10]),
    hard_clear=st.booleans(),
    placeholder=st.sampled_from(["", "[cleared]"]),
    deny=st.sampled_from([(), ("re*",)]),
)

ANY_CACHE: dict[str, st.SearchStrategy[Any]] = {
    "summaries": st.builds(
        LayerSummaries,
        st.sampled_from([True, True, False]),
        cached=st.sampled_from([True, True, False]),
    ),
    "tool_results": st.one_of(st.just(ToolResultPruning()), TRIMS),
    "cache_aware": st.builds(CacheAware, st.booleans(), st.sampled_from([0.0, 0.5, 0.8, 1.0])),
    "cache_lifetime_ms": st.sampled_from([0, 5 * MINUTE, HOUR, 10**15]),
}
POLICIES = st.one_of(
    st.just(ContextPolicy()),
    st.builds(replace, st.sampled_from([*EXAMPLES.values()]), **ANY_CACHE),
    st.builds(
        ContextPolicy,
        max_messages=st.sampled_from([None, None, 0, 1, 3, 5, 8, 20, 10**12]),
        max_tokens=st.sampled_from([None, None, None, 0, 60, 400, 1_000, 3_000, 10**12]),
        reserved_output_tokens=st.sampled_from([0, 500, 10**9]),
        ttl=st.one_of(st.none(), st.lists(RULE, max_size=4).map(tuple)),
        **ANY_CACHE,
    ),
)


@dataclass(frozen=True)
class Setup:
    """The rules, the window and what it holds besides messages."""

    policy: ContextPolicy
    window: int
    scale: float
    system_tokens: int
    reserve: int

    @property
    def budget(self) -> Budget:
        return resolve_budget(
            self.window,
            CompactionSettings(reserve_tokens=self.reserve, reserve_tokens_floor=0),
            reserved_output=self.policy.reserved_output_tokens,
            system_tokens=self.system_tokens,
            max_tokens=self.policy.max_tokens,
            scale=self.scale,
        )

    @property
    def has_room(self) -> bool:
        """Whether the window has room for messages at all."""
        try:
            return self.budget.limit > 0
        except ContextOverflow:
            return False


A_SETUP = Setup(
    replace(
        EXAMPLES["assistant"],
        cache_aware=CacheAware(enabled=True),
        tool_results=ToolResultPruning("cache-ttl", soft_trim_ratio=0.0, soft_max_chars=20),
    ),
    window=8_192,
    scale=1.0,
    system_tokens=10,
    reserve=500,
)
"""One of them, for a test that draws nothing."""

SETUPS = st.builds(
    Setup,
    POLICIES,
    window=st.sampled_from([2_048, 4_096, 8_192, 32_000, 32_000, 1_000_000]),
    scale=st.sampled_from([1.0, 1.0, 1.3, 4.0]),
    system_tokens=st.sampled_from([0, 10, 200]),
    reserve=st.sampled_from([0, 500, 16_384]),
).filter(lambda setup: setup.has_room)


@dataclass(frozen=True)
class Looked:
    """What became of a path: the view before it was made to fit and, unless it could not be,
    after.
    """

    context: SessionContext
    budget: Budget
    pruned: View
    fitting: View | None
    overflow: str
    explanation: Explanation

    @property
    def view(self) -> View:
        """What is sent, or was too large to be."""
        return self.fitting or self.pruned


@dataclass
class Way:
    """The way of a message in one session, with what is remembered from request to request."""

    session: Session
    setup: Setup
    tokens: MessageTokens = field(default_factory=lambda: MessageTokens(COUNTER))
    made: list[LayerSummary] = field(default_factory=list)
    cache: MemoryContextCache | None = None

    def __post_init__(self) -> None:
        self._path, self._memo = CleanPath(self.tokens), PruneMemo()

    def look(self, tip: str | None, now_ms: int) -> Looked:
        """The request for that end of a branch, made at that time."""
        budget, context = self.setup.budget, self.session.build_context(tip)
        clean = self._path.follow(context.items, budget.message_cap)
        known = self.known(now_ms)
        while True:
            moment = Moment(now_ms, budget.view_limit, self.pins, [*known])
            pruned = self._pruned(clean, moment, context.leaf_id, budget.message_cap)
            if pruned.wanted is None:
                break
            known.append(_summary(pruned.wanted, now_ms))
        self.made = list(dict.fromkeys([*self.made, *known]))
        fitting, overflow = None, ""
        try:
            fitting = within(pruned.view, budget=budget, tokens=self.tokens, limit="oldest_turns")
        except ContextOverflow as error:
            overflow = str(error)
        told = explain(
            fitting or pruned.view,
            context,
            budget=budget,
            system_tokens=self.setup.system_tokens,
            engine="legacy",
            tokens=self.tokens,
            find_whole=lambda: whole_path(self.session, context),
        )
        return Looked(context, budget, pruned.view, fitting, overflow, told)

    def _pruned(self, clean: Clean, moment: Moment, leaf_id: str | None, cap: int) -> Pruned:
        policy, session_id = self.setup.policy, self.session.session_id

        def compute() -> Pruned:
            return prune(clean, policy, moment, self.tokens, memo=self._memo)

        if self.cache is None:
            return compute()
        key = key_of(session_id, leaf_id, policy, "fake/small", cap, COUNTER.name, moment)
        return ContextCaching(self.cache).pruned(key, clean, moment, compute)

    @property
    def pins(self) -> frozenset[str]:
        """The entries with the label "pin"."""
        return frozenset(i for i, label in self.session.labels().items() if label == "pin")

    def known(self, now_ms: int) -> list[LayerSummary]:
        """The summaries that may be used again."""
        rules = self.setup.policy.summaries
        return [m for m in self.made if rules.cached and abs(now_ms - m.made_ms) < HOUR]


def _summary(wanted: SummaryWanted, now_ms: int) -> LayerSummary:
    request = SummaryRequest(messages=wanted.messages, max_tokens=64)
    text = extract_summary(request, COUNTER) or "nothing to speak of"
    return LayerSummary(wanted.covers, text, "extractive", now_ms, wanted.rules)


# -- requests ------------------------------------------------------------------------------

TOOL = {"name": "read", "description": "reads", "parameters": {"type": "object", "properties": {}}}
PATHS = {
    "openai-completions": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic-messages": "/v1/messages",
    "google-generative-ai": f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse",
}
BODIES: dict[str, Callable[[ModelRequest], bytes]] = {
    "openai-completions": lambda request: openai_chat_wire.request_body(request, ServerTraits()),
    "openai-responses": openai_responses_wire.request_body,
    "anthropic-messages": anthropic_wire.request_body,
    "google-generative-ai": gemini_wire.request_body,
}


def body(api: str, view: View) -> bytes:
    """The bytes of the request that sends a view."""
    messages = [said.message for said in view.messages]
    marks = cache_marks(ProviderCache(), "a session", len(messages))
    info = ModelInfo("fake", MODEL, api, 100_000, 500)
    return BODIES[api](ModelRequest(info, "Be brief.", messages, 400, [TOOL], cache=marks))


def refusal(api: str, view: View) -> str | None:
    """What a provider says against the request; None where it takes it."""
    wire = find_wire(PATHS[api])
    assert wire is not None
    headers = {"anthropic-version": "2023-06-01"}
    request = RecordedRequest(PATHS[api], headers, json.loads(body(api, view)))
    assert wire.is_request(request.body)
    problem = wire.broken_rule(request, Issued([SIGNATURE]))
    return None if problem is None else problem.message


class Ways:
    """What the properties draw from, and what they look with."""

    begin = staticmethod(_begin)
    growth = GROWTH
    setup = A_SETUP
    setups = SETUPS
    gaps = st.sampled_from(GAPS)
    way = Way
    formats = tuple(BODIES)
    body = staticmethod(body)
    refusal = staticmethod(refusal)

    def __repr__(self) -> str:
        return "ways"


@pytest.fixture(scope="session")
def ways() -> Ways:
    """See `Ways`."""
    return Ways()
