"""``strandline chat``: a conversation in the terminal, or of each line of a pipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strandline.cli.addressing import agent_of
from strandline.cli.notices import warn
from strandline.cli.output import columns
from strandline.cli.row_text import row_line
from strandline.cli.words import amount, cut, one_line
from strandline.errors import StrandlineError
from strandline.sessions.rows import transcript_name

if TYPE_CHECKING:
    from strandline.cli.chat_loop import ChatLoop, Screen
    from strandline.runtime.conversation import Conversation
    from strandline.runtime.registry import SessionRegistry
    from strandline.sessions.rows import SessionRow
    from strandline.wiring import State

MOST_LISTED = 9


@click.command()
@click.option("--agent", "agent_id", help="The agent to talk to; main by default.")
@click.option("--session-key", help="The conversation to go on with.")
@click.option("--new", is_flag=True, help="Begin a new conversation without asking.")
@click.option("--model", "model_ref", help="The model that answers, as provider/model.")
@click.pass_obj
def chat(
    state_dir: Path,
    agent_id: str | None,
    session_key: str | None,
    *,
    new: bool,
    model_ref: str | None,
) -> None:
    """Talk to an agent. Without a terminal, answer each line of standard input."""
    from strandline.cli.stopping import run  # noqa: PLC0415 - what a chat needs is heavy
    from strandline.wiring import open_state  # noqa: PLC0415

    state = open_state(state_dir, os.environ, warn=warn)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    who = agent_of(agent_id, session_key)
    key = session_key or _choose_key(state, who, new=new, ask=interactive)
    # Plugins are loaded here: one that hangs is left with Ctrl-C, which the loop would hold back.
    conversation = state.conversation(who, key, model_ref, holder="strandline chat")
    failed = run(_chat(state, who, conversation, interactive=interactive))
    if failed and not interactive:
        raise SystemExit(1)


async def _chat(
    state: State, agent_id: str, conversation: Conversation, *, interactive: bool
) -> bool:
    from strandline.cli.chat_commands import run_command  # noqa: PLC0415 - heavy
    from strandline.cli.chat_loop import ChatLoop  # noqa: PLC0415 - heavy
    from strandline.cli.lines import piped_lines, typed_lines  # noqa: PLC0415 - needs asyncio
    from strandline.cli.screen import TerminalScreen  # noqa: PLC0415 - needs asyncio
    from strandline.cli.telling import tell_notices  # noqa: PLC0415 - heavy

    screen = TerminalScreen()
    loop = ChatLoop(state, agent_id, conversation, screen, run_command, interactive=interactive)
    try:
        if interactive:
            _greet(loop, screen)
        await loop.run(typed_lines() if interactive else piped_lines())
    finally:
        await loop.conversation.close(tell_notices)
    return loop.failed


def _greet(loop: ChatLoop, screen: Screen) -> None:
    conversation = loop.conversation
    count = conversation.session.entry_count
    screen.status(f"{conversation.agent.info.ref} · {conversation.key} · /help for commands")
    if count:
        entries = amount(count, "entry", "entries")
        screen.status(f"going on with {conversation.session_id} ({entries})")


# -- which conversation ------------------------------------------------------------------


def _choose_key(state: State, agent_id: str, *, new: bool, ask: bool) -> str:
    """The conversation to go on with: asked for where there is a choice and somebody to ask."""
    registry = state.registry(agent_id)
    if new:
        return registry.new_key()
    main = state.main_key(agent_id)
    recent = _recent(state, agent_id, registry)
    if not ask or not recent:
        return main
    return _pick(registry, recent)


def _recent(state: State, agent_id: str, registry: SessionRegistry) -> list[tuple[str, str]]:
    """The newest conversations: key, and a line about each."""
    now_ms = state.clock.now_ms()
    rows = sorted(registry.rows().items(), key=lambda item: -(item[1].updated_at or 0))
    return [
        (key, f"{row_line(key, row, now_ms)}  {_last_words(state, agent_id, row)}")
        for key, row in rows[:MOST_LISTED]
    ]


def _last_words(state: State, agent_id: str, row: SessionRow) -> str:
    """The session's name, or what the person said last; nothing where that cannot be read."""
    from strandline.cli.gist import message_words  # noqa: PLC0415 - only where there is a choice
    from strandline.manager import SessionManager  # noqa: PLC0415 - as above

    path = state.sessions_folder(agent_id) / transcript_name(row)
    try:
        with SessionManager.open(path, cache_dir=state.cache) as session:
            said = [m for m in session.build_context().messages if m.get("role") == "user"]
            return session.name or (message_words(said[-1]) if said else "")
    except StrandlineError:
        return ""


def _pick(registry: SessionRegistry, recent: list[tuple[str, str]]) -> str:
    for number, (_, line) in enumerate(recent, 1):
        click.echo(cut(f"{number}  {one_line(line)}", columns()))
    click.echo("n  a new conversation")
    while True:
        answer = click.prompt("Which one?", default="1", show_default=True).strip().lower()
        if answer in {"n", "new"}:
            return registry.new_key()
        if answer.isdecimal() and 1 <= int(answer) <= len(recent):
            return recent[int(answer) - 1][0]
        click.echo(f"say a number from 1 to {len(recent)}, or n")
