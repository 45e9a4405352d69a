"""``/spawn`` and ``/subagents`` in a chat, as a person types them; and what a run waits for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.testing import RecordedRequest, Reply, ScriptedModelServer
from strandline.testing.reply import ToolCall


def answer(request: RecordedRequest) -> Reply:
    body = json.dumps(request.body)
    if "[A task from another agent" in body:
        return Reply("Three ships.")
    if "answered:" in body:
        return Reply("The count is in: three ships.")
    if "Have it counted" in body:
        if request.body["messages"][-1]["role"] == "tool":
            return Reply("It is being counted.")
        return Reply(tool_calls=[ToolCall("spawn", {"task": "Count the ships"})])
    return Reply("Good day.")


@pytest.fixture
def server() -> Iterator[ScriptedModelServer]:
    with ScriptedModelServer(answer) as up:
        yield up


@pytest.fixture
def chat(run: Any, setup: Any, server: ScriptedModelServer) -> Any:
    """Runs a chat of some lines."""
    setup(server)
    return lambda *lines: run("chat", input="\n".join(lines))


def test_a_person_gives_a_task_and_reads_what_came_of_it(chat: Any, state: Path) -> None:
    ran = chat("Hello", "/spawn Count the ships")
    assert ran.code == 0
    assert ran.out.splitlines() == ["Good day.", "The count is in: three ships."]
    assert ran.err.startswith("a sub-agent is at work: agent:main:subagent:")
    rows = json.loads((state / "agents/main/sessions/sessions.json").read_text())
    [child] = [row for key, row in rows.items() if ":subagent:" in key]
    assert child["spawnedBy"] == "agent:main:main"
    files = [*(state / "agents/main/sessions").glob("*.jsonl")]
    assert len(files) == 2
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)


def test_a_fork_is_asked_for_with_a_word_before_the_task(
    chat: Any, server: ScriptedModelServer
) -> None:
    chat("Mind the lanterns", "/spawn --fork Count the ships")
    [asked] = [r for r in server.requests if "[A task from" in json.dumps(r.body)]
    assert "Mind the lanterns" in json.dumps(asked.body)
    assert "What is above is a copy" in json.dumps(asked.body)


def test_they_are_listed(chat: Any) -> None:
    ran = chat("/subagents", "/spawn Count the ships", "/subagents")
    assert ran.err.splitlines()[0] == "no sub-agents were begun here"
    assert "agent:main:subagent:" in ran.out
    assert "Count the ships" in ran.out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/spawn", "the task has 0 characters: write 1 to 100,000"),
        ("/spawn --fork", "the task has 0 characters"),
        ("/subagents stop nobody", "no running sub-agent is called 'nobody': /subagents lists"),
        ("/subagents perhaps", "say /subagents, or /subagents stop KEY"),
    ],
)
def test_what_cannot_be_done_is_a_line_with_the_remedy(chat: Any, line: str, told: str) -> None:
    ran = chat("Hello", line, "Hello again")
    assert ran.code == 1
    assert ran.out.splitlines() == ["Good day.", "Good day."]
    assert ran.err.startswith("strandline: ")
    assert told in ran.err


def test_one_message_waits_for_what_its_answer_began(
    run: Any, setup: Any, server: ScriptedModelServer
) -> None:
    """The process that answers one message does not leave its sub-agents behind."""
    setup(server)
    ran = run("agent", "-m", "Have it counted", "--json")
    assert ran.json()["reply"] == "The count is in: three ships."


def test_an_agent_that_is_denied_the_tool_is_not_offered_it(
    run: Any, setup: Any, server: ScriptedModelServer
) -> None:
    setup(server, tools={"deny": ["spawn"]})
    ran = run("agent", "-m", "Hello")
    assert ran.err == ""
    names = [tool["function"]["name"] for tool in server.requests[0].body["tools"]]
    assert "spawn" not in names
    assert "read" in names
