"""Conversations made for replaying, and the scene in which they are replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from strandline.context.policy import ContextPolicy
from strandline.context.tokens import HeuristicCounter, MessageTokens
from strandline.replay.outcome import Outcome
from strandline.replay.policies import POLICY_NAMES, Policy, named
from strandline.replay.pricing import CacheName, lifetime_of, new_cache, rates
from strandline.replay.recording import Call, Recording
from strandline.replay.walk import Replays, Scene
from strandline.runtime.model import Prices
from strandline.transcript.context import PathMessage

PRICES = Prices(input=1.0, output=5.0)
START_MS = 1_000_000_000_000


@dataclass
class Talk:
    """A conversation that grows by what is said in it; sizes are tokens, four letters each."""

    now_ms: int = START_MS
    items: list[PathMessage] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def wait(self, milliseconds: int) -> Talk:
        self.now_ms += milliseconds
        return self

    def ask(self, size: int) -> Talk:
        self._say("user", size)
        return self

    def answer(self, size: int) -> Talk:
        entry_id = self._say("assistant", size, stopReason="stop")
        self.calls.append(Call(entry_id, self.now_ms, None, size))
        return self

    def look(self, size: int, takes_ms: int = 0) -> Talk:
        """A call that asks for a tool, and the tool's result."""
        call_id = f"call {len(self.items)}"
        block = {"type": "toolCall", "id": call_id, "name": "read", "arguments": {}}
        entry_id = self._add("assistant", [block], stopReason="toolUse")
        self.calls.append(Call(entry_id, self.now_ms, None, 10))
        self.wait(takes_ms)
        self._say("toolResult", size, toolCallId=call_id, toolName="read", isError=False)
        return self

    @property
    def recording(self) -> Recording:
        return Recording(self.items, self.calls)

    def _say(self, role: str, size: int, **more: Any) -> str:
        text = "abcd" * max(1, size - 4)  # 4 for the frame of the message
        return self._add(role, [{"type": "text", "text": text}], **more)

    def _add(self, role: str, content: list[Any], **more: Any) -> str:
        entry_id = f"e{len(self.items)}"
        message = {"role": role, "content": content, "timestamp": self.now_ms, **more}
        self.items.append(PathMessage(entry_id, message))
        return entry_id


def scene(cache: CacheName, *, window: int = 200_000, system_tokens: int = 1500) -> Scene:
    return Scene(
        window,
        system_tokens,
        rates(cache, PRICES),
        lambda policy: new_cache(cache, lifetime_of(cache), policy.cacheable_count),
    )


Replay = Callable[..., dict[str, Outcome]]

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def replay() -> Replay:
    """Replays a recording under the named policies with some rules."""

    def outcomes(
        recording: Recording,
        rules: ContextPolicy,
        cache: CacheName = "anthropic",
        policies: Sequence[str] = POLICY_NAMES,
        **of_scene: int,
    ) -> dict[str, Outcome]:
        replays = Replays(recording, scene(cache, **of_scene), MessageTokens(HeuristicCounter()))
        found: dict[str, Outcome] = {}
        for name in POLICY_NAMES:
            if name in policies:
                policy = named(name, Policy("rules", rules), lifetime_of(cache))
                lifetime_ms = lifetime_of(cache)
                own = replace(policy.rules, cache_lifetime_ms=lifetime_ms)
                found[name] = replays.under(replace(policy, rules=own))
        return found

    return outcomes


@pytest.fixture
def talk() -> Talk:
    """A conversation in which nothing was said yet."""
    return Talk()


@pytest.fixture(scope="session")
def new_talk() -> type[Talk]:
    """Makes such conversations."""
    return Talk


@pytest.fixture(scope="session")
def new_scene() -> Callable[..., Scene]:
    """Makes scenes, by the name of the cache."""
    return scene


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of vectors and fixtures beside the repository."""
    folder = Path(__file__).parents[3] / "shared"
    if not folder.is_dir():
        pytest.skip("../shared with its fixtures is not here")
    return folder
