"""The messages of a conversation in the shapes of Anthropic Messages.

The rules, most of which it answers with a 400 for ever: user and assistant take turns and
the user begins; the results of an answer's calls stand in the one message after it, before
any text; the ids of calls are unique in the whole conversation; no text is blank, nor ends
the answer in white space; thinking goes back unchanged to the model that wrote it, whether
its text is shown or not, never at an answer's end. (cases/faults, A13, A15, A17, B1 to B3.)
Every content is a list of blocks, so that any of them can carry a cache mark.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from strandline.context.pairing import NO_RESULT
from strandline.models.anthropic_thinking import is_adaptive
from strandline.models.content import (
    IMAGE_LEFT_OUT,
    NO_TOOL_OUTPUT,
    NO_USER_TEXT,
    clean_arguments,
    is_own,
)
from strandline.models.surrogates import whole_text
from strandline.models.tool_call_ids import ANTHROPIC_IDS, ToolCallIds
from strandline.runtime.model import ModelInfo
from strandline.transcript.messages import JsonObject, Message

CONVERSATION_BEGINS = "(the conversation begins)"
GO_ON = "(go on)"
TOOL_FAILED = "(the tool failed)"

MAX_NAME_CHARS = 128

_ODD_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_THINKING = frozenset({"thinking", "redacted_thinking"})


class Written(NamedTuple):
    """A conversation as it is sent.

    `may_think`: whether the model may be asked to think about it. `ends` has, for each message
    that was given, the last block up to its end that may carry a cache mark; None where there
    is none yet.
    """

    messages: list[JsonObject]
    may_think: bool
    ends: list[JsonObject | None]


def wire_messages(messages: Sequence[Message], model: ModelInfo) -> Written:
    """The messages, at least one.

    A model that wants a budget may not think in the middle of a tool loop that did not begin
    with thinking: Anthropic takes a loop for one answer, and wants thinking at its beginning.
    Adaptive models want that no more, but refuse to go on with an answer of theirs: a
    conversation that ends with one gets words of the user after it.
    """
    writer = _Writer(model)
    for message in messages:
        writer.add(message)
    writer.end()
    if not is_adaptive(model.id):
        return Written(writer.messages, _settle_thinking(writer.messages), writer.ends)
    if writer.messages[-1]["role"] == "assistant":
        writer.messages.append({"role": "user", "content": [text_block(GO_ON)]})
    return Written(writer.messages, True, writer.ends)


def text_block(text: str) -> JsonObject:
    """A block of plain text."""
    return {"type": "text", "text": text}


def is_thinking(block: JsonObject) -> bool:
    """Whether it is thinking, readable or not."""
    return block["type"] in _THINKING


class _Writer:
    """Writes one message after the other; what it wrote never depends on what comes later."""

    def __init__(self, model: ModelInfo) -> None:
        self.messages: list[JsonObject] = []
        self.ends: list[JsonObject | None] = []
        self._markable: JsonObject | None = None  # the last block that is no thinking
        self._model = model
        self._ids = ToolCallIds(ANTHROPIC_IDS)
        self._times: Counter[str] = Counter()
        self._open: dict[str, str] = {}  # calls without a result: id in the transcript, id sent

    def add(self, message: Message) -> None:
        self._add(message)
        self.ends.append(self._markable)

    def end(self) -> None:
        self._close_calls()
        if not self.messages:
            self._append("user", [text_block(CONVERSATION_BEGINS)])

    def _add(self, message: Message) -> None:
        role = message.get("role")
        if role == "toolResult":
            self._add_result(message)
            return
        self._close_calls()
        if role == "assistant":
            self._append("assistant", self._answer(message))
        else:
            spoken = [*_spoken(message, self._model)]
            self._append("user", spoken or [text_block(NO_USER_TEXT)])

    def _append(self, role: Literal["user", "assistant"], blocks: list[JsonObject]) -> None:
        if not blocks:
            return
        if not self.messages and role == "assistant":
            self._append("user", [text_block(CONVERSATION_BEGINS)])
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": role, "content": blocks})
        self._markable = next((b for b in reversed(blocks) if not is_thinking(b)), self._markable)

    def _add_result(self, message: Message) -> None:
        """A result of a call that has none yet; others are not sent."""
        sent = self._open.pop(str(message.get("toolCallId", "")), None)
        if sent is None:
            return
        content = [*_spoken(message, self._model)] or [text_block(NO_TOOL_OUTPUT)]
        block: JsonObject = {"type": "tool_result", "tool_use_id": sent, "content": content}
        if message.get("isError"):
            # What is marked as an error may hold text only.
            if any(inner["type"] == "image" for inner in content):
                content.insert(0, text_block(TOOL_FAILED))
            else:
                block["is_error"] = True
        self._append("user", [block])

    def _close_calls(self) -> None:
        for sent in self._open.values():
            content = [text_block(NO_RESULT)]
            result = {"type": "tool_result", "tool_use_id": sent, "content": content}
            self._append("user", [{**result, "is_error": True}])
        self._open.clear()

    def _answer(self, message: Message) -> list[JsonObject]:
        """The blocks of an answer; none where the model said nothing, as after an error."""
        blocks: list[JsonObject] = []
        own = is_own(message, self._model)
        for block in _content(message):
            match block.get("type"):
                case "text":
                    blocks += _text(block)
                case "thinking" if own:
                    blocks += _thinking(block)
                case "toolCall":
                    blocks += self._call(block)
        while blocks and is_thinking(blocks[-1]):
            del blocks[-1]
        if blocks and blocks[-1]["type"] == "text":
            # Refused where it is the last message; elsewhere for the sake of equal bytes.
            blocks[-1] = text_block(blocks[-1]["text"].rstrip())
        return blocks

    def _call(self, block: JsonObject) -> Iterator[JsonObject]:
        identity = str(block.get("id", ""))
        if identity in self._open:
            return
        self._open[identity] = sent = self._id_to_send(identity)
        name = _ODD_IN_NAMES.sub("_", str(block.get("name", "")))[:MAX_NAME_CHARS] or "_"
        arguments = clean_arguments(block.get("arguments"))
        yield {"type": "tool_use", "id": sent, "name": name, "input": arguments}

    def _id_to_send(self, identity: str) -> str:
        """Some models count their calls anew in every answer: an id that comes again is
        another one to send. No other id can look like the name that it gets here.
        """
        times = self._times[identity]
        self._times[identity] += 1
        plain = times == 0 and "\n" not in identity
        return self._ids.of(identity if plain else f"{times}\n{identity}")


def _content(message: Message) -> Iterator[JsonObject]:
    content = message.get("content")
    if isinstance(content, str):
        yield text_block(content)
    elif isinstance(content, list):
        yield from (block for block in content if isinstance(block, dict))


def _spoken(message: Message, model: ModelInfo) -> Iterator[JsonObject]:
    """What users say and tools give back, in its order."""
    for block in _content(message):
        match block.get("type"):
            case "text":
                yield from _text(block)
            case "image":
                yield from _image(block, model)


def _text(block: JsonObject) -> Iterator[JsonObject]:
    text = block.get("text")
    if isinstance(text, str) and text.strip():
        yield text_block(text)


def _image(block: JsonObject, model: ModelInfo) -> Iterator[JsonObject]:
    data, kind = block.get("data"), str(block.get("mimeType", "")).lower()
    if not (isinstance(data, str) and data):
        return
    kind = "image/jpeg" if kind == "image/jpg" else kind
    if model.images and kind in _IMAGE_TYPES:
        source = {"type": "base64", "media_type": kind, "data": data}
        yield {"type": "image", "source": source}
    else:
        yield text_block(IMAGE_LEFT_OUT)


def _thinking(block: JsonObject) -> Iterator[JsonObject]:
    """Thinking as it was signed, to the byte; what was not signed is not sent."""
    text, signature = block.get("thinking"), block.get("thinkingSignature")
    if not (isinstance(signature, str) and signature.strip()):
        return
    if block.get("redacted"):
        yield {"type": "redacted_thinking", "data": signature}
    elif isinstance(text, str) and whole_text(text) == text:
        yield {"type": "thinking", "thinking": text, "signature": signature}


def _settle_thinking(messages: list[JsonObject]) -> bool:
    """Takes the thinking out of every tool loop that does not begin with it; whether the
    model may think about what comes now.
    """
    begun: bool | None = None  # whether the loop that goes on began with thinking
    for message in messages:
        content = message["content"]
        if message["role"] == "user":
            begun = begun if content[0]["type"] == "tool_result" else None
            continue
        if begun is None:
            begun = is_thinking(content[0])
        if not begun:
            message["content"] = [block for block in content if not is_thinking(block)]
    return begun is not False
