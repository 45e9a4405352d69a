"""What the runtime lends an engine, for its tests: counted by the real vocabulary, answered
from a script. Source: spec 3, Engine slot (runtime context).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from strandline.context.engine import (
    Compact,
    CompactResult,
    PromptCacheFacts,
    Rewrite,
    Rewritten,
    RuntimeContext,
)
from strandline.context.tokens import MessageTokens, TokenCounter
from strandline.models.tokenizer import O200kCounter
from strandline.transcript.context import PathMessage

A_SUMMARY = "## Goal\nWhat was asked for.\n\n## Next\nGo on."
"""What a `ScriptedLlm` answers where its script has nothing (more) to say."""


@dataclass
class ScriptedLlm:
    """Answers in the order of `answers`, then `A_SUMMARY`; an exception among them is raised.

    `asked` are the prompts.
    """

    answers: list[str | Exception] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    async def complete(
        self, prompt: str, *, system_prompt: str = "", max_tokens: int = 1024
    ) -> str:
        """The next answer."""
        del system_prompt, max_tokens
        self.asked.append(prompt)
        answer = self.answers.pop(0) if self.answers else A_SUMMARY
        if isinstance(answer, Exception):
            raise answer
        return answer


async def nothing_to_compact(request: Compact) -> CompactResult:
    """The built-in compaction on a session that is short."""
    del request
    return CompactResult(ok=True, compacted=False, reason="nothing to compact")


def engine_runtime(
    messages: Sequence[PathMessage] = (),
    *,
    token_budget: int = 100_000,
    llm: ScriptedLlm | None = None,
    counter: TokenCounter | None = None,
    delegate_compaction: Callable[[Compact], Awaitable[CompactResult]] = nothing_to_compact,
    prompt_cache: PromptCacheFacts | None = None,
) -> RuntimeContext:
    """A runtime context for a call about `messages`.

    Rewriting gives each entry a new id (the old one with ``-2`` behind it) and changes nothing.
    """
    tokens = MessageTokens(counter or O200kCounter())

    async def rewrite(rewrites: Sequence[Rewrite]) -> Rewritten:
        return Rewritten({each.entry_id: f"{each.entry_id}-2" for each in rewrites})

    return RuntimeContext(
        token_budget=token_budget,
        current_token_count=sum(tokens.count(item.message) for item in messages),
        prompt_cache=prompt_cache or PromptCacheFacts(),
        llm=llm or ScriptedLlm(),
        count_tokens=tokens.count,
        rewrite_transcript_entries=rewrite,
        delegate_compaction=delegate_compaction,
    )
