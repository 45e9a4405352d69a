"""The slash commands of a chat: one function each, in one table.

A command gets the chat and the rest of its line, and prints its answer through the chat.
The table is also the source of `/help` and of completion.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from strandline.cli.chat_loop import ChatLoop, Quit
from strandline.errors import EntryNotFound, StrandlineError
from strandline.transcript.session import Session

Run = Callable[[ChatLoop, str], Awaitable[None]]


class ChatCommand(NamedTuple):
    """A slash command: its name, what may follow it, what it does, and the doing."""

    name: str
    arguments: str
    purpose: str
    run: Run


async def _new(chat: ChatLoop, rest: str) -> None:
    await chat.conversation.move_to(None)
    if rest:
        await _model(chat, rest)
    chat.say_status(f"new conversation: {chat.conversation.key}")


async def _reset(chat: ChatLoop, _rest: str) -> None:
    await chat.conversation.reset()
    chat.say_status(
        f"new session {chat.conversation.session_id}; the old one is kept as an archive"
    )


async def _compact(chat: ChatLoop, rest: str) -> None:
    await chat.compact(rest or None)


async def _status(chat: ChatLoop, _rest: str) -> None:
    conversation = chat.conversation
    used, window = await conversation.context_size()
    row = conversation.row
    cost = row.estimated_cost_usd or 0.0
    used_up = f"{row.input_tokens or 0:,} in · {row.output_tokens or 0:,} out"
    chat.print_table(
        ("session key", conversation.key),
        ("session id", conversation.session_id),
        ("model", conversation.agent.info.ref),
        ("context", f"{used:,} of {window:,} tokens ({used / window:.0%})"),
        ("tokens", f"{used_up} · {row.cache_read or 0:,} cached"),
        ("cost", f"${cost:.4f}"),
    )
    chat.say(f"🧹 Compactions: {row.compaction_count or 0}")


async def _tree(chat: ChatLoop, _rest: str) -> None:
    chat.print_tree()


async def _branch(chat: ChatLoop, rest: str) -> None:
    session = chat.conversation.session
    if not rest:
        chat.print_branches()
        return
    entry_id = session.find(rest)
    session.branch(entry_id)
    chat.say_status(f"standing at {entry_id}; what you say next grows a branch from there")


async def _label(chat: ChatLoop, rest: str) -> None:
    session = chat.conversation.session
    entry_id, label = _entry_and_label(session, rest)
    if entry_id is None or not label:
        chat.say_status("say which: /label TEXT, or /label ENTRY TEXT")
        return
    session.append_label(entry_id, label)
    chat.say_status(f"{entry_id} is now {label!r}")


def _entry_and_label(session: Session, rest: str) -> tuple[str | None, str]:
    """The entry that the first word names and the rest; else the leaf and all of it."""
    first, _, label = rest.partition(" ")
    if label:
        with suppress(EntryNotFound):
            return session.find(first), label.strip()
    return session.leaf_id, rest


async def _model(chat: ChatLoop, rest: str) -> None:
    if not rest:
        chat.say_status(f"{chat.conversation.agent.info.ref} answers; known here: {chat.models()}")
        return
    await chat.use_model(rest)


async def _help(chat: ChatLoop, _rest: str) -> None:
    chat.print_table(*((f"{c.name} {c.arguments}".strip(), c.purpose) for c in COMMANDS))


async def _quit(_chat: ChatLoop, _rest: str) -> None:
    raise Quit


COMMANDS = (
    ChatCommand("/new", "[MODEL]", "begin another conversation; this one stays", _new),
    ChatCommand("/reset", "", "begin anew under the same key; the old session is archived", _reset),
    ChatCommand("/compact", "[INSTRUCTIONS]", "summarise what is older", _compact),
    ChatCommand("/status", "", "session, model, context, tokens, cost", _status),
    ChatCommand("/tree", "", "the conversation as a tree", _tree),
    ChatCommand("/branch", "[ENTRY]", "go back to an entry, or list the branches", _branch),
    ChatCommand("/label", "[ENTRY] TEXT", "bookmark an entry, by default the last", _label),
    ChatCommand("/model", "[PROVIDER/MODEL]", "which model answers", _model),
    ChatCommand("/help", "", "this list", _help),
    ChatCommand("/quit", "", "leave; everything is kept", _quit),
)
_BY_NAME = {command.name: command for command in COMMANDS}


async def run_command(chat: ChatLoop, line: str) -> None:
    """Run the slash command on `line`. Raises `Quit`; tells of unknown ones."""
    name, _, rest = line.partition(" ")
    command = _BY_NAME.get(name.lower())
    if command is None:
        raise StrandlineError(f"there is no command {name}", remedy="/help lists them")
    await command.run(chat, rest.strip())
