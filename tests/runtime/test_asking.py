"""Asking: retries, fallbacks, thinking that is refused. Real servers; waits of milliseconds."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from strandline.clock import SystemClock
from strandline.context.budget import CompactionSettings
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.errors import ContextOverflow, ModelError, ModelErrorKind
from strandline.manager import SessionManager
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.events import AskedAgain, ReplyDiscarded, ReplyText, TurnEvent
from strandline.runtime.model import Failed, ModelEvent, ModelRequest, TextDelta
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.retrying import RetrySettings, wait_ms
from strandline.runtime.tools import Tool, Toolbox
from strandline.runtime.turn import run_turn, user_message
from strandline.runtime.turn_result import TurnResult
from strandline.testing import Reply, Script, ScriptedModelServer, ToolCall

BackendFor = Callable[..., Backend]
QUICK = RetrySettings(attempts=3, min_delay_ms=1, max_delay_ms=2_000)
CHAT = "openai-completions"
SIGNING = ["anthropic-messages", "openai-responses", "google-generative-ai"]


def agent_of(backends: Sequence[Backend], *tools: Tool, **more: Any) -> Agent:
    first, *others = backends
    tokens = MessageTokens(HeuristicCounter())
    return Agent(
        "main",
        first.model,
        first.info,
        OfflineSummarizer(tokens.counter),
        tokens,
        SystemClock(),
        fallbacks=tuple(others),
        toolbox=Toolbox(tools),
        **{"retry": QUICK, "system_prompt": "Be brief.", **more},
    )


async def say(session: SessionManager, agent: Agent, text: str, **options: Any) -> TurnResult:
    try:
        return await run_turn(session, agent, user_message(text, 1), **options)
    finally:
        await agent.aclose()


def roles(session: SessionManager) -> list[str]:
    return [message["role"] for message in session.build_context().messages]


@pytest.fixture
def session() -> SessionManager:
    return SessionManager.in_memory()


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedModelServer]]:
    """Starts servers, and closes them."""
    with ExitStack() as stack:

        def start(script: Script = (), **options: Any) -> ScriptedModelServer:
            return stack.enter_context(ScriptedModelServer(script, **options))

        yield start


def text_after_last_discard(heard: Sequence[TurnEvent]) -> str:
    shown = ""
    for event in heard:
        if isinstance(event, ReplyDiscarded):
            shown = ""
        elif isinstance(event, ReplyText):
            shown += event.text
    return shown


# -- retries -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        Reply(status=429, retry_after_s=0),
        Reply(status=503),
        Reply(status=500),
        Reply("half an answer", chunk_chars=4, disconnect_after=3),
        Reply("half an answer", chunk_chars=4, truncate_after=3),
        Reply("half an answer", chunk_chars=4, status=529, error_after=3),
    ],
)
async def test_what_may_pass_by_itself_is_tried_again_and_no_text_is_doubled(
    session: SessionManager, serve: Any, backend_for: BackendFor, api: str, failure: Reply
) -> None:
    server, heard = serve([failure, failure, Reply("The whole answer.")]), list[TurnEvent]()
    result = await say(session, agent_of([backend_for(api, server)]), "go", listener=heard.append)
    assert result.reply == text_after_last_discard(heard) == "The whole answer."
    assert len([e for e in heard if isinstance(e, AskedAgain)]) == 2
    assert len(server.requests) == 3
    assert roles(session) == ["user", "assistant"], "one question, one answer (A14)"


async def test_a_server_that_says_how_long_to_wait_is_waited_for_so_long(
    session: SessionManager, serve: Any, backend_for: BackendFor, api: str
) -> None:
    server, heard = serve([Reply(status=429, retry_after_s=1), Reply("ok")]), list[TurnEvent]()
    await say(session, agent_of([backend_for(api, server)]), "go", listener=heard.append)
    assert [e.wait_ms for e in heard if isinstance(e, AskedAgain)] == [1_000]


async def test_a_server_that_wants_more_patience_than_there_is_is_not_waited_for(
    session: SessionManager, serve: Any, backend_for: BackendFor
) -> None:
    server = serve([Reply(status=429, retry_after_s=3_600)])
    with pytest.raises(ModelError) as failed:
        await say(session, agent_of([backend_for(CHAT, server)]), "go")
    assert (failed.value.kind, failed.value.retry_after_s) == ("rate", 3_600)
    assert len(server.requests) == 1


def test_waits_grow_are_spread_and_bounded() -> None:
    settings = RetrySettings(attempts=9, min_delay_ms=100, max_delay_ms=1_000)
    error = ModelError("it is away", kind="network")
    assert [wait_ms(error, n, settings) for n in range(1, 6)] == [100, 200, 400, 800, 1_000]
    assert wait_ms(error, 9, settings) is None
    assert (wait_ms(error, 1, settings, 0.0), wait_ms(error, 1, settings, 1.0)) == (75, 125)


@pytest.mark.parametrize(("asked", "waited"), [(-1.0, 0), (float("inf"), None), (0.5, 500)])
def test_odd_wishes_for_patience_are_borne(asked: float, waited: int | None) -> None:
    error = ModelError("it is busy", kind="rate", retry_after_s=asked)
    assert wait_ms(error, 1, QUICK) == waited


async def test_after_the_last_attempt_the_error_is_raised_with_what_came_kept_once(
    session: SessionManager, serve: Any, backend_for: BackendFor, api: str
) -> None:
    server = serve(lambda _: Reply("half an answer", chunk_chars=4, disconnect_after=2))
    with pytest.raises(ModelError) as failed:
        await say(session, agent_of([backend_for(api, server)]), "go")
    assert failed.value.kind == "network"
    assert len(server.requests) == 3
    assert roles(session) in (["user"], ["user", "assistant"])
    server.script = [Reply("Here again.")]
    assert (await say(session, agent_of([backend_for(api, server)]), "more")).reply
    assert server.refused == []


class Ends:
    """A model whose call ends at once, in one way."""

    def __init__(self, kind: ModelErrorKind | None) -> None:
        self.asked = 0
        self.kind = kind

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.asked += 1
        yield TextDelta("I was about to")
        if self.kind is not None:
            yield Failed(ModelError(f"{request.model.ref} ended", kind=self.kind))

    async def aclose(self) -> None:
        self.asked += 0


async def test_an_abort_is_never_tried_again_nor_given_to_another_model(
    session: SessionManager, serve: Any, backend_for: BackendFor
) -> None:
    server, model = serve(), Ends("aborted")
    second = backend_for(CHAT, server)
    agent = agent_of([Backend(model, replace(second.info, id="first")), second])
    with pytest.raises(ModelError) as failed:
        await say(session, agent, "go")
    assert failed.value.kind == "aborted"
    assert (model.asked, len(server.requests)) == (1, 0)


async def test_an_abort_of_a_fallback_is_told_as_what_it_is(
    session: SessionManager, serve: Any, backend_for: BackendFor
) -> None:
    server = serve(lambda _: Reply(status=401))
    first = backend_for(CHAT, server)
    agent = agent_of([first, Backend(Ends("aborted"), replace(first.info, id="second"))])
    with pytest.raises(ModelError) as failed:
        await say(session, agent, "go")
    assert failed.value.kind == "aborted"


async def test_a_stream_that_ends_without_an_answer_is_a_failure_like_any_other(
    session: SessionManager, serve: Any, backend_for: BackendFor
) -> None:
    model, second = Ends(None), backend_for(CHAT, serve([Reply("I am here.")]))
    agent = agent_of([Backend(model, replace(second.info, id="first")), second])
    assert (await say(session, agent, "go")).reply == "I am here."
    assert model.asked == QUICK.attempts


# -- fallbacks -----------------------------------------------------------------------------


async def test_a14_four_models_that_fail_leave_one_question_and_the_first_error_is_raised(
    session: SessionManager, serve: Any, backend_for: BackendFor
) -> None:
    statuses = [503, 401, 500, 429]
    servers = [serve(lambda _, s=status: Reply(status=s)) for status in statuses]
    apis = [CHAT, *SIGNING]
    for cycle in range(3):
        backends = [backend_for(api, s) for api, s in zip(apis, servers, strict=True)]
        with pytest.raises(ModelError) as failed:
            await say(session, agent_of(backends), f"question {cycle}")
        assert failed.value.kind == "network"
        assert failed.value.what.startswith(backends[0].info.ref)
        assert backends[3].info.ref in failed.value.what, "and what the last one said"
        assert roles(session) == ["user"] * (cycle + 1)
    assert [len(server.requests) for server in servers] == [9, 3, 9, 9]
    agent = agent_of([backend_for(CHAT, serve([Reply("At last.")]))])
    assert (await say(session, agent, "now?")).reply == "At last."


async def test_a_key_that_is_not_accepted_sends_the_question_to_the_fallback_at_once(
    session: SessionManager, serve: Any, backend_for: BackendFor, api: str
) -> None:
    locked, open_one = serve(lambda _: Reply(status=401)), serve([Reply("Come in.")])
    heard = list[TurnEvent]()
    agent = agent_of([backend_for(api, locked), backend_for(CHAT, open_one, name="second")])
    result = await say(session, agent, "go", listener=heard.append)
    assert (result.reply, result.info.id) == ("Come in.", "second")
    assert len(locked.requests) == 1
    assert [(e.model, e.wait_ms) for e in heard if isinstance(e, AskedAgain)] == [
        (f"{CHAT}/second", 0)
    ]


async def test_who_answered_goes_on_in_the_tool_loop_and_the_next_turn_begins_with_the_first(
    session: SessionManager, serve: Any, backend_for: BackendFor, api: str
) -> None:
    away = serve(lambda _: Reply(status=401))
    second = serve([Reply(tool_calls=[ToolCall("look", {})]), Reply("There."), Reply("Again.")])

    async def look(_: object) -> str:
        return "nothing"

    tool = Tool("look", "It looks.", {"type": "object"}, look)
    agent = agent_of([backend_for(CHAT, away), backend_for(api, second, name="second")], tool)
    assert (await say(session, agent, "go")).reply == "There."
    assert (len(away.requests), len(second.requests)) == (1, 2)
    await say(session, agent, "and now?")
    assert len(away.requests) == 2
    assert second.refused == []


async def test_a_fallback_with_a_smaller_window_gets_a_context_that_fits_it(
    session: SessionManager, serve: Any, backend_for: BackendFor, api: str
) -> None:
    first, small = serve(), serve([Reply("In short.")], context_window=8_000)
    big = backend_for(CHAT, first, 200_000)
    for number in range(6):
        await say(session, agent_of([big]), f"{number}: " + "lantern harbour " * 1_000)
    first.script = lambda _: Reply(status=401)
    result = await say(session, agent_of([big, backend_for(api, small, 8_000)]), "go on")
    assert result.reply == "In short."
    assert len(small.requests) == 1, "not refused once"
    assert session.verify() == []


async def test_a_model_whose_window_the_prompt_fills_leaves_the_turn_to_a_larger_one(
    session: SessionManager, serve: Any, backend_for: BackendFor, api: str
) -> None:
    server = serve([Reply("Room enough.")])
    small = backend_for(CHAT, server, 8_000, name="small")
    large = backend_for(api, server, 64_000, name="large")
    rules = "Mind the gap. " * 3_000
    result = await say(session, agent_of([small, large], system_prompt=rules), "go")
    assert (result.reply, result.info.id) == ("Room enough.", "large")


async def test_a_fallback_that_is_too_small_does_not_hide_why_the_first_model_failed(
    session: SessionManager, serve: Any, backend_for: BackendFor
) -> None:
    away = serve(lambda _: Reply(status=401))
    backends = [backend_for(CHAT, away, 64_000), backend_for(CHAT, away, 8_000, name="small")]
    with pytest.raises(ModelError) as failed:
        await say(session, agent_of(backends, system_prompt="Mind the gap. " * 3_000), "go")
    assert failed.value.kind == "auth"


async def test_mode_error_asks_no_other_model(
    session: SessionManager, serve: Any, backend_for: BackendFor
) -> None:
    server = serve()
    backends = [backend_for(CHAT, server, 8_000), backend_for(CHAT, server, 64_000)]
    agent = agent_of(backends, compaction=CompactionSettings(mode="error"))
    await say(session, agent, "lantern harbour " * 400)
    await say(session, agent, "lantern harbour " * 400)
    with pytest.raises(ContextOverflow, match="largest parts"):
        await say(session, agent, "lantern harbour " * 400)


# -- what is refused -----------------------------------------------------------------------


async def test_a1_a_request_that_is_refused_for_its_shape_is_not_sent_again(
    session: SessionManager, serve: Any, backend_for: BackendFor, api: str
) -> None:
    server = serve([Reply(status=400), Reply("Fine.")])
    with pytest.raises(ModelError) as failed:
        await say(session, agent_of([backend_for(api, server)]), "go")
    assert failed.value.kind == "refused"
    assert len(server.requests) == 1
    assert (await say(session, agent_of([backend_for(api, server)]), "again")).reply == "Fine."


CALLED = Reply(thinking="Hm, hm.", tool_calls=[ToolCall("look", {})])


def thinking_agent(backend_for: BackendFor, api: str, server: Any) -> Agent:
    async def look(_: object) -> str:
        return "nothing"

    backend = backend_for(api, server, 64_000, reasoning=True, max_output_tokens=8_000)
    return agent_of([backend], Tool("look", "It looks.", {"type": "object"}, look))


async def think(session: SessionManager, agent: Agent) -> None:
    """A turn with signed thinking, for a server whose script begins with `CALLED`."""
    session.append_thinking_level_change("low")
    await say(session, agent, "think about it")


@pytest.mark.parametrize("signing", SIGNING)
async def test_b1_thinking_that_is_not_accepted_any_more_is_left_out_and_the_turn_goes_on(
    session: SessionManager, serve: Any, backend_for: BackendFor, signing: str
) -> None:
    before, after = serve([CALLED, Reply("So.", thinking="Aha.")]), serve()
    await think(session, thinking_agent(backend_for, signing, before))
    lines = session.branch_lines()
    after.script = [Reply("Well.", thinking="Oh.", tool_calls=[ToolCall("look", {})]), Reply("Yes")]
    result = await say(session, thinking_agent(backend_for, signing, after), "and now?")
    assert result.reply == "Yes"
    assert len(after.refused) == 1, "once, and not again in the tool loop"
    assert session.branch_lines()[: len(lines)] == lines, "the transcript keeps the thoughts"


@pytest.mark.parametrize("signing", SIGNING)
async def test_thinking_that_is_accepted_goes_back_as_it_came(
    session: SessionManager, serve: Any, backend_for: BackendFor, signing: str
) -> None:
    server = serve([CALLED, Reply("So.", thinking="Hm."), Reply("Yes.", thinking="Aha.")])
    agent = thinking_agent(backend_for, signing, server)
    await think(session, agent)
    assert (await say(session, agent, "sure?")).reply == "Yes."
    assert server.refused == []


@pytest.mark.parametrize("signing", SIGNING)
async def test_what_is_refused_without_thinking_too_is_refused(
    session: SessionManager, serve: Any, backend_for: BackendFor, signing: str
) -> None:
    server = serve([CALLED, Reply("So.", thinking="Hm.")])
    agent = thinking_agent(backend_for, signing, server)
    await think(session, agent)
    server.script = lambda _: Reply(status=400)
    with pytest.raises(ModelError) as failed:
        await say(session, agent, "and now?")
    assert failed.value.kind == "refused"
    assert len(server.requests) == 2 + 2, "asked once more, without"
