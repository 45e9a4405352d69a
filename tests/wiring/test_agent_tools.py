"""What an agent may use and is told: tools, workspace, workspace files, hooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import ConfigError
from strandline.runtime.hooks import BeforeCompact, BeforeTree, Cancel, Supply
from strandline.runtime.tools import Tool, ToolCall
from strandline.testing import Reply, ScriptedModelServer
from strandline.testing import ToolCall as Calls

READING = ["list", "memory_search", "read", "search"]
ALL = sorted([*READING, "edit", "memory_write", "write"])
ONE = {"id": "one", "contextWindow": 16_000, "maxTokens": 800}


def settings(url: str = "http://127.0.0.1:1/v1", **defaults: Any) -> dict[str, Any]:
    """Settings whose agents have these defaults, at a server."""
    provider = {"baseUrl": url, "models": [ONE]}
    return {
        "models": {"providers": {"mine": provider}},
        "agents": {"defaults": {"model": "mine/one", **defaults}},
    }


async def bell(call: ToolCall) -> str:
    return f"rung for {call.agent_id} in {call.session_key}"


BELL = Tool("bell", "Ring the bell.", {"type": "object", "properties": {}}, bell)


# -- tools -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, ALL),
        ({"workspaceAccess": "ro"}, READING),
        ({"workspaceAccess": "none"}, []),
        ({"tools": {"allow": ["read", "write"]}}, ["read", "write"]),
        ({"tools": {"allow": ["read", "write"]}, "workspaceAccess": "ro"}, ["read"]),
        ({"tools": {"allow": []}}, []),
        ({"tools": {"deny": ["edit"]}}, [name for name in ALL if name != "edit"]),
        ({"tools": {"allow": ["read", "edit"], "deny": ["edit"]}}, ["read"]),
    ],
)
def test_access_and_names_choose_the_tools_and_deny_wins(
    opened: Any, warnings: list[str], wanted: dict[str, Any], names: list[str]
) -> None:
    state = opened(**settings(**wanted))
    assert state.toolbox("main").names == state.agent("main").toolbox.names == names
    assert warnings == []


def test_names_of_tools_that_are_not_there_are_told_once(opened: Any, warnings: list[str]) -> None:
    state = opened(**settings(tools={"allow": ["raed", "read"], "deny": ["wirte"]}))
    for _ in range(3):
        assert state.toolbox("main").names == ["read"]
    assert warnings == [
        "agent main: there is no tool 'raed' to allow or deny",
        "agent main: there is no tool 'wirte' to allow or deny",
    ]


def test_a_tool_that_was_registered_is_chosen_like_the_others(opened: Any) -> None:
    state = opened(**settings(workspaceAccess="none"))
    state.register_tool(BELL)
    assert state.toolbox("main").names == ["bell"]
    assert state.agent("ops").toolbox.names == ["bell"]
    denied = opened(**settings(tools={"deny": ["bell"]}))
    denied.register_tool(BELL)
    assert denied.toolbox("main").names == ALL
    needs = opened(**settings(workspaceAccess="ro"))
    needs.register_tool(Tool("gong", "Needs to write.", {"type": "object"}, bell, needs="rw"))
    assert needs.toolbox("main").names == READING


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        (Tool("read", "", {"type": "object"}, bell), "two tools are called read"),
        (Tool("bell", "", {"type": "object"}, bell), "two tools are called bell"),
        (Tool("a bell", "", {"type": "object"}, bell), "cannot be a tool's name"),
        (Tool("gong", "", {"type": "objekt"}, bell), "no JSON Schema"),
        (Tool("gong", "", {"type": "array"}, bell), "are no object"),
        (Tool("gong", "", {"$ref": "https://example.com/x"}, bell), "need another schema"),
        (Tool("gong", "", {"type": "object"}, bell, needs="wr"), "needs"),  # type: ignore[arg-type]
    ],
)
def test_a_tool_that_cannot_be_offered_is_refused_and_the_others_stay(
    opened: Any, tool: Tool, told: str
) -> None:
    state = opened(**settings())
    state.register_tool(BELL)
    with pytest.raises(ConfigError, match=told) as caught:
        state.register_tool(tool)
    assert caught.value.remedy
    assert state.toolbox("main").names == sorted([*ALL, "bell"])


async def test_a_registered_tool_knows_for_whom_it_runs(opened: Any) -> None:
    with ScriptedModelServer([Reply("", tool_calls=[Calls("bell", {})]), Reply("Rung.")]) as server:
        state = opened(**settings(server.base_url))
        state.register_tool(BELL)
        conversation = state.conversation("main", "agent:main:dock", holder="test")
        assert (await conversation.say("Ring it.")).reply == "Rung."
        await conversation.close()
    assert "rung for main in agent:main:dock" in json.dumps(server.requests[1].body)


# -- workspace ---------------------------------------------------------------------------------


def test_an_agent_works_in_a_folder_of_the_state_directory_unless_it_is_told_another(
    opened: Any, tmp_path: Path
) -> None:
    state = opened(**settings())
    assert state.workspace("main") == state.workspace("Main") == tmp_path / "state/workspace"
    assert state.workspace("Ops") == tmp_path / "state/workspace-ops"
    elsewhere = opened(**settings(workspace="~/harbour"))
    assert elsewhere.workspace("main") == Path.home() / "harbour"
    assert elsewhere.registry("main").open("agent:main:main").session.header["cwd"] == str(
        Path.home() / "harbour"
    )


def test_files_of_the_workspace_are_told_within_the_bounds(opened: Any, tmp_path: Path) -> None:
    workspace = tmp_path / "docks"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "AGENTS.md").write_text("Be kind. " + "rope " * 8000)
    (workspace / "MEMORY.md").write_text("Berth 7 is taken.")
    chosen = {"workspace": str(workspace), "systemPrompt": "You are the harbour master."}

    def prompt(**more: Any) -> str:
        return str(opened(**settings(**chosen, **more)).agent("main").system_prompt)

    told = prompt()
    assert told.startswith("You are the harbour master.\n\n")
    assert told.index("Be kind.") < told.index("Berth 7 is taken.")
    assert len(told) < 16_000 * 4 // 8 + 100, "an eighth of the window at most"
    assert len(prompt(bootstrapTotalMaxChars=2000)) < 2100
    assert len(prompt(bootstrapMaxChars=500)) < 1500
    assert prompt(workspaceAccess="none") == "You are the harbour master."
    assert "Be kind." in prompt(workspaceAccess="ro")
    assert "Be kind." not in prompt(bootstrapTotalMaxChars=0)


async def test_the_prompt_stays_the_same_until_a_compaction_and_is_made_anew_then(
    opened: Any, tmp_path: Path
) -> None:
    workspace = tmp_path / "docks"
    workspace.mkdir()
    (workspace / "AGENTS.md").write_text("The tide is low.")
    with ScriptedModelServer(lambda _: Reply("## Course\nlanterns")) as server:
        state = opened(**settings(server.base_url, workspace=str(workspace)))
        conversation = state.conversation("main", "agent:main:main", holder="test")
        await conversation.say("lantern " * 300)
        (workspace / "AGENTS.md").write_text("The tide is high.")
        await conversation.say("lantern " * 300)
        await conversation.compact()
        await conversation.say("And now?")
        await conversation.close()
    low = ["The tide is low." in json.dumps(request.body) for request in server.requests]
    high = ["The tide is high." in json.dumps(request.body) for request in server.requests]
    assert (low[0], low[1], low[-1]) == (True, True, False)
    assert (high[0], high[1], high[-1]) == (False, False, True)


# -- hooks -------------------------------------------------------------------------------------


async def test_hooks_are_asked_before_a_compaction_and_before_a_move(opened: Any) -> None:
    asked: list[str] = []

    def supply(event: BeforeCompact) -> Supply:
        asked.append(event.trigger)
        return Supply("The keeper of the light was here.")

    async def stay(event: BeforeTree) -> Cancel:
        asked.append(str(event.target_id))
        return Cancel("not today")

    with ScriptedModelServer(lambda _: Reply("lanterns")) as server:
        state = opened(**settings(server.base_url))
        state.hooks.session_before_compact.append(supply)
        state.hooks.session_before_tree.append(stay)
        conversation = state.conversation("main", "agent:main:main", holder="test")
        first = (await conversation.say("lantern " * 300)).user_entry_id
        await conversation.say("lantern " * 300)
        receipt = await conversation.compact()
        with pytest.raises(Exception, match="not today"):
            await conversation.branch(first)
        await conversation.close()
    assert receipt.summarizer == "hook"
    assert asked == ["manual", first]
