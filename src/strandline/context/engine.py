"""The slot for context engines: what an engine is asked, what it answers, what it may use.

An engine decides what the model sees of a conversation. It subclasses `ContextEngine`, which
has three methods to write and others that do nothing unless they are written too. Every
message comes with the id of its entry; that id, never the text, is what a message is known
by: the same message may come again after a restart and is the same then.
Source: spec 3, Engine slot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from strandline.transcript.context import PathMessage
from strandline.transcript.messages import JsonObject, Message, Usage

LEGACY = "legacy"
"""The id of the built-in engine."""

CitationsMode = Literal["auto", "on", "off"]

HOST_ABILITIES = frozenset(
    {"llm.complete", "rewrite_transcript_entries", "delegate_compaction", "subagents"}
)
"""What an engine may require of its host; `thread_bootstrap` too, where the model has threads."""

THREADS = "thread_bootstrap"


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine says of itself.

    `owns_compaction`: the built-in automatic compaction and the check before sending are off,
    and what it assembles is final. `turn_maintenance_mode` says whether a turn waits for
    `maintain`. `host_requirements` are abilities without which it cannot work
    (`HOST_ABILITIES`); it is not used where one is missing.
    """

    id: str
    name: str
    version: str = ""
    owns_compaction: bool = False
    turn_maintenance_mode: Literal["foreground", "background"] = "background"
    host_requirements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineContext:
    """What a factory is given: the engine's part of the settings, and folders of its agent."""

    config: Mapping[str, Any] = field(default_factory=dict, repr=False)  # it may hold secrets
    agent_dir: str | None = None
    workspace_dir: str | None = None


@dataclass(frozen=True, slots=True)
class SessionRef:
    """A session: `session_file` is None where its transcript is no file."""

    session_id: str
    session_key: str
    session_file: str | None = None


# -- what the runtime lends ----------------------------------------------------------------


class Llm(Protocol):
    """The session's model, for an engine's own questions."""

    async def complete(
        self, prompt: str, *, system_prompt: str = "", max_tokens: int = 1024
    ) -> str:
        """What the model answers. Raises `ModelError`."""
        ...


@dataclass(frozen=True, slots=True)
class PromptCacheFacts:
    """What is known of the provider's cache.

    How long it is asked to keep the prompt, what the last call used, and until when it is
    taken to know it (Unix ms; None where it does not).
    """

    retention: Literal["none", "short", "long"] = "short"
    last_usage: Usage | None = None
    expires_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Another message in the place of an entry's."""

    entry_id: str
    message: Message


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What `rewrite_transcript_entries` did: the new ids of all entries that were said again."""

    new_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuntimeContext:
    """What the runtime lends an engine for one call. Tokens are ours.

    `rewrite_transcript_entries` grows a branch from before the first of the entries and says
    everything behind it again with the new messages; no line is changed in place.
    `delegate_compaction` is the built-in compaction (`delegate_compaction_to_runtime`).
    """

    token_budget: int
    current_token_count: int | None
    prompt_cache: PromptCacheFacts
    llm: Llm
    count_tokens: Callable[[Message], int]
    rewrite_transcript_entries: Callable[[Sequence[Rewrite]], Awaitable[Rewritten]]
    delegate_compaction: Callable[[Compact], Awaitable[CompactResult]]


# -- what an engine is asked ---------------------------------------------------------------


BootstrapReason = Literal["new", "opened", "reset", "rotation", "branch", "compaction"]


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A session is about to be used for the first time since this engine was made.

    `messages` are all of its path; an engine that knows some of them takes the others.
    """

    session: SessionRef
    messages: Sequence[PathMessage]
    reason: BootstrapReason
    runtime: RuntimeContext


@dataclass(frozen=True, slots=True)
class Ingest:
    """A message was appended. `is_heartbeat` says that no person wrote or reads it."""

    session: SessionRef
    message: PathMessage
    is_heartbeat: bool = False


@dataclass(frozen=True, slots=True)
class IngestBatch:
    """Messages were appended together."""

    session: SessionRef
    messages: Sequence[PathMessage]
    is_heartbeat: bool = False


@dataclass(frozen=True, slots=True)
class Ingested:
    """Whether the engine took it; False for what it knew already."""

    ingested: bool


@dataclass(frozen=True, slots=True)
class Assemble:
    """A request is to be made; the answer says which messages the model sees.

    `messages` are those of the path, `token_budget` what they may take, `prompt` the text of the
    newest message of a person. `available_tools` are sorted. `model` is ``provider/model``.
    """

    session: SessionRef
    messages: Sequence[PathMessage]
    token_budget: int
    runtime: RuntimeContext
    available_tools: tuple[str, ...] = ()
    citations_mode: CitationsMode = "auto"
    model: str = ""
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class ContextProjection:
    """How the context reaches a backend: anew each turn, or once for an `epoch` of its thread."""

    mode: Literal["per_turn", "thread_bootstrap"] = "per_turn"
    epoch: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class AssembleResult:
    """What the model sees, in order.

    A message that was in the request goes back as the same `PathMessage`, or as one with the
    same entry id and other words; a message of the engine's own has no entry id (a bare message
    will do). `prompt_authority` "preassembly_may_overflow" lets the check before sending look at
    the larger of the assembled and the whole history. `system_prompt_addition` is put before
    the system prompt; one that changes from call to call costs the provider's cache.
    """

    messages: Sequence[PathMessage | Message]
    estimated_tokens: int
    prompt_authority: Literal["assembled", "preassembly_may_overflow"] = "assembled"
    system_prompt_addition: str | None = None
    context_projection: ContextProjection | None = None


