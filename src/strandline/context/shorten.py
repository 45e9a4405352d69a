"""Shortening one message in the view; the transcript keeps all of it.

Head and tail stay, a note says how much is missing between them. Cuts fall between code
points. Images and other base64 are never cut: they are left out with a note.
Source: spec 3, Budget and compaction (Guaranteed progress).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from strandline.context.blocks import json_text, text_block
from strandline.context.restate import restated
from strandline.context.tokens import (
    IMAGE_TOKENS,
    MESSAGE_OVERHEAD_TOKENS,
    MessageTokens,
    TokenCounter,
)
from strandline.context.view import Decision, View, ViewMessage
from strandline.transcript.messages import JsonObject, Message

HEAD_SHARE = 0.6
"""How much of a shortened text is its beginning; the rest is its end."""

MOST_CHARS_A_TOKEN = 6
"""Texts with more characters a token than this are rare; the first guess starts here."""

SMALLEST_SHARE_TOKENS = 32
"""Blocks that would get less than this of the room each are joined first."""

NOTHING_LEFT = "[left out for its size]"

_NOTE = re.compile(r"\n\[… ([\d,]+) characters left out …\]\n")
# In one piece (PHP writes \/ for /), or in lines, as mails and the command `base64` have it.
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/_-])"
    r"(?:(?:[A-Za-z0-9+/_-]|\\/){256,}|(?:[A-Za-z0-9+/]{60,}(?:\r?\n|\\n)){4,}[A-Za-z0-9+/]*)"
    r"={0,2}"
)


def shorten_text(text: str, max_tokens: int, counter: TokenCounter) -> str:
    """`text` in at most `max_tokens` tokens: its head, a note, its tail.

    Where not even the note fits, as much of the beginning as does.
    """
    text = _without_base64(text)
    keep = max(0, max_tokens) * MOST_CHARS_A_TOKEN
    if len(text) <= keep and counter.count(text) <= max_tokens:
        return text
    keep = min(keep, len(text))
    while keep > 0:
        candidate = _head_and_tail(text, keep)
        counted = counter.count(candidate)
        if counted <= max_tokens:
            return candidate
        keep = min(keep * max_tokens // counted, keep - 1 - keep // 16)
    return _head(text, max_tokens, counter)


def _head_and_tail(text: str, keep: int) -> str:
    head = int(keep * HEAD_SHARE)
    tail = keep - head
    cut = text[head : len(text) - tail]
    # A text that was shortened before has a note here: its count is part of ours.
    missing = len(cut)
    for note in _NOTE.finditer(cut):
        missing += int(note[1].replace(",", "")) - len(note[0])
    return f"{text[:head]}\n[… {missing:,} characters left out …]\n{text[len(text) - tail :]}"


def _head(text: str, max_tokens: int, counter: TokenCounter) -> str:
    keep = max(0, max_tokens) * MOST_CHARS_A_TOKEN
    while keep > 0 and counter.count(text[:keep]) > max_tokens:
        keep = keep * 3 // 4
    return text[:keep]


def _without_base64(text: str) -> str:
    return _BASE64.sub(_base64_note, text)


def _base64_note(run: re.Match[str]) -> str:
    """A note in place of what looks encoded; a long word of one kind of letter is not."""
    found = run[0]
    kinds = (str.islower, str.isupper, str.isdigit)
    if all(any(kind(char) for char in found) for kind in kinds):
        return f"[base64, {len(found):,} characters left out]"
    return found


def shorten_message(message: Message, max_tokens: int, tokens: MessageTokens) -> Message:
    """The message in at most `max_tokens` tokens, as far as shortening its parts can do it.

    A message of very many small parts (a thousand calls) stays larger.
    """
    room = max_tokens - MESSAGE_OVERHEAD_TOKENS
    while True:
        shorter = _with_parts_within(message, room, tokens.counter)
        excess = tokens.count(shorter) - max_tokens
        if excess <= 0 or room <= 0:
            return shorter
        # Parts that are joined may count more than apart: try again with that much less.
        room = min(room - excess, room * 7 // 8)


def _with_parts_within(message: Message, room: int, counter: TokenCounter) -> Message:
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": shorten_text(content, room, counter)}
    if not isinstance(content, list):
        return message
    blocks = [block for block in content if block.get("type") != "thinking"]
    if len(blocks) * SMALLEST_SHARE_TOKENS > room:
        blocks = _with_texts_joined(blocks)
    shorter = _blocks_within(blocks, room, counter)
    told = [block for block in shorter if block.get("text") != ""]
    return {**message, "content": told or [text_block(NOTHING_LEFT)]}


def _blocks_within(
    blocks: Sequence[JsonObject], room: int, counter: TokenCounter
) -> list[JsonObject]:
    sizes = [_size(block, counter) for block in blocks]
    # A quarter of the room is enough for words, if there are that many.
    words = min(sum(sizes), room // 4)
    images = (room - words) // IMAGE_TOKENS
    room -= IMAGE_TOKENS * min(images, sum(block.get("type") == "image" for block in blocks))
    share = fair_share(sizes, room)
    shorter = [
        block if size <= share else _block_within(block, share, counter)
        for block, size in zip(blocks, sizes, strict=True)
    ]
    return _with_images(shorter, images)


def _with_texts_joined(blocks: Sequence[JsonObject]) -> list[JsonObject]:
    """The same blocks with one text in place of many, where the first of them was."""
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
    joined, kept = [text_block("\n".join(texts))] if texts else [], []
    for block in blocks:
        if block.get("type") == "text":
            kept += joined
            joined = []
        else:
            kept.append(block)
    return kept


def _with_images(blocks: Sequence[JsonObject], allowed: int) -> list[JsonObject]:
    """The blocks with the first `allowed` images, and one note for all the others."""
    images = [index for index, block in enumerate(blocks) if block.get("type") == "image"]
    dropped = images[max(0, allowed) :]
    if not dropped:
        return list(blocks)
    note = text_block(f"[images left out for their size: {len(dropped)}]")
    kept = [note if index == dropped[0] else block for index, block in enumerate(blocks)]
    return [block for index, block in enumerate(kept) if index not in set(dropped[1:])]


def _size(block: JsonObject, counter: TokenCounter) -> int:
    match block.get("type"):
        case "text":
            return counter.count(str(block.get("text", "")))
        case "toolCall":
            return counter.count(json_text(block.get("arguments")))
        case _:
            return 0


def fair_share(sizes: Sequence[int], room: int) -> int:
    """The largest cap at which the sizes, each cut to the cap, add up to at most `room`.

    >>> fair_share([10, 200, 300], 110)
    50
    """
    ordered = sorted(sizes)
    left = room
    for index, size in enumerate(ordered):
        share = left // (len(ordered) - index)
        if size > share:
            return max(0, share)
        left -= size
    return max(0, room)


def _block_within(block: JsonObject, share: int, counter: TokenCounter) -> JsonObject:
    if block.get("type") == "toolCall":
        return {**block, "arguments": _arguments_within(block["arguments"], share, counter)}
    return {**block, "text": shorten_text(str(block.get("text", "")), share, counter)}


def _arguments_within(arguments: JsonObject, share: int, counter: TokenCounter) -> JsonObject:
    """The arguments with their long texts shortened, or a shortened text of all of them."""
    texts = {key: value for key, value in arguments.items() if isinstance(value, str)}
    cap = fair_share([counter.count(text) for text in texts.values()], share * 3 // 4)
    shorter = {**arguments, **{k: shorten_text(v, cap, counter) for k, v in texts.items()}}
    if counter.count(json_text(shorter)) <= share:
        return shorter
    return {"shortened": shorten_text(json_text(arguments), share // 2, counter)}


def shorten_larger(view: View, cap: int, tokens: MessageTokens, *, role: str | None = None) -> View:
    """The view with every message (of `role`, when given) that takes more than `cap` cut to it."""
    if all(m.tokens <= cap for m in view.messages):
        return view
    return view.to(
        within_cap(said, cap, tokens) if role in {None, said.message.get("role")} else said
        for said in view.messages
    )


def within_cap(said: ViewMessage, cap: int, tokens: MessageTokens) -> ViewMessage:
    """The message, cut to at most `cap` tokens where it takes more."""
    if said.tokens <= cap:
        return said
    message = shorten_message(said.message, cap, tokens)
    reason = f"{said.tokens:,} tokens are more than the {cap:,} that one message may take here"
    return restated(said, message, Decision("shortened", "shorten", "too_large", reason), tokens)
