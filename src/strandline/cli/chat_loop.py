"""The terminal chat: lines go in, turns run, answers come out.

It knows nothing of terminals beyond a `Screen` and a source of lines; `cli.chat` brings
both. Ctrl-C during a reply stops it and keeps what came.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from strandline.cli.branch_text import branch_lines, tree_lines
from strandline.cli.conversation import brief
from strandline.cli.receipts import receipt_line
from strandline.cli.words import cut, one_line
from strandline.errors import StrandlineError
from strandline.runtime.asking import text_of
from strandline.runtime.conversation import Conversation
from strandline.runtime.events import (
    AskedAgain,
    CompactionReceipt,
    CompactionStarted,
    MemoryFlushed,
    Notice,
    ReplyDiscarded,
    ReplyText,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)
from strandline.wiring import State

T = TypeVar("T")
MOST_TOOL_CHARS = 120
RunCommand = Callable[["ChatLoop", str], Awaitable[None]]


class Quit(Exception):
    """The person wants to leave."""


class Screen(Protocol):
    """Where a chat prints; a screen makes texts from outside safe to show."""

    def reply(self, text: str) -> None:
        """More of the model's answer."""
        ...

    def end_reply(self) -> None:
        """The answer is over."""
        ...

    def line(self, text: str) -> None:
        """A line that was asked for."""
        ...

    def status(self, text: str) -> None:
        """A line about the chat itself."""
        ...

    def error(self, error: StrandlineError) -> None:
        """What went wrong, and the remedy."""
        ...


class ChatLoop:
    """One chat in one terminal.

    `run_command` carries out lines that begin with a slash. `failed` tells whether
    anything went wrong in the chat.
    """

    def __init__(
        self,
        state: State,
        agent_id: str,
        conversation: Conversation,
        screen: Screen,
        run_command: RunCommand,
    ) -> None:
        self._state = state
        self._run_command = run_command
        self.agent_id = agent_id
        self.conversation = conversation
        self._screen = screen
        self.failed = False
        self.verbose = conversation.row.verbose_level != "off"

    async def run(self, lines: AsyncIterator[str]) -> None:
        """Answer lines until they end or somebody quits; an error ends its line only."""
        async for line in lines:
            if not line.strip():
                continue
            try:
                await self._stoppable(self._answer(line.strip()))
            except Quit:
                return
            except StrandlineError as error:
                self.failed = True
                self._screen.error(error)
            except asyncio.CancelledError:
                self._screen.status("stopped; what came is kept")
        with suppress(asyncio.CancelledError):
            await self._stoppable(self.conversation.settle())

    async def _answer(self, line: str) -> None:
        if line.startswith("/"):
            await self._run_command(self, line)
            return
        try:
            await self.conversation.say(line, listener=self._show)
        finally:
            self._screen.end_reply()

    async def _stoppable(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work`; Ctrl-C cancels it instead of ending the program."""
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, task.cancel)
        try:
            return await task
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _show(self, event: TurnEvent) -> None:
        match event:
            case ReplyText(text):
                self._screen.reply(text)
            case ReplyDiscarded():
                self._screen.status("the answer so far is void")
            case AskedAgain(model, reason, wait_ms):
                wait = f" in {wait_ms / 1000:.1f} s" if wait_ms else ""
                self._screen.status(f"{reason}; asking {model}{wait}")
            case Notice(text):
                self._screen.status(text)
            case _ if self.verbose:
                self._show_details(event)

    def _show_details(self, event: TurnEvent) -> None:
        """What is shown unless the person does not want it: tools and upkeep."""
        match event:
            case ToolStarted(_, name, arguments):
                self._screen.status(cut(f"· {name} {one_line(brief(arguments))}", MOST_TOOL_CHARS))
            case ToolFinished(_, name, True, message):
                text = one_line(text_of(message))
                self._screen.status(cut(f"· {name} failed: {text}", MOST_TOOL_CHARS))
            case CompactionStarted(trigger):
                self._screen.status(f"🧹 Compacting ({trigger}) …")
            case CompactionReceipt():
                count = self.conversation.row.compaction_count or 0
                automatic = event.trigger != "manual"
                self._screen.status(receipt_line(event, count + 1 if automatic else None))
            case MemoryFlushed(notes, _) if notes:
                self._screen.status(f"· memory: {notes} notes written")

    # -- what commands use -----------------------------------------------------------------

    async def compact(self, instructions: str | None) -> None:
        """Compact now and say what came of it."""
        await self.conversation.compact(instructions, listener=self._show)

    async def retry(self) -> None:
        """Answer what was said last and has no answer."""
        try:
            await self.conversation.retry(listener=self._show)
        finally:
            self._screen.end_reply()

    async def branch(self, entry_id: str, *, summarize: bool, instructions: str | None) -> None:
        """Go to another entry, with a summary of what is left if that is wanted."""
        gone = await self.conversation.branch(
            entry_id, summarize=summarize, instructions=instructions, listener=self._show
        )
        if gone.summary is not None:
            self.say_status(f"a summary by {gone.summary.by} came along")

    def tools(self) -> list[tuple[str, str]]:
        """The tools that the agent has, each with its purpose."""
        return self._state.toolbox(self.agent_id).purposes()

    async def use_model(self, ref: str) -> None:
        """Let another model answer. Raises `ConfigError` for one that cannot."""
        await self.conversation.use(self._state.agent(self.agent_id, ref))
        self.say_status(f"{ref} answers from here on")

    def models(self) -> str:
        """The models that can be used, in a line."""
        return ", ".join(self._state.model_refs())

    def say(self, text: str) -> None:
        """A line that was asked for."""
        self._screen.line(text)

    def say_status(self, text: str) -> None:
        """Tell something about the chat."""
        self._screen.status(text)

    def print_table(self, *rows: tuple[str, str]) -> None:
        """Names and values in two columns."""
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            self._screen.line(f"{name:<{width}}  {value}")

    def print_tree(self) -> None:
        """The tree of the session."""
        for line in tree_lines(self.conversation.session):
            self._screen.line(line)

    def print_branches(self) -> None:
        """The tips of all branches, with the command that goes there."""
        for line in branch_lines(self.conversation.session):
            self._screen.line(line)
