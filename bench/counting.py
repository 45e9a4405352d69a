"""Counting tokens: texts that nobody counted before, and a message that somebody did."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.histories import MB, user_message
from bench.measure import once_s
from bench.table import Row, duration
from bench.texts import LANGUAGES, TEXT_BYTES, texts
from strandline.context.tokens import MessageTokens
from strandline.models.tokenizer import counter

TITLE = "Counting tokens"
MB_PER_S = 20
ROUNDS = 5
"""The best round counts, for both: what else runs on a machine only ever slows it."""

_PIECES = re.compile(r"\w+|[^\w\s]+|\s+")
"""The control: a text cut into words, which is less than half of what a tokenizer does."""


def rows(folder: Path, *, quick: bool) -> Iterator[Row]:  # noqa: ARG001 - writes nothing
    """Every row; `quick` is a tenth of the texts."""
    counting = counter("tiktoken")
    counting.count("the vocabulary is loaded with the first text")
    for language in LANGUAGES:
        yield _unseen(language, counting.count, texts(language, 500 if quick else 5_000))
    yield _seen(MessageTokens(counting))


def _unseen(language: str, count: Callable[[str], int], unseen: Sequence[str]) -> Row:
    ours = control = 0.0
    for start in range(0, len(unseen), len(unseen) // ROUNDS):
        some = unseen[start : start + len(unseen) // ROUNDS]
        size = sum(len(text.encode()) for text in some) / MB
        control = max(control, size / once_s(lambda: [_PIECES.findall(t) for t in some]))  # noqa: B023 - called at once
        ours = max(ours, size / once_s(lambda: [count(text) for text in some]))  # noqa: B023 - called at once
    wanted = language != "English"
    return Row(
        f"{language}, unseen texts of {TEXT_BYTES // 1000} KB",
        f"{ours:.1f} MB/s",
        f"cutting it into words with re: {control:.1f} MB/s",
        ours / control,
        f"≥ {MB_PER_S} MB/s" if wanted else "",
        ours >= MB_PER_S if wanted else None,
    )


def _seen(tokens: MessageTokens) -> Row:
    message = user_message(1)
    first = once_s(lambda: tokens.of("seen", message))
    again = once_s(lambda: [tokens.of("seen", message) for _ in range(1000)]) / 1000
    return Row(
        "a message that was counted before",
        duration(again),
        f"the first time: {duration(first)}",
        first / again,
        "each once",
        again < first,
    )