@dataclass(frozen=True, slots=True)
class Compact:
    """Make the context smaller: a person asks for it, or a provider refused its size.

    `token_budget` is what the messages may take after it, reserve and fixed parts deducted.
    `force` compacts below the threshold too.
    """

    session: SessionRef
    token_budget: int
    runtime: RuntimeContext
    force: bool = False
    current_token_count: int | None = None
    custom_instructions: str | None = None
    trigger: Literal["manual", "overflow"] = "manual"


@dataclass(frozen=True, slots=True)
class CompactionOutcome:
    """What a compaction did.

    With a `summary` and a `first_kept_entry_id`, and without `entry_id` (the entry that is there
    already), the host appends the compaction to the transcript. `session_id` and `session_file`
    name the successor where the transcript was rotated: every later turn uses that.
    """

    summary: str = ""
    first_kept_entry_id: str | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    details: JsonObject = field(default_factory=dict)
    entry_id: str | None = None
    session_id: str | None = None
    session_file: str | None = None


@dataclass(frozen=True, slots=True)
class CompactResult:
    """Whether it went well (`ok`), whether anything was compacted, and why not."""

    ok: bool
    compacted: bool
    reason: str = ""
    result: CompactionOutcome | None = None


@dataclass(frozen=True, slots=True)
class AfterTurn:
    """A turn was answered. `messages` are the path now, `new_messages` what the turn added."""

    session: SessionRef
    messages: Sequence[PathMessage]
    new_messages: Sequence[PathMessage]
    runtime: RuntimeContext
    is_heartbeat: bool = False
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class Maintain:
    """Time for upkeep of the engine's own."""

    session: SessionRef
    reason: Literal["bootstrap", "turn", "compaction"]
    runtime: RuntimeContext


@dataclass(frozen=True, slots=True)
class SubagentSpawn:
    """A sub-agent is about to begin in the session `child`."""

    parent: SessionRef
    child: SessionRef
    context: Literal["isolated", "fork"]
    task: str


SubagentEnd = Literal["deleted", "completed", "swept", "released"]


@dataclass(frozen=True, slots=True)
class SubagentEnded:
    """A sub-agent is over."""

    parent: SessionRef
    child: SessionRef
    reason: SubagentEnd


Rollback = Callable[[], Awaitable[None]]
"""Takes back what was prepared for a sub-agent that then could not begin."""


class ContextEngine(ABC):
    """A context engine. One instance serves all sessions of one agent in one process."""

    info: EngineInfo

    @abstractmethod
    async def ingest(self, request: Ingest) -> Ingested:
        """Called after a message was appended."""

    @abstractmethod
    async def assemble(self, request: Assemble) -> AssembleResult:
        """Called before every request to a model."""

    @abstractmethod
    async def compact(self, request: Compact) -> CompactResult:
        """Called for ``/compact`` and after a provider refused a request for its size."""

    async def bootstrap(self, request: Bootstrap) -> None:  # noqa: B027 - doing nothing is the default
        """Called before the first turn on a session."""

    async def ingest_batch(self, request: IngestBatch) -> Ingested:
        """Called where several messages were appended; by default one `ingest` for each."""
        took = [
            await self.ingest(Ingest(request.session, message, request.is_heartbeat))
            for message in request.messages
        ]
        return Ingested(any(each.ingested for each in took))

    async def after_turn(self, request: AfterTurn) -> None:  # noqa: B027 - doing nothing is the default
        """Called after a turn was answered."""

    async def maintain(self, request: Maintain) -> None:  # noqa: B027 - doing nothing is the default
        """Called after `bootstrap`, after a turn, and after a compaction."""

    async def prepare_subagent_spawn(self, request: SubagentSpawn) -> Rollback | None:
        """Called before a sub-agent begins; what it returns is called if it then cannot."""
        del request
        return None

    async def on_subagent_ended(self, request: SubagentEnded) -> None:  # noqa: B027 - doing nothing is the default
        """Called when a sub-agent is over."""

    async def dispose(self) -> None:  # noqa: B027 - doing nothing is the default
        """Called once, when the process is done with the engine."""


EngineFactory = Callable[[EngineContext], ContextEngine]


async def delegate_compaction_to_runtime(request: Compact) -> CompactResult:
    """The built-in compaction, as the `compact` of an engine that has none of its own."""
    return await request.runtime.delegate_compaction(request)


class LegacyEngine(ContextEngine):
    """The built-in engine: all messages go on to the rules, compaction is the built-in one."""

    info = EngineInfo(LEGACY, "Built in", host_requirements=("delegate_compaction",))

    async def ingest(self, request: Ingest) -> Ingested:
        del request  # the transcript has it
        return Ingested(ingested=False)

    async def assemble(self, request: Assemble) -> AssembleResult:
        return AssembleResult(request.messages, request.runtime.current_token_count or 0)

    async def compact(self, request: Compact) -> CompactResult:
        return await delegate_compaction_to_runtime(request)


_MEMORY_TOOLS = ("memory_search", "memory_write")


def build_memory_system_prompt_addition(
    available_tools: Sequence[str] | frozenset[str], citations_mode: CitationsMode = "auto"
) -> str | None:
    """What an agent with a memory is told of it; None where it has no tool for it.

    The same tools give the same bytes, in whatever order they come.
    """
    search, write = (name in available_tools for name in _MEMORY_TOOLS)
    told = []
    if search:
        told.append(
            "Before you answer about earlier work, decisions, dates, people or preferences, look "
            "with memory_search; say so where you found nothing."
        )
    if search and citations_mode == "on":
        told.append("Name the file and line of what you take from the memory.")
    if write:
        told.append("What should last beyond this conversation goes into the memory: memory_write.")
    return "\n".join(told) or None
