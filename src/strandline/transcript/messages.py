"""What a message looks like: the JSON objects that transcripts carry and models see.

Messages stay plain dictionaries, exactly as they stand in the file, so that unknown keys
survive and a message can be handed to `json` at any time. These types are for the editor
and the type checker; at run time nothing is validated here, because a file may hold
anything (source: spec 1, File).
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict, get_args

JsonObject = dict[str, Any]
"""A JSON object as `json` reads it."""

Message = dict[str, Any]
"""A message as it stands in a transcript; `Role` tells which of the shapes below it has."""

Role = Literal[
    "user",
    "assistant",
    "toolResult",
    "bashExecution",
    "custom",
    "branchSummary",
    "compactionSummary",
]
StopReason = Literal["stop", "length", "toolUse", "error", "aborted"]
ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
THINKING_LEVELS: tuple[ThinkingLevel, ...] = get_args(ThinkingLevel)


class TextBlock(TypedDict):
    """Plain text."""

    type: Literal["text"]
    text: str


class ImageBlock(TypedDict):
    """An image: base64 `data` of `mimeType`."""

    type: Literal["image"]
    data: str
    mimeType: str


class ThinkingBlock(TypedDict):
    """What the model thought; providers sign it."""

    type: Literal["thinking"]
    thinking: str
    thinkingSignature: NotRequired[str]


class ToolCallBlock(TypedDict):
    """A tool that the model wants called."""

    type: Literal["toolCall"]
    id: str
    name: str
    arguments: JsonObject


class Cost(TypedDict):
    """Money, in US dollars."""

    input: float
    output: float
    cacheRead: float
    cacheWrite: float
    total: float


class Usage(TypedDict):
    """Tokens of one call, as the provider counted them."""

    input: int
    output: int
    cacheRead: int
    cacheWrite: int
    totalTokens: int
    cost: NotRequired[Cost]


class UserMessage(TypedDict):
    """What a person said. `timestamp` is Unix ms."""

    role: Literal["user"]
    content: str | list[TextBlock | ImageBlock]
    timestamp: int


class AssistantMessage(TypedDict):
    """What a model answered."""

    role: Literal["assistant"]
    content: list[TextBlock | ThinkingBlock | ToolCallBlock]
    api: str
    provider: str
    model: str
    usage: Usage
    stopReason: StopReason
    errorMessage: NotRequired[str]
    timestamp: int


class ToolResultMessage(TypedDict):
    """What a tool gave back for the call `toolCallId`."""

    role: Literal["toolResult"]
    toolCallId: str
    toolName: str
    content: list[TextBlock | ImageBlock]
    isError: bool
    details: NotRequired[Any]
    timestamp: int
