"""The slash commands of a chat: one function each, in one table.

A command gets the chat and the rest of its line, and prints its answer through the chat.
The table is also the source of `/help` and of completion.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

from strandline.cli.chat_loop import ChatLoop, Quit
from strandline.cli.chat_subagents import spawn_command, subagents_command
from strandline.cli.receipts import plan_lines
from strandline.cli.telling import cache_line
from strandline.cli.words import amount
from strandline.errors import EntryNotFound, StrandlineError
from strandline.runtime.assembling import PIN
from strandline.runtime.standing import MODES
from strandline.transcript.messages import THINKING_LEVELS
from strandline.transcript.session import Session

FEWEST_OF_AN_ID = 4
"""So much of an id names an entry: less may be a word of a label."""

Run = Callable[[ChatLoop, str], Coroutine[Any, Any, None]]


class ChatCommand(NamedTuple):
    """A slash command: its name, what may follow it, what it does, and the doing."""

    name: str
    arguments: str
    purpose: str
    run: Run


async def _new(chat: ChatLoop, rest: str) -> None:
    await chat.new_conversation(rest or None)
    conversation = chat.conversation
    chat.say_status(f"new conversation: {conversation.key} · {conversation.agent.info.ref}")


async def _reset(chat: ChatLoop, _rest: str) -> None:
    await chat.conversation.reset()
    chat.say_status(
        f"new session {chat.conversation.session_id}; the old one is kept as an archive"
    )


async def _compact(chat: ChatLoop, rest: str) -> None:
    words = rest.split()
    if "--preview" not in words:
        await chat.compact(rest or None)
        return
    words.remove("--preview")
    conversation = chat.conversation
    plan = await conversation.preview_compaction(" ".join(words) or None)
    agent = conversation.agent
    for line in plan_lines(plan, agent.budget(), agent.summarizer.name):
        chat.say(line)


async def _undo_compact(chat: ChatLoop, _rest: str) -> None:
    undone = await chat.conversation.undo_compaction()
    copied = undone.messages_copied
    again = f"; {amount(copied, 'message')} after it came along" if copied else ""
    chat.say_status(f"the conversation is in full again, without {undone.compaction_id}{again}")
    if chat.conversation.compaction_mode == "auto":
        chat.say_status("/compaction off keeps it from being compacted again")


async def _compaction(chat: ChatLoop, rest: str) -> None:
    conversation = chat.conversation
    if not rest:
        chat.say_status(f"compaction is {conversation.compaction_mode} here")
        return
    mode = next((mode for mode in MODES if mode == rest), None)
    if mode is None and rest != "default":
        raise StrandlineError(
            f"{rest!r} is no mode of compaction", remedy=f"say {', '.join(MODES)} or default"
        )
    await conversation.set_compaction_mode(mode)
    chat.say_status(f"compaction is {conversation.compaction_mode} here from now on")


async def _think(chat: ChatLoop, rest: str) -> None:
    if not rest:
        level = chat.conversation.session.build_context().thinking_level
        chat.say_status(f"thinking is {level} here")
        return
    found = next((level for level in THINKING_LEVELS if level == rest), None)
    if found is None:
        raise StrandlineError(
            f"{rest!r} is no level of thinking", remedy=f"say one of {', '.join(THINKING_LEVELS)}"
        )
    await chat.conversation.set_thinking(found)
    able = chat.conversation.agent.info.reasoning
    chat.say_status(f"thinking is {rest} here" + ("" if able else "; this model cannot"))


async def _retry(chat: ChatLoop, _rest: str) -> None:
    await chat.retry()


async def _tools(chat: ChatLoop, _rest: str) -> None:
    tools = chat.tools()
    if not tools or not chat.conversation.agent.info.tools:
        chat.say_status(f"{chat.conversation.agent.info.ref} is offered no tools here")
    else:
        chat.print_table(*tools)


async def _verbose(chat: ChatLoop, rest: str) -> None:
    if rest and rest not in {"on", "off"}:
        raise StrandlineError(f"{rest!r} is neither on nor off", remedy="say /verbose on or off")
    if rest:
        await chat.set_verbose(verbose=rest == "on")
    chat.say_status(f"tools and compactions are {'told' if chat.verbose else 'not told'}")


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


async def _cache(chat: ChatLoop, _rest: str) -> None:
    used = chat.conversation.cache_used
    if used is None:
        chat.say_status("nothing is known of the provider's cache yet: it is told with an answer")
        return
    chat.say_status(cache_line(used))
    if used.written:
        chat.say_status(f"{used.written:,} tokens were written to it")
    if used.change is not None and used.change.entry_id is not None:
        chat.say_status(f"the first change is in entry {used.change.entry_id}")


async def _tree(chat: ChatLoop, _rest: str) -> None:
    chat.print_tree()


async def _branch(chat: ChatLoop, rest: str) -> None:
    session = chat.conversation.session
    if not rest:
        chat.print_branches()
        return
    entry, wants_summary, instructions = rest.partition("--summary")
    entry_id = _found(session, entry.strip())
    await chat.branch(
        entry_id, summarize=bool(wants_summary), instructions=instructions.strip() or None
    )
    chat.say_status(f"standing at {entry_id}; what you say next grows a branch from there")


def _found(session: Session, text: str) -> str:
    """The entry of that id, beginning of an id or label. Raises `EntryNotFound`."""
    if not text:
        raise EntryNotFound("no entry is named", remedy="say /branch ENTRY --summary")
    try:
        return session.find(text)
    except EntryNotFound as error:
        raise EntryNotFound(error.what, remedy="/tree shows ids and labels") from None


async def _label(chat: ChatLoop, rest: str) -> None:
    session = chat.conversation.session
    entry_id, label = _entry_and_label(session, rest)
    if entry_id is None or not label:
        chat.say_status("say which: /label TEXT, or /label ENTRY TEXT")
        return
    session.append_label(entry_id, label)
    chat.say_status(f"{entry_id} is now {label!r}")


def _entry_and_label(session: Session, rest: str) -> tuple[str | None, str]:
    """The entry that the first word names and the rest; else the newest message and all of it.

    A pin that would miss the entry that was meant raises `EntryNotFound`.
    """
    first, _, label = rest.partition(" ")
    if label and len(first) >= FEWEST_OF_AN_ID:
        with suppress(EntryNotFound):
            found = session.find(first)
            if found.startswith(first):  # a label may be a word of the new one
                return found, label.strip()
    if label.strip() == PIN:
        raise EntryNotFound(f"there is no entry {first!r}", remedy="/tree shows their ids")
    items = session.build_context().items
    return (items[-1].entry_id if items else None), rest


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
    ChatCommand(
        "/compact",
        "[--preview] [INSTRUCTIONS]",
        "summarise what is older, or say what would be",
        _compact,
    ),
    ChatCommand("/undo-compact", "", "stand where it stood before the compaction", _undo_compact),
    ChatCommand(
        "/compaction",
        "[auto|off|error|default]",
        "whether this session is compacted by itself",
        _compaction,
    ),
    ChatCommand("/status", "", "session, model, context, tokens, cost", _status),
    ChatCommand("/cache", "", "what the provider's cache did for the last answer", _cache),
    ChatCommand("/tree", "", "the conversation as a tree", _tree),
    ChatCommand(
        "/branch",
        "[ENTRY] [--summary [INSTRUCTIONS]]",
        "go back to an entry, or list the branches",
        _branch,
    ),
    ChatCommand("/label", "[ENTRY] TEXT", "bookmark an entry, or the newest message", _label),
    ChatCommand("/model", "[PROVIDER/MODEL]", "which model answers", _model),
    ChatCommand("/think", "[LEVEL]", "how hard the model thinks", _think),
    ChatCommand("/retry", "", "answer what got no answer, without saying it again", _retry),
    ChatCommand("/tools", "", "what the agent may use", _tools),
    ChatCommand("/spawn", "[--fork] TASK", "give a task to a sub-agent", spawn_command),
    ChatCommand(
        "/subagents", "[stop KEY]", "the sub-agents of this chat, or stop one", subagents_command
    ),
    ChatCommand("/verbose", "[on|off]", "whether tools and compactions are told", _verbose),
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
