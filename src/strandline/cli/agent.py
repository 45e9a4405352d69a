"""``strandline agent``: one turn in this process."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.addressing import agent_of
from strandline.cli.notices import note, warn
from strandline.cli.output import json_option, print_json
from strandline.cli.words import safe

if TYPE_CHECKING:
    from strandline.runtime.conversation import Conversation
    from strandline.runtime.events import CompactionReceipt, TurnEvent
    from strandline.runtime.turn import TurnResult


@click.command()
@click.option("--message", "-m", required=True, help="What to say; - reads standard input.")
@click.option("--session-key", help="The conversation; the agent's direct chat by default.")
@click.option("--session-id", help="The session instead of its key; a new id begins one.")
@click.option("--agent", "agent_id", help="The agent that answers; main by default.")
@click.option("--model", "model_ref", help="The model that answers, as provider/model.")
@json_option
@click.pass_obj
def agent(
    state_dir: Path,
    message: str,
    session_key: str | None,
    session_id: str | None,
    agent_id: str | None,
    model_ref: str | None,
    *,
    as_json: bool,
) -> None:
    """Say one thing to an agent and print the answer."""
    from strandline.wiring import open_state  # noqa: PLC0415 - what a turn needs is heavy

    if session_key and session_id:
        raise click.UsageError("give --session-key or --session-id, not both")
    text = sys.stdin.read() if message == "-" else message
    if not text.strip():
        raise click.UsageError("--message is empty")
    state = open_state(state_dir, os.environ, warn=warn)
    who = agent_of(agent_id, session_key)
    if session_id:
        session_key = state.registry(who).key_of_session(session_id)
    key = session_key or state.main_key(who)
    conversation = state.conversation(who, key, model_ref, holder="strandline agent")
    result = asyncio.run(_turn(conversation, text, show=not as_json))
    if as_json:
        print_json(_report(conversation, result))


async def _turn(conversation: Conversation, text: str, *, show: bool) -> TurnResult:
    try:
        result = await conversation.say(text, listener=_print if show else _keep_quiet)
    finally:
        await conversation.close()
    if show:
        click.echo()
    return result


def _print(event: TurnEvent) -> None:
    from strandline.runtime.events import (  # noqa: PLC0415 - heavy
        CompactionReceipt,
        Notice,
        ReplyText,
    )

    if isinstance(event, ReplyText):
        click.echo(safe(event.text), nl=False)
        sys.stdout.flush()
    elif isinstance(event, CompactionReceipt):
        note(f"🧹 Compacted: {event.tokens_before:,} → {event.tokens_after:,} tokens")
    elif isinstance(event, Notice):
        note(event.text)


def _keep_quiet(event: TurnEvent) -> None:
    """With --json nothing but the object is printed."""
    del event


def _report(conversation: Conversation, result: TurnResult) -> dict[str, Any]:
    return {
        "reply": result.reply,
        "sessionKey": conversation.key,
        "sessionId": conversation.session_id,
        "model": conversation.agent.info.ref,
        "usage": result.message.get("usage"),
        "stopReason": result.stop_reason,
        "compactions": len(result.compactions),
        "compactionReceipts": [_receipt(each) for each in result.compactions],
        "contextTokens": result.context_tokens,
        "contextWindow": result.context_window,
        "durationMs": result.duration_ms,
    }


def _receipt(receipt: CompactionReceipt) -> dict[str, Any]:
    return {
        "trigger": receipt.trigger,
        "entryId": receipt.entry_id,
        "tokensBefore": receipt.tokens_before,
        "tokensAfter": receipt.tokens_after,
        "messagesSummarised": receipt.messages_summarised,
        "messagesKept": receipt.messages_kept,
    }
