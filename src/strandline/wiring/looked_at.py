"""An engine that is only looked at: it says what it would choose, and changes nothing by it.

What it keeps in files of its own is its own business; the transcript, the model and the
built-in compaction are out of its reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from strandline.context.engine import (
    Assemble,
    AssembleResult,
    Bootstrap,
    Compact,
    CompactResult,
    ContextEngine,
    Ingest,
    IngestBatch,
    Ingested,
    Rewrite,
    Rewritten,
    RuntimeContext,
)
from strandline.errors import CompactionRefused, ModelError, StoreWriteFailed

REMEDY = "let the engine go on without it"


class LookedAt(ContextEngine):
    """The engine, which is told of a session and asked for its context; upkeep it has none."""

    def __init__(self, engine: ContextEngine) -> None:
        self._engine = engine
        self.info = engine.info

    async def bootstrap(self, request: Bootstrap) -> None:
        await self._engine.bootstrap(replace(request, runtime=_harmless(request.runtime)))

    async def ingest(self, request: Ingest) -> Ingested:
        return await self._engine.ingest(request)

    async def ingest_batch(self, request: IngestBatch) -> Ingested:
        return await self._engine.ingest_batch(request)

    async def assemble(self, request: Assemble) -> AssembleResult:
        return await self._engine.assemble(replace(request, runtime=_harmless(request.runtime)))

    async def compact(self, request: Compact) -> CompactResult:
        return await _no_compaction(request)

    async def dispose(self) -> None:
        await self._engine.dispose()


def _harmless(runtime: RuntimeContext) -> RuntimeContext:
    """The same, without what writes or costs something."""
    return replace(
        runtime,
        llm=_NoModel(),
        rewrite_transcript_entries=_no_rewriting,
        delegate_compaction=_no_compaction,
    )


async def _no_rewriting(rewrites: Sequence[Rewrite]) -> Rewritten:
    del rewrites
    raise StoreWriteFailed("the session is only looked at: nothing is written", remedy=REMEDY)


async def _no_compaction(request: Compact) -> NoReturn:
    del request
    raise CompactionRefused("the session is only looked at: nothing is compacted", remedy=REMEDY)


class _NoModel:
    """The session's model, which is not asked."""

    async def complete(
        self, prompt: str, *, system_prompt: str = "", max_tokens: int = 1024
    ) -> NoReturn:
        del prompt, system_prompt, max_tokens
        said = "the session is only looked at: no model is asked"
        raise ModelError(said, kind="refused", remedy=REMEDY)
