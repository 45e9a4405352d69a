"""Whatever engine looks after a conversation, and whatever happens meanwhile, it goes on.

The built-in engine, the example's and one that does anything at random follow one another. One
that fails, or that owns compaction and makes nothing smaller, costs answers until another is
selected, and never a message. Source: spec 3, Engine slot (Switching engines keeps history).
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.transcript.messages import JsonObject

APIS = ["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"]
HAPPENINGS = [
    *["say"] * 5,
    *["say_much"] * 3,
    *["another_engine"] * 5,
    *["compact"] * 3,
    *["undo", "branch", "branch", "import_messages", "pin", "jump", "other_rules", "forgets"],
    *["other_prompt", "heartbeat", "say_well", "retry", "stop", "two_at_once", "two_conversations"],
    *["another_model", "another_mode", "think", "reset", "another_key", "settle", "restart"],
    *["spawn", "spawn_and_stop"],
]
RULES: list[JsonObject] = [
    {},
    {"context": {"maxMessages": 3}},
    {"context": {"maxTokens": 400, "cache": {}}},
    {"context": {"ttl": {"rules": [{"maxAge": "10m", "keep": "all"}]}}},
]


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    names=st.lists(st.sampled_from(HAPPENINGS), min_size=5, max_size=16),
    dice=st.lists(st.integers(0, 999), min_size=8, max_size=40),
    api=st.sampled_from(APIS),
)
def test_it_goes_on_with_whatever_engine(
    names: list[str], dice: list[int], api: str, live: Callable[..., None]
) -> None:
    live(["say", "another_engine", *names], dice, api, RULES)
