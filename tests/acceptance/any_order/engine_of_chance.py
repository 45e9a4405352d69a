"""A plugin whose engine does whatever an engine may do, by the dice of ``chance.json`` beside it.

It chooses, rewords, adds and turns round, rewrites the transcript, declines, compacts in words
of its own or moves to a successor, and fails where ``fails`` says so. The tests copy it.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Literal

from strandline.context.engine import (
    AfterTurn,
    Assemble,
    AssembleResult,
    Bootstrap,
    Compact,
    CompactionOutcome,
    CompactResult,
    ContextEngine,
    ContextProjection,
    EngineInfo,
    Ingest,
    Ingested,
    Maintain,
    Rewrite,
    Rollback,
    SubagentEnded,
    SubagentSpawn,
    delegate_compaction_to_runtime,
)
from strandline.plugins.api import PluginApi
from strandline.transcript.context import PathMessage
from strandline.transcript.messages import Message

OWN_WORDS: list[Message] = [
    {
        "role": "user",
        "content": "From what was noted: the harbour has 12 lanterns.",
        "timestamp": 1,
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Noted."}], "timestamp": 2},
    {"role": "user", "content": []},
    {"role": "toolResult", "toolCallId": "of nobody", "content": []},
]


class Chance(ContextEngine):
    """The engine."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.dice = random.Random(wanted["seed"])
        self.fails = wanted["fails"]
        upkeep: Literal["foreground", "background"] = (
            "foreground" if wanted["seed"] % 2 else "background"
        )
        self.info = EngineInfo(
            "chance", "Chance", owns_compaction=wanted["owns"], turn_maintenance_mode=upkeep
        )

    def throw(self, phase: str) -> None:
        """Fail, now and then, where that is wanted."""
        if self.fails and self.dice.random() < 0.2:
            raise RuntimeError(f"no luck in {phase}")

    async def bootstrap(self, request: Bootstrap) -> None:
        del request
        self.throw("bootstrap")

    async def ingest(self, request: Ingest) -> Ingested:
        del request
        self.throw("ingest")
        return Ingested(self.dice.random() < 0.5)

    async def assemble(self, request: Assemble) -> AssembleResult:
        self.throw("assemble")
        shown: list[PathMessage | Message] = list(request.messages)
        match self.dice.randrange(7):
            case 0:
                shown = [each for each in shown if self.dice.random() < 0.6] or shown[-1:]
            case 1:
                shown = [self.reworded(each) for each in request.messages]
            case 2:
                shown.insert(self.dice.randrange(len(shown) + 1), self.dice.choice(OWN_WORDS))
            case 3:
                shown = shown[-self.dice.randrange(1, 6) :]
            case 4:
                self.dice.shuffle(shown)
        authorities: list[Literal["assembled", "preassembly_may_overflow"]]
        authorities = ["assembled", "assembled", "preassembly_may_overflow"]
        authority = self.dice.choice(authorities)
        addition = self.dice.choice([None, None, "Think of the harbour.", "x" * 400])
        return AssembleResult(shown, 0, authority, addition, self.projection())

    def projection(self) -> ContextProjection | None:
        """Now and then a thread of the backend's goes on, or another is begun."""
        if self.dice.random() < 0.5:
            return None
        return ContextProjection("thread_bootstrap", self.dice.choice("ab"), "of chance")

    def reworded(self, item: PathMessage) -> PathMessage:
        """The same entry in other words, now and then."""
        if item.message.get("role") != "user" or self.dice.random() < 0.5:
            return item
        return PathMessage(item.entry_id, {**item.message, "content": "as they said"})

    async def compact(self, request: Compact) -> CompactResult:
        self.throw("compact")
        match self.dice.randrange(6):
            case 0:
                return CompactResult(ok=True, compacted=False, reason="there is no need")
            case 1:
                return CompactResult(ok=True, compacted=True)
            case 2:
                return self.supplied(request)
            case 3:
                return self.rotated(request)
            case 4:
                return CompactResult(ok=False, compacted=False)
        return await delegate_compaction_to_runtime(request)

    def supplied(self, request: Compact) -> CompactResult:
        """A summary of its own, from some entry of the file on, or from one that is none."""
        lines = self.lines(request)
        kept = str(self.dice.choice(lines).get("id")) if len(lines) > 1 else "ffffffff"
        return CompactResult(
            ok=True,
            compacted=True,
            result=CompactionOutcome("The lanterns are lit.", kept, tokens_before=100),
        )

    def rotated(self, request: Compact) -> CompactResult:
        """A successor beside the transcript, with all or half of it, or none at all."""
        old = Path(str(request.session.session_file))
        successor = f"00000000-0000-4000-8000-{self.dice.randrange(16**12):012x}"
        file = old.with_name(f"{successor}.jsonl")
        header, *lines = self.lines(request)
        keep = self.dice.choice([len(lines), len(lines) // 2, -1])
        if keep >= 0:
            copied = [{**header, "id": successor}, *lines[:keep]]
            file.write_text("".join(json.dumps(line) + "\n" for line in copied))
        outcome = CompactionOutcome(session_id=successor, session_file=str(file))
        return CompactResult(ok=True, compacted=True, result=outcome)

    def lines(self, request: Compact) -> list[dict[str, Any]]:
        """What is in the transcript's file."""
        text = Path(str(request.session.session_file)).read_text()
        return [json.loads(line) for line in text.split("\n") if line.strip()]

    async def after_turn(self, request: AfterTurn) -> None:
        self.throw("after_turn")
        await self.rewrite(request, request.messages)

    async def maintain(self, request: Maintain) -> None:
        del request
        self.throw("maintain")

    async def rewrite(self, request: AfterTurn, messages: Any) -> None:
        """Say something again in other words, now and then."""
        persons = [each for each in messages if each.message.get("role") == "user"]
        if persons and self.dice.random() < 0.15:
            chosen = self.dice.choice(persons)
            said = {**chosen.message, "content": [{"type": "text", "text": "rewritten"}]}
            await request.runtime.rewrite_transcript_entries([Rewrite(chosen.entry_id, said)])

    async def prepare_subagent_spawn(self, request: SubagentSpawn) -> Rollback | None:
        del request
        self.throw("prepare_subagent_spawn")
        return None

    async def on_subagent_ended(self, request: SubagentEnded) -> None:
        del request
        self.throw("on_subagent_ended")

    async def dispose(self) -> None:
        self.throw("dispose")


def register(api: PluginApi) -> None:
    """What the plugin brings."""
    wanted = json.loads(Path(__file__).with_name("chance.json").read_text())
    api.register_context_engine("chance", lambda _: Chance(wanted))
