"""What the memory flush is told (spec 3, Memory flush)."""

from __future__ import annotations

from dataclasses import dataclass

FLUSH_PROMPT = (
    "This conversation will soon be summarised. Before that, write what should last beyond it "
    "(decisions, facts, preferences, open ends) to today's memory with memory_write: short "
    "notes, only what is not there yet. Answer with NO_REPLY alone when you are done, or when "
    "there is nothing to keep."
)
FLUSH_SYSTEM_PROMPT = (
    "This is a silent turn for memory: nobody reads its answer. Only memory may be written, and "
    "only added to. The answer is NO_REPLY."
)


@dataclass(frozen=True, slots=True)
class FlushSettings:
    """`compaction.memoryFlush`: how near to the limit it runs (tokens), and what it says."""

    enabled: bool = True
    soft_threshold_tokens: int = 4000
    prompt: str = FLUSH_PROMPT
    system_prompt: str = FLUSH_SYSTEM_PROMPT
