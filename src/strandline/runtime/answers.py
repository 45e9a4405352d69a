"""What is in an answer of a model."""

from __future__ import annotations

from strandline.transcript.messages import Message


def text_of(message: Message) -> str:
    """The text of an answer, without thoughts and calls."""
    blocks = message.get("content")
    if isinstance(blocks, str):
        return blocks
    texts = [b.get("text", "") for b in blocks or [] if b.get("type") == "text"]
    return "".join(texts)
