"""What is given back, and to whom nothing is shown that its provider refused before."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace

import pytest

from strandline.manager import SessionManager
from strandline.runtime.agent import Agent, Backend
from strandline.runtime.events import nobody
from strandline.runtime.fitting import Fitting
from strandline.runtime.flushing import Flush
from strandline.runtime.model import Finished, ModelEvent, ModelRequest
from strandline.runtime.turn_memory import TurnMemory
from strandline.testing import ScriptedModelServer
from strandline.transcript.messages import Message

AgentFor = Callable[..., Agent]


@dataclass
class Noting:
    """A model that says nothing much and notes what it was asked."""

    fails_to_close: bool = False
    closed: int = 0
    requests: list[ModelRequest] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        yield Finished({"role": "assistant", "content": [{"type": "text", "text": "NO_REPLY"}]})

    async def aclose(self) -> None:
        self.closed += 1
        if self.fails_to_close:
            raise OSError("the connection was gone")


async def test_a_model_that_cannot_be_closed_leaves_no_other_open(agent_for: AgentFor) -> None:
    with ScriptedModelServer() as server:
        made = agent_for(server)
        models = [Noting(), Noting(fails_to_close=True), Noting()]
        agent = replace(
            made,
            model=models[0],
            fallbacks=(Backend(models[1], made.info),),
            only_for_summaries=(models[2],),
        )
        with pytest.raises(OSError, match="the connection was gone"):
            await agent.aclose()
        await made.aclose()
    assert [model.closed for model in models] == [1, 1, 1]


async def test_a_flush_does_not_show_its_model_the_thoughts_that_were_refused(
    session: SessionManager, agent_for: AgentFor
) -> None:
    with ScriptedModelServer() as server:
        made = agent_for(server)
        model, info = Noting(), made.info
        thought: Message = {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "thinkingSignature": "old"},
                {"type": "text", "text": "yes"},
            ],
            "api": info.api,
            "provider": info.provider,
            "model": info.id,
            "stopReason": "stop",
            "timestamp": 1,
        }
        session.append_message({"role": "user", "content": "well?", "timestamp": 0})
        session.append_message(thought)
        memory = TurnMemory.of(session, replace(made, model=model))
        assert memory.thoughts.refused(info, [thought])
        await Flush(Fitting.of_first(memory), nobody).run()
        await made.aclose()
    kinds = [b["type"] for m in model.requests[0].messages for b in m["content"] if "type" in b]
    assert "thinking" not in kinds
