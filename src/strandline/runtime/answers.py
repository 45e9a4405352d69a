"""What is in an answer of a model, or in any message."""

from __future__ import annotations

from strandline.transcript.messages import Message


def text_of(message: Message) -> str:
    """The text of a message, without thoughts and calls; it may be none as models write them."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))
