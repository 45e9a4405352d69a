"""Where the lines of a chat come from: a person at a prompt, or a pipe."""

from __future__ import annotations

import asyncio
import codecs
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

PIECE_BYTES = 1 << 16


async def piped_lines() -> AsyncIterator[str]:
    """The lines of standard input, in UTF-8; what is none becomes U+FFFD.

    They are read by a thread of their own that nobody waits for: a pipe that stays silent
    does not keep the program from ending.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    waiting = ""
    while piece := await _next_piece():
        *lines, waiting = (waiting + decoder.decode(piece)).split("\n")
        for line in lines:
            yield line
    yield waiting + decoder.decode(b"", final=True)


async def _next_piece() -> bytes:
    loop = asyncio.get_running_loop()
    came: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        # Not through the buffer: its lock, held by this thread, would stop the interpreter's end.
        source = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        try:
            piece, error = source.read(PIECE_BYTES), None
        except OSError as problem:
            piece, error = b"", problem
        with suppress(RuntimeError):  # the chat is over, its loop is closed
            loop.call_soon_threadsafe(_arrive, came, piece or b"", error)

    threading.Thread(target=read, name="standard input", daemon=True).start()
    return await came


def _arrive(came: asyncio.Future[bytes], piece: bytes, error: OSError | None) -> None:
    if came.cancelled():
        return
    if error is not None:
        came.set_exception(error)
    else:
        came.set_result(piece)


async def typed_lines() -> AsyncIterator[str]:
    """Lines with editing, history and completion; Ctrl-C empties the line, Ctrl-D leaves."""
    from prompt_toolkit import PromptSession  # noqa: PLC0415 - only with a terminal
    from prompt_toolkit.completion import WordCompleter  # noqa: PLC0415
    from prompt_toolkit.patch_stdout import patch_stdout  # noqa: PLC0415

    from strandline.cli.chat_commands import COMMANDS  # noqa: PLC0415

    names = {command.name: command.purpose for command in COMMANDS}
    completer = WordCompleter(list(names), meta_dict=names, sentence=True)
    prompt: PromptSession[str] = PromptSession("> ", completer=completer)
    while True:
        try:
            with patch_stdout(raw=True):  # what is done after a turn is told above the prompt
                line = await prompt.prompt_async(handle_sigint=False)
            yield line
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
