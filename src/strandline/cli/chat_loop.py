"""The terminal chat: lines go in, turns run, answers come out.

It knows nothing of terminals beyond a `Screen` and a source of lines; `cli.chat` brings
both. Ctrl-C during a reply stops it and keeps what came.
"""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Protocol

from strandline.cli.branch_text import branch_lines, tree_lines
from strandline.cli.output import columns
from strandline.cli.stopping import FINISHING, GIVEN_UP, stoppable
from strandline.cli.telling import Shown, Telling
from strandline.cli.words import one_line
from strandline.errors import StrandlineError
from strandline.runtime.conversation import Conversation
from strandline.runtime.events import ReplyText, TurnEvent
from strandline.wiring import State

RunCommand = Callable[["ChatLoop", str], Coroutine[Any, Any, None]]


class Quit(Exception):
    """The person wants to leave."""


class Screen(Shown, Protocol):
    """Where a chat prints; a screen makes texts from outside safe to show."""

    def working(self, words: str = ...) -> AbstractContextManager[None]:
        """While this lasts, long waits are told."""
        ...

    def unechoed(self) -> AbstractContextManager[None]:
        """While this lasts, what is typed ahead is not shown among the answers."""
        ...

    def line(self, text: str) -> None:
        """A line that was asked for."""
        ...

    def error(self, error: StrandlineError) -> None:
        """What went wrong, and the remedy."""
        ...


class ChatLoop:
    """One chat in one terminal.

    `run_command` carries out lines that begin with a slash. `failed` tells whether
    anything went wrong in the chat. A person at the terminal (`interactive`) who presses
    Ctrl-C stops the reply; otherwise that ends the chat, with `asyncio.CancelledError`.
    """

    def __init__(
        self,
        state: State,
        agent_id: str,
        conversation: Conversation,
        screen: Screen,
        run_command: RunCommand,
        *,
        interactive: bool = False,
    ) -> None:
        self._state = state
        self._run_command = run_command
        self._interactive = interactive
        self.agent_id = agent_id
        self.conversation = conversation
        self._screen = screen
        self.failed = False
        told = conversation.row.verbose_level != "off"
        self._telling = Telling(screen, self._compactions, verbose=told)
        if conversation.subagents is not None:
            conversation.subagents.attend(self._hear_aside)

    async def run(self, lines: AsyncIterator[str]) -> None:
        """Answer lines until they end or somebody quits; an error ends its line only."""
        async for line in lines:
            if not line.strip():
                continue
            try:
                await self._attend(line.strip())
            except Quit:
                break
            except StrandlineError as error:
                self.failed = True
                self._screen.error(error)
        await self._leave()

    async def _attend(self, line: str) -> None:
        """Answer one line; Ctrl-C stops that."""
        command = line.startswith("/")
        try:
            with self._screen.unechoed(), self._screen.working():
                await stoppable(self._run_command(self, line) if command else self._say(line))
        except asyncio.CancelledError:
            self._screen.status("stopped" if command else "stopped; what came is kept")
            if not self._interactive:
                raise
        finally:
            self._telling.end()

    async def _say(self, line: str) -> None:
        await self.conversation.say(line, listener=self._telling.hear)

    def _hear_aside(self, event: TurnEvent) -> None:
        """What is said when nobody asked: to what sub-agents announce, one text at a time."""
        self._telling.hear(event)
        if isinstance(event, ReplyText):
            self._telling.end()

    async def _leave(self) -> None:
        """Wait for what is done after the last turn; Ctrl-C gives it up, nothing is lost."""
        try:
            with self._screen.unechoed(), self._screen.working(FINISHING):
                await stoppable(self.conversation.settle())
        except asyncio.CancelledError:
            self._screen.status(GIVEN_UP)
        finally:
            self._telling.no_more()

    def _compactions(self) -> tuple[str, int]:
        return self.conversation.session_id, self.conversation.row.compaction_count or 0

    # -- what commands use -----------------------------------------------------------------

    @property
    def verbose(self) -> bool:
        """Whether tools and upkeep are told."""
        return self._telling.verbose

    async def set_verbose(self, *, verbose: bool) -> None:
        """Tell of tools and upkeep from now on, or don't; the row remembers it."""
        await self.conversation.set_verbose("on" if verbose else "off")
        self._telling.verbose = verbose

    async def compact(self, instructions: str | None) -> None:
        """Compact now and say what came of it."""
        self._telling.verbose, before = True, self._telling.verbose  # it was asked for
        try:
            receipt = await self.conversation.compact(instructions, listener=self._telling.hear)
        finally:
            self._telling.verbose = before
        if receipt is None:
            engine = self.conversation.agent.engine.id
            self.say_status(f"the engine {engine} made smaller what it keeps itself")

    async def retry(self) -> None:
        """Answer what was said last and has no answer."""
        await self.conversation.retry(listener=self._telling.hear)

    async def branch(self, entry_id: str, *, summarize: bool, instructions: str | None) -> None:
        """Go to another entry, with a summary of what is left if that is wanted."""
        gone = await self.conversation.branch(
            entry_id,
            summarize=summarize,
            instructions=instructions,
            listener=self._telling.hear,
        )
        if gone.summary is not None:
            self.say_status(f"a summary of what is left, by {gone.summary.by}, came along")
        elif summarize:
            self.say_status("nothing is left behind that could be summarised")

    def tools(self) -> list[tuple[str, str]]:
        """The tools that the agent has, each with its purpose in a sentence."""
        return [
            (name, one_line(purpose).partition(". ")[0].removesuffix("."))
            for name, purpose in self._state.toolbox(self.agent_id).purposes()
        ]

    async def new_conversation(self, ref: str | None) -> None:
        """Begin another conversation, with the model `ref` if one is given."""
        agent = self._state.agent(self.agent_id, ref) if ref else None
        await self.conversation.move_to(None)
        if agent is not None:
            await self.conversation.use(agent)

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
        """Names and values in two columns; what is too wide goes on below itself."""
        width = max(len(name) for name, _ in rows)
        room = max(20, columns() - width - 2)
        for name, value in rows:
            first, *more = textwrap.wrap(value, room) or [""]
            self._screen.line(f"{name:<{width}}  {first}")
            for line in more:
                self._screen.line(f"{'':<{width}}  {line}")

    def print_tree(self) -> None:
        """The tree of the session."""
        for line in tree_lines(self.conversation.session):
            self._screen.line(line)

    def print_branches(self) -> None:
        """The tips of all branches, with the command that goes there."""
        for line in branch_lines(self.conversation.session):
            self._screen.line(line)
