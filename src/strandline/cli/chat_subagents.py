"""The slash commands of a chat for sub-agents: ``/spawn`` and ``/subagents``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.cli.row_text import ago
from strandline.cli.words import cut, one_line
from strandline.errors import SpawnRefused, StrandlineError

if TYPE_CHECKING:
    from strandline.cli.chat_loop import ChatLoop
    from strandline.runtime.subagent_run import Subagent
    from strandline.runtime.subagents import Subagents

FORK = "--fork"
MOST_TASK_COLUMNS = 60


async def spawn_command(chat: ChatLoop, rest: str) -> None:
    """``/spawn [--fork] TASK``: a sub-agent does it beside the chat."""
    first, _, behind = rest.partition(" ")
    fork = first == FORK
    if first.startswith("--") and not fork:
        raise StrandlineError(f"/spawn does not know {first!r}", remedy=f"say /spawn [{FORK}] TASK")
    subagents = _subagents_of(chat)
    subagents.attend()
    spawned = await subagents.spawn(
        behind if fork else rest, context="fork" if fork else "isolated"
    )
    chat.say_status(f"a sub-agent is at work: {spawned.key}")


async def subagents_command(chat: ChatLoop, rest: str) -> None:
    """``/subagents``: a list. ``/subagents stop WHICH``: stop one."""
    subagents = _subagents_of(chat)
    word, _, which = rest.partition(" ")
    if word == "stop" and which.strip():
        stopped = await subagents.stop(which.strip())
        chat.say_status(f"stopped: {stopped.spawned.key}")
        return
    if word:
        raise StrandlineError(
            f"/subagents does not know {rest!r}", remedy="say /subagents, or /subagents stop KEY"
        )
    listed = subagents.list()
    if not listed:
        chat.say_status("no sub-agents were begun here")
        return
    now_ms = chat.conversation.agent.clock.now_ms()
    chat.print_table(*((each.spawned.key, _line(each, now_ms)) for each in listed))


def _line(subagent: Subagent, now_ms: int) -> str:
    began = ago(subagent.began_ms, now_ms)
    name = f"{one_line(subagent.label)}: " if subagent.label else ""
    task = cut(one_line(subagent.task), MOST_TASK_COLUMNS)
    return f"{subagent.status}, begun {began} · {name}{task}"


def _subagents_of(chat: ChatLoop) -> Subagents:
    subagents = chat.conversation.subagents
    if subagents is None:
        raise SpawnRefused(
            "this conversation has no sub-agents", remedy="talk to an agent that may have some"
        )
    return subagents
