"""Nine messages of 24 KB, one after another, into windows that hold few of them.

The case that the original lost: it failed at the fourth and then refused every message.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from strandline.clock import SystemClock
from strandline.context.tokens import MessageTokens
from strandline.manager import SessionManager
from strandline.models.openai_chat import OpenAIChatModel
from strandline.models.tokenizer import counter
from strandline.runtime.agent import Agent
from strandline.runtime.events import CompactionReceipt
from strandline.runtime.model import ModelInfo
from strandline.runtime.offline import OfflineSummarizer
from strandline.runtime.turn import run_turn, user_message
from strandline.testing import OverflowStyle, ScriptedModelServer


def note(number: int, size: int = 24_000) -> str:
    """About 8,000 tokens: words that no vocabulary knows."""
    letters = random.Random(number)
    text = f"Turn {number}. My favourite number for turn {number} is {37 * number}. Notes:"
    while len(text) < size:
        text += " " + "".join(letters.choices("abcdefghijklmnop", k=6))
    return text


@pytest.mark.parametrize(
    ("factor", "overflow"),
    [(1.0, "openai"), (1.5, "openai"), (1.5, "openai-no-counts"), (1.5, "llama.cpp")],
)
@pytest.mark.parametrize("window", [60_000, 32_000, 16_000, 8_000])
async def test_every_message_is_answered_and_the_transcript_stays_clean(
    tmp_path: Path, window: int, factor: float, overflow: OverflowStyle
) -> None:
    tokens = MessageTokens(counter("tiktoken"))
    with ScriptedModelServer(
        context_window=window,
        overflow=overflow,
        count=tokens.counter.count,
        token_factor=factor,
    ) as server:
        clock = SystemClock()
        model = OpenAIChatModel(server.base_url, clock=clock)
        info = ModelInfo("scripted", "scripted", "openai-completions", window, 2_000)
        summarizer = OfflineSummarizer(tokens.counter)
        agent = Agent("main", model, info, summarizer, tokens, clock)
        session = SessionManager.create(session_dir=tmp_path, cwd="/")
        compactions: list[CompactionReceipt] = []
        for number in range(1, 10):
            message = user_message(note(number), clock.now_ms())
            result = await run_turn(session, agent, message)
            assert result.reply, f"message {number} was not answered"
            compactions += result.compactions
        await model.aclose()
        assert compactions, "nine messages do not fit: something must have been compacted"
        assert session.verify() == []
        said = [e for e in session.entries() if e.type == "message"]
        assert len(said) == 18, "every message and every answer is in the transcript"
        refused = len(server.requests) - 9
        assert refused <= 3, f"asked {refused} times in vain"
        session.close()
