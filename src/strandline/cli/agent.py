"""``strandline agent``: one turn in this process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.addressing import agent_of
from strandline.cli.notices import warn
from strandline.cli.output import json_option, print_json
from strandline.cli.stopping import FINISHING, GIVEN_UP, run, stoppable

if TYPE_CHECKING:
    from strandline.cli.screen import TerminalScreen
    from strandline.cli.telling import Telling
    from strandline.runtime.conversation import Conversation
    from strandline.runtime.events import CompactionReceipt
    from strandline.runtime.turn_result import TurnResult


WAITING = "waiting for sub-agents"


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
    text = sys.stdin.buffer.read().decode(errors="replace") if message == "-" else message
    if not text.strip():
        raise click.UsageError("--message is empty")
    state = open_state(state_dir, os.environ, warn=warn)
    who = agent_of(agent_id, session_key)
    if session_id:
        session_key = state.registry(who).key_of_session(session_id)
    key = session_key or state.main_key(who)
    conversation = state.conversation(who, key, model_ref, holder="strandline agent")
    # What an engine prints is no part of the answer.
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        result = run(_turn(conversation, text, silent=as_json))
    if as_json:
        print_json(_report(conversation, result))


async def _turn(conversation: Conversation, text: str, *, silent: bool) -> TurnResult:
    """The turn and what follows it; a `silent` one prints nothing but notices."""
    from strandline.cli.screen import TerminalScreen  # noqa: PLC0415 - heavy
    from strandline.cli.telling import Telling, tell_notices  # noqa: PLC0415 - heavy

    def so_far() -> tuple[str, int]:
        return conversation.session_id, conversation.row.compaction_count or 0

    screen = TerminalScreen()
    told = conversation.row.verbose_level != "off"
    telling = Telling(screen, so_far, verbose=told)
    try:
        with screen.working():
            try:
                heard = tell_notices if silent else telling.hear
                result = await conversation.say(text, listener=heard)
            finally:
                telling.end()
        result = await _answered(conversation, result, screen, telling, silent=silent)
        made = await _settled(conversation, screen, silent=silent)
    finally:
        telling.no_more()
        await conversation.close(tell_notices)
    return replace(result, compactions=(*result.compactions, *made))


async def _answered(
    conversation: Conversation,
    result: TurnResult,
    screen: TerminalScreen,
    telling: Telling,
    *,
    silent: bool,
) -> TurnResult:
    """The turn, or what the agent made of its sub-agents' results; Ctrl-C gives them up."""
    if conversation.subagents is None or not conversation.subagents.list():
        return result
    if not silent:
        conversation.subagents.attend(telling.hear)
    try:
        with screen.working(WAITING):
            answers = await stoppable(conversation.subagents.wait())
    except asyncio.CancelledError:
        if not silent:
            screen.status(GIVEN_UP)
        return result
    finally:
        telling.end()
    return _together(result, answers) if answers else result


def _together(first: TurnResult, later: Sequence[TurnResult]) -> TurnResult:
    """One result of several turns: what was answered last, and what all of them took."""
    turns = [first, *later]
    return replace(
        later[-1],
        user_entry_id=first.user_entry_id,
        answers=tuple(answer for turn in turns for answer in turn.answers),
        compactions=tuple(made for turn in turns for made in turn.compactions),
        duration_ms=sum(turn.duration_ms for turn in turns),
    )


async def _settled(
    conversation: Conversation, screen: TerminalScreen, *, silent: bool
) -> tuple[CompactionReceipt, ...]:
    """What was compacted after the turn; Ctrl-C gives that up, for the answer is there."""
    try:
        with screen.working(FINISHING):
            return await stoppable(conversation.settle())
    except asyncio.CancelledError:
        if not silent:
            screen.status(GIVEN_UP)
        return ()


def _report(conversation: Conversation, result: TurnResult) -> dict[str, Any]:
    from strandline.cli.receipts import receipt_json  # noqa: PLC0415 - heavy

    return {
        "reply": result.reply,
        "sessionKey": conversation.key,
        "sessionId": conversation.session_id,
        "model": result.info.ref,
        "usage": result.usage,
        "stopReason": result.stop_reason,
        "modelCalls": len(result.answers),
        "compactions": len(result.compactions),
        "compactionReceipts": [receipt_json(each) for each in result.compactions],
        "contextTokens": result.context_tokens,
        "contextWindow": result.context_window,
        "cache": _cache(conversation),
        "durationMs": result.duration_ms,
    }


def _cache(conversation: Conversation) -> dict[str, Any] | None:
    """What the provider's cache did for the last answer, where that is known."""
    used = conversation.cache_used
    if used is None:
        return None
    return {
        "read": used.read,
        "written": used.written,
        "fresh": used.fresh,
        "expected": used.expected,
        "why": used.why,
    }
