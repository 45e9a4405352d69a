"""Models of all four formats, for tests that hold for every provider."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from strandline.clock import SystemClock
from strandline.runtime.agent import Backend
from strandline.runtime.model import ModelInfo
from strandline.testing import ScriptedModelServer
from strandline.wiring.providers import APIS

BackendFor = Callable[..., Backend]

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    # A shell that starts the tests in its background has Ctrl-C ignored by all that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_NAMES = {
    "openai-completions": "chat-model",
    "openai-responses": "responses-model",
    "anthropic-messages": "claude-model",
    "google-generative-ai": "gemini-3-model",
}


def address(api: str, server: ScriptedModelServer) -> str:
    """Where clients of a format connect."""
    if api.startswith("openai"):
        return server.base_url
    return server.root_url + ("/v1beta" if api.startswith("google") else "")


@pytest.fixture(params=_NAMES)
def api(request: pytest.FixtureRequest) -> str:
    """Each format in turn."""
    name: str = request.param
    return name


@pytest.fixture
def address_for() -> Callable[[str, ScriptedModelServer], str]:
    """Where clients of a format connect."""
    return address


@pytest.fixture
def backend_for() -> BackendFor:
    """Makes a model of a format that asks a server; `window` is what we believe of its own."""

    def make(
        api: str,
        server: ScriptedModelServer,
        window: int = 16_000,
        name: str = "",
        timeout_s: float = 30.0,
        **more: Any,
    ) -> Backend:
        model = APIS[api]()(
            address(api, server), "a key", clock=SystemClock(), idle_timeout_s=timeout_s
        )
        info = ModelInfo(api, name or _NAMES[api], api, window, 500)
        return Backend(model, replace(info, **more))

    return make
