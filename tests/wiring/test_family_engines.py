"""What a context engine hears of the sessions of sub-agents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.runtime.family import SpawnContext
from strandline.testing import ScriptedModelServer
from strandline.wiring import State

KEY = "agent:main:main"
ENGINE = '''
"""Notes why each session is new to it, and how much of a path it is told."""

from pathlib import Path

from strandline.context.engine import EngineInfo, LegacyEngine


class Noting(LegacyEngine):
    info = EngineInfo("noting", "Noting")

    async def bootstrap(self, request):
        with Path(__file__).with_name("heard").open("a") as heard:
            print(request.session.session_key, request.reason, len(request.messages), file=heard)


def register(api):
    api.register_context_engine("noting", lambda context: Noting())
'''


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """The folder of the plugin that has the engine."""
    folder = tmp_path / "noting"
    folder.mkdir()
    (folder / "noting_of_it.py").write_text(ENGINE)
    (folder / "strandline-plugin.json").write_text(
        json.dumps({"id": "noting", "module": "noting_of_it"})
    )
    return folder


@pytest.mark.parametrize(("context", "messages"), [("isolated", 1), ("fork", 3)])
async def test_the_session_of_a_sub_agent_is_new_and_then_opened(
    context: SpawnContext, messages: int, linked: Path, opened: Callable[..., State]
) -> None:
    """It was begun before it was opened, and a fork has a path: `new` all the same."""
    with ScriptedModelServer() as server:
        state = opened(**settings(server.base_url, linked))
        conversation = state.conversation("main", KEY, holder="a test")
        await conversation.say("Hello")
        assert conversation.subagents is not None
        child = await conversation.subagents.spawn("Look around", context=context)
        await conversation.settle()
        await conversation.close()
        again = state.conversation("main", child.key, holder="a test")
        await again.say("And now?")
        await again.close()
    told = [line.split() for line in (linked / "heard").read_text().splitlines()]
    assert told == [
        [KEY, "new", "1"],
        [child.key, "new", str(messages)],
        [child.key, "opened", str(messages + 2)],
    ]


def settings(base_url: str, linked: Path) -> dict[str, Any]:
    model = {"id": "one", "contextWindow": 16_000, "maxTokens": 500}
    provider = {"baseUrl": base_url, "apiKey": "k", "api": "openai-completions", "models": [model]}
    return {
        "models": {"providers": {"mine": provider}},
        "agents": {"defaults": {"model": {"primary": "mine/one"}}},
        "plugins": {
            "load": {"paths": [str(linked)]},
            "entries": {"noting": {"enabled": True}},
            "slots": {"contextEngine": "noting"},
        },
    }
