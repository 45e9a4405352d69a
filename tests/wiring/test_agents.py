"""From settings to an agent: models, summarisers, tools, workspace, prompt, hooks."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.errors import ConfigError
from strandline.testing import RecordedRequest, Reply, ScriptedModelServer

MODELS = [{"id": name, "contextWindow": 16_000, "maxTokens": 800} for name in ("one", "two")]


def settings(url: str = "http://127.0.0.1:1/v1", **defaults: Any) -> dict[str, Any]:
    """Settings whose agents have these defaults, at a server of two models."""
    server = {"baseUrl": url, "models": MODELS}
    other = {"baseUrl": url, "models": [{**MODELS[0], "id": "three"}]}
    return {
        "models": {"providers": {"mine": server, "yours": other}, "retry": {"minDelayMs": 1}},
        "agents": {"defaults": {"model": "mine/one", **defaults}},
    }


# -- models ------------------------------------------------------------------------------------


def test_the_model_is_the_one_that_was_asked_for_then_the_agents_then_the_local_one(
    opened: Any,
) -> None:
    state = opened(**settings())
    assert state.agent("main").info.ref == "mine/one"
    assert state.agent("main", "yours/three").info.ref == "yours/three"
    assert opened().agent("main").info.ref == "local/smollm2-135m-instruct"


def test_fallbacks_are_asked_in_their_order_each_once(opened: Any) -> None:
    wanted = ["yours/three", "mine/one", "mine/two", "yours/three"]
    state = opened(**settings(model={"primary": "mine/one", "fallbacks": wanted}))
    refs = [backend.info.ref for backend in state.agent("main").backends]
    assert refs == ["mine/one", "yours/three", "mine/two"]
    refs = [backend.info.ref for backend in state.agent("main", "mine/two").backends]
    assert refs == ["mine/two", "yours/three", "mine/one"]


def test_what_a_turn_can_do_without_is_passed_over_and_told_once(
    opened: Any, warnings: list[str]
) -> None:
    model = {"primary": "mine/one", "fallbacks": ["openai/gpt-5", "mine/two"]}
    state = opened(**settings(model=model, compaction={"model": "mine/tow"}))
    for _ in range(2):
        agent = state.agent("main")
    assert [backend.info.ref for backend in agent.backends] == ["mine/one", "mine/two"]
    assert agent.only_for_summaries == ()
    fallback, summariser = warnings
    assert fallback.startswith("agent main: openai/gpt-5 of model.fallbacks is passed over (")
    assert "OPENAI_API_KEY" in fallback
    assert summariser.startswith("agent main: mine/tow of compaction.model is passed over (")


def test_a_model_that_must_answer_and_cannot_is_an_error(opened: Any) -> None:
    with pytest.raises(ConfigError, match="mine/one"):
        opened(**settings(model="mine/oen")).agent("main")


def test_retries_are_those_of_the_settings(opened: Any) -> None:
    retry = {"attempts": 5, "minDelayMs": "1s", "maxDelayMs": "1m"}
    found = opened(models={"retry": retry}).agent("main").retry
    assert (found.attempts, found.min_delay_ms, found.max_delay_ms) == (5, 1000, 60_000)


# -- summaries ---------------------------------------------------------------------------------


def rungs(agent: Any) -> list[str]:
    return [rung.name for rung in agent.summarizer._rungs]


def test_summaries_are_made_by_the_chosen_model_then_the_sessions_then_none(opened: Any) -> None:
    assert rungs(opened(**settings()).agent("main")) == ["mine/one"]
    chosen = opened(**settings(compaction={"model": "yours/three"}))
    assert rungs(chosen.agent("main")) == ["yours/three", "mine/one"]
    assert chosen.agent("main").summarizer.name == "yours/three"
    same = opened(**settings(compaction={"model": "mine/one"})).agent("main")
    assert rungs(same) == ["mine/one"]
    assert same.only_for_summaries == ()
    local = opened().agent("main")
    assert rungs(local) == [], "it summarises badly, and takes a minute for it"
    assert local.summarizer.name == "extractive"


async def test_the_model_for_summaries_is_closed_with_its_agent(opened: Any) -> None:
    agent = opened(**settings(compaction={"model": "yours/three"})).agent("main")
    [only] = agent.only_for_summaries
    closed = []

    async def close() -> None:
        closed.append(only)

    only.aclose = close
    await agent.aclose()
    assert closed == [only]


async def test_a_summariser_that_fails_is_noted_in_a_file_of_the_state_directory(
    opened: Any,
) -> None:
    def answer(request: RecordedRequest) -> Reply:
        return Reply(status=401) if request.body["model"] == "three" else Reply("## Course\nHi.")

    with ScriptedModelServer(answer) as server:
        state = opened(**settings(server.base_url, compaction={"model": "yours/three"}))
        conversation = state.conversation("main", state.main_key("main"), holder="test")
        for _ in range(3):
            await conversation.say("lantern " * 600)
        receipt = await conversation.compact()
        again = await conversation.say("more " * 600) and await conversation.compact()
        await conversation.close()
    asked = [request.body["model"] for request in server.requests]
    assert asked.count("three") == 1, "it is left alone after that"
    assert {receipt.summarizer, again.summarizer} == {"mine/one"}
    path = state.folder / "cooldowns.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "yours/three" in path.read_text()


# -- a transcript of others --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answered", "model", "how", "expected"),
    [
        (("mine", "two"), None, {"offline": False}, ("mine/two", "mine/two", 16_000)),
        (("mine", "two"), None, {"offline": True}, ("mine/two", "extractive", 16_000)),
        (
            ("mine", "two"),
            "yours/three",
            {"offline": False},
            ("yours/three", "yours/three", 16_000),
        ),
        (("openai", "gpt-4o"), None, {"offline": False}, ("openai/gpt-4o", "extractive", 128_000)),
        (("acme", "odd"), None, {"offline": False}, ("mine/one", "extractive", 16_000)),
        (None, None, {"offline": False}, ("mine/one", "mine/one", 16_000)),
    ],
)
def test_the_window_is_that_of_the_model_that_answered_there(
    opened: Any,
    answered: Any,
    model: str | None,
    how: dict[str, bool],
    expected: Any,
) -> None:
    choice = {"provider": answered[0], "modelId": answered[1]} if answered else None
    agent = opened(**settings()).agent_for("main", choice, model, **how)
    found = agent.info.ref, agent.summarizer.name, agent.info.context_window
    assert found == expected
    smaller = opened(**settings()).agent_for("main", choice, model, **how, window=4096)
    assert smaller.info.context_window == smaller.budget().window == 4096
