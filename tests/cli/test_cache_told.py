"""What people and programs are told of the provider's cache, and of a beginning that changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.testing import Reply, ScriptedModelServer

ANTHROPIC = "anthropic-messages"
MUCH = "lantern harbour " * 400


@pytest.fixture
def server() -> Iterator[ScriptedModelServer]:
    with ScriptedModelServer(lambda _: Reply("It burns. " * 20, chunk_chars=400)) as up:
        yield up


def test_a_program_gets_the_counts_and_the_reason(
    run: Any, setup: Any, server: ScriptedModelServer
) -> None:
    setup(server, api=ANTHROPIC)
    first, second, other, back = (
        run("agent", "-m", MUCH, "--model", model, "--json").json()["cache"]
        for model in ("mine/one", "mine/one", "mine/two", "mine/one")
    )
    assert set(first) == {"read", "written", "fresh", "expected", "why"}
    assert first["read"] == first["expected"] == 0
    assert first["written"] > 1_000
    assert second["expected"] == first["written"] + first["fresh"]
    assert second["read"] == first["written"]
    assert first["why"] == second["why"] == ""
    assert other["read"] == 0
    assert other["why"] == "model changed at byte 0: mine/two answers instead of mine/one"
    assert back["read"] > back["expected"] / 2
    assert back["why"] == ""


def test_a_person_asks_for_it_in_the_chat(
    run: Any, setup: Any, server: ScriptedModelServer
) -> None:
    setup(server, api=ANTHROPIC, context={"maxMessages": 4})
    lines = ["/cache", MUCH, "/cache", "Go on", "/cache", "And on", "/cache"]
    ran = run("chat", input="\n".join(lines))
    told = [line for line in ran.err.splitlines() if "cache" in line]
    assert told[0] == "nothing is known of the provider's cache yet: it is told with an answer"
    assert told[1].startswith("cache: 0 of ")
    assert " prompt tokens read from it (" in told[2]
    assert ";" not in told[2], "the beginning was whole"
    assert " tokens were written to it" in ran.err
    after = ran.err[ran.err.index(told[-2]) :]
    assert "; message changed at byte " in after
    assert "which are all that fit within 4" in after
    assert "the first change is in entry " in after


@pytest.mark.parametrize("verbose", ["on", "off"])
def test_a_drop_is_told_beside_the_answer_to_whom_wants_to_know(
    verbose: str, run: Any, setup: Any, server: ScriptedModelServer
) -> None:
    setup(server, api=ANTHROPIC)
    lines = [f"/verbose {verbose}", MUCH, "Go on", "/model mine/two", "And on"]
    ran = run("chat", input="\n".join(lines))
    told = [line for line in ran.err.splitlines() if line.startswith("· cache: ")]
    assert len(told) == (verbose == "on"), "a beginning that is whole is nothing to tell"
    for line in told:
        assert line.endswith("; model changed at byte 0: mine/two answers instead of mine/one")


def test_a_branch_is_told_with_the_entry_that_was_there(
    run: Any, setup: Any, state: Path, server: ScriptedModelServer
) -> None:
    setup(server, api=ANTHROPIC)
    lines = ["Hello", "/label start", MUCH, "/branch start", "Or rather?", "/cache"]
    ran = run("chat", input="\n".join(lines))
    line = next(each for each in ran.err.splitlines() if "the first change is in" in each)
    (transcript,) = (state / "agents/main/sessions").glob("*.jsonl")
    entries = [json.loads(each) for each in transcript.read_text().splitlines()]
    left = next(each["id"] for each in entries if MUCH.strip() in str(each.get("message")))
    assert line == f"the first change is in entry {left}"
