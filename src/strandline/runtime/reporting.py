"""Failures of code that nobody waits for: in words, and to those who look after the program."""

from __future__ import annotations

import asyncio


def words(error: BaseException) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def report(what: str, error: Exception) -> None:
    """Tell the event loop, which logs it unless somebody gave it another handler."""
    context = {"message": what, "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)
