"""The tool with which an agent gives a task to a sub-agent. Source: spec 3, Engine slot."""

from __future__ import annotations

from strandline.runtime.announcing import SUBAGENT
from strandline.runtime.spawn_checks import MOST_LABEL_CHARS, MOST_TASK_CHARS
from strandline.runtime.subagents import Subagents
from strandline.runtime.tools import Tool, ToolCall, ToolOutput
from strandline.transcript.messages import JsonObject

NAME = "spawn"

DESCRIPTION = (
    "Give a task to a sub-agent, which works on it beside this conversation in a session of its "
    "own. This returns at once; do not wait or ask for the result, go on with what is left to do "
    "or end your turn. What comes of it arrives later, as a message of the type "
    f"{SUBAGENT}. For tasks that are long and can be described in full."
)
PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "minLength": 1,
            "maxLength": MOST_TASK_CHARS,
            "description": "All that the sub-agent needs to know, and what it is to answer with.",
        },
        "context": {
            "type": "string",
            "enum": ["isolated", "fork"],
            "description": "isolated: it knows the task alone. fork: it gets a copy of this "
            "conversation too. Default: isolated.",
        },
        "label": {
            "type": "string",
            "maxLength": MOST_LABEL_CHARS,
            "description": "A short name for it, for people.",
        },
        "agent": {
            "type": "string",
            "description": "The agent that does it. Default: the one that asks.",
        },
    },
    "required": ["task"],
    "additionalProperties": False,
}


def spawn_tool(subagents: Subagents) -> Tool:
    """`spawn`, for the conversation that has these sub-agents.

    Offer it only where there may be any (`Subagents.allowed`).
    """

    async def run(call: ToolCall) -> ToolOutput:
        given = call.arguments
        spawned = await subagents.spawn(
            given["task"],
            context="fork" if given.get("context") == "fork" else "isolated",
            agent_id=given.get("agent") or None,
            label=given.get("label"),
        )
        return ToolOutput.of_text(
            f"The sub-agent {spawned.key} is at work; its result will come as a message.",
            details={
                "sessionKey": spawned.key,
                "sessionId": spawned.session_id,
                "runId": spawned.run_id,
            },
        )

    return Tool(NAME, DESCRIPTION, PARAMETERS, run)
