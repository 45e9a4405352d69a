"""Which model a name gives, with which key, and how it is spoken to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.errors import ConfigError
from strandline.models import catalog
from strandline.runtime.model import Failed, Finished, ModelRequest
from strandline.testing import Reply, ScriptedModelServer
from strandline.wiring.providers import APIS, KNOWN

PATHS = {
    "openai-completions": "/v1",
    "openai-responses": "/v1",
    "anthropic-messages": "",
    "google-generative-ai": "/v1beta",
}
ONE = {"id": "one", "contextWindow": 9000, "maxTokens": 700}


def provider(url: str = "http://127.0.0.1:1/v1", **more: Any) -> dict[str, Any]:
    return {"mine": {"baseUrl": url, "models": [ONE], **more}}


async def ask(state: Any, ref: str) -> Finished | Failed:
    """The last event of one call."""
    info = state.providers.info(ref)
    model = state.providers.model(info)
    message = {"role": "user", "content": [{"type": "text", "text": "Hello"}], "timestamp": 0}
    request = ModelRequest(info, "Be brief.", [message], 100)
    try:
        events = [event async for event in model.stream(request)]
    finally:
        await model.aclose()
    assert isinstance(events[-1], Finished | Failed)
    return events[-1]


def test_the_configuration_says_what_a_model_can(opened: Any) -> None:
    model = {
        **ONE,
        "cost": {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4},
        "reasoning": True,
        "tools": False,
        "input": ["text", "image"],
    }
    info = opened(models={"providers": provider(models=[model])}).model_info("mine/one")
    assert (info.ref, info.api) == ("mine/one", "openai-completions")
    assert (info.context_window, info.max_output_tokens) == (9000, 700)
    prices = info.prices
    assert (prices.input, prices.output, prices.cache_read, prices.cache_write) == (1, 2, 3, 4)
    assert (info.reasoning, info.images, info.tools) == (True, True, False)


def test_the_configuration_overrides_what_is_known(opened: Any) -> None:
    own = {"openai": {"baseUrl": "http://127.0.0.1:1", "models": [{**ONE, "id": "gpt-4o"}]}}
    state = opened(models={"providers": own})
    assert state.model_info("openai/gpt-4o").context_window == 9000
    known = catalog.find("openai/gpt-4o-mini")
    assert state.model_info("openai/gpt-4o-mini") == known, "and what it does not name stays"


def test_a_provider_is_known_by_a_key_in_the_environment(opened: Any) -> None:
    for name, known in KNOWN.items():
        for variable in known.variables:
            refs = opened({variable: "k"}).model_refs()
            assert {ref.partition("/")[0] for ref in refs} == {name, "local"}
            without = opened({variable: ""}).model_refs()
            assert not any(ref.startswith(f"{name}/") for ref in without)


def test_without_a_key_the_error_names_the_variable(opened: Any) -> None:
    told = {
        "anthropic/claude-sonnet-4-5": "set ANTHROPIC_API_KEY in the environment",
        "google/gemini-2.5-flash": "set GEMINI_API_KEY or GOOGLE_API_KEY in the environment",
    }
    for ref, remedy in told.items():
        with pytest.raises(ConfigError) as caught:
            opened().model_info(ref)
        assert caught.value.remedy == remedy


@pytest.mark.parametrize(
    ("ref", "near"),
    [("mine/oen", "mine/one"), ("mien/one", "mine/one"), ("one", "mine/one"), ("", "mine/one")],
)
def test_an_unknown_model_is_told_with_the_nearest(opened: Any, ref: str, near: str) -> None:
    state = opened(models={"providers": provider()})
    assert not state.providers.can_use(ref)
    with pytest.raises(ConfigError, match=near):
        state.model_info(ref)


def test_a_format_that_is_not_spoken_is_told_with_those_that_are(opened: Any) -> None:
    state = opened(models={"providers": provider(api="bedrock-converse-stream")})
    assert not state.providers.can_use("mine/one")
    with pytest.raises(ConfigError) as caught:
        state.providers.model(state.model_info("mine/one"))
    assert "bedrock-converse-stream" in caught.value.what
    assert all(api in caught.value.remedy for api in APIS)


@pytest.mark.parametrize("api", APIS)
async def test_each_format_sends_the_key_and_the_headers_and_shows_neither(
    api: str, opened: Any
) -> None:
    secrets = {"apiKey": "${MY_KEY}", "headers": {"X-Team": "${MY_TEAM}"}}
    replies = [
        Reply("Ahoy."),
        Reply(status=400, error={"error": {"message": "key-of-mine-8761 and team-of-mine-8761"}}),
    ]
    with ScriptedModelServer(replies) as server:
        providers = provider(server.root_url + PATHS[api], api=api, **secrets)
        state = opened(
            {"MY_KEY": "key-of-mine-8761", "MY_TEAM": "team-of-mine-8761"},
            models={"providers": providers},
        )
        answered, failed = await ask(state, "mine/one"), await ask(state, "mine/one")
        heard = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert isinstance(answered, Finished)
    assert heard["x-team"] == "team-of-mine-8761"
    assert any("key-of-mine-8761" in value for value in heard.values())
    assert isinstance(failed, Failed)
    for shown in (repr(state), str(failed.error), repr(state.settings), repr(answered)):
        assert "key-of-mine-8761" not in shown
        assert "team-of-mine-8761" not in shown


async def test_a_known_provider_is_spoken_to_with_the_key_of_the_environment(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = opened({"ANTHROPIC_API_KEY": "from-outside"})
    with ScriptedModelServer([Reply("Ahoy.")]) as server:
        here = replace(KNOWN["anthropic"], url=server.root_url)
        monkeypatch.setitem(KNOWN, "anthropic", here)
        assert isinstance(await ask(state, "anthropic/claude-sonnet-4-5"), Finished)
        assert server.requests[0].headers["x-api-key"] == "from-outside"


async def test_the_key_of_the_environment_goes_to_the_providers_own_address_only(
    opened: Any,
) -> None:
    with ScriptedModelServer([Reply("Ahoy.")] * 2) as server:
        own: dict[str, Any] = {
            "anthropic": {"baseUrl": server.root_url, "api": "anthropic-messages"}
        }
        environ = {"ANTHROPIC_API_KEY": "from-outside"}
        await ask(opened(environ, models={"providers": own}), "anthropic/claude-sonnet-4-5")
        own["anthropic"]["apiKey"] = "from-settings"
        await ask(opened(environ, models={"providers": own}), "anthropic/claude-sonnet-4-5")
        without, with_key = (request.headers for request in server.requests)
    assert "from-outside" not in str(without) + str(with_key)
    assert with_key["x-api-key"] == "from-settings"


def test_a_proxy_is_spoken_to_as_the_settings_say_and_the_provider_as_it_speaks(
    opened: Any,
) -> None:
    def api(**provider: Any) -> str:
        state = opened({"OPENAI_API_KEY": "k"}, models={"providers": {"openai": provider}})
        return str(state.model_info("openai/gpt-5.4").api)

    assert api(baseUrl="https://api.openai.com/v1") == "openai-responses"
    assert api(baseUrl="https://proxy.example/v1") == "openai-completions"
    assert api(baseUrl="https://proxy.example/v1", api="openai-responses") == "openai-responses"
