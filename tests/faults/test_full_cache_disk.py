"""The disk has no room for what is kept to be quick: turns go on, and what can be told is told.

Summaries of layers, system prompts and look-ups lie in the cache folder, and can be made again.
Source: spec 3, Caches; cases/faults F11.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline import SessionManager
from strandline.runtime.events import LayerSummarised, Notice
from strandline.stores.disk import RealDisk, RealFile
from strandline.testing import Reply, ScriptedModelServer
from strandline.wiring import open_state

KEY = "agent:main:main"
RULES = [{"maxAge": "1h", "keep": "all"}, {"maxAge": "inf", "keep": "summary"}]


class Full(RealFile):
    """A file on a disk without room."""

    def append(self, data: bytes) -> int:
        del data
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def full_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """New files in cache folders take nothing."""
    create = RealDisk.create

    def created(self: RealDisk, path: Path) -> RealFile:
        file = create(self, path)
        if "cache" in path.parts:
            file.__class__ = Full
        return file

    def no_room(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RealDisk, "create", created)
    monkeypatch.setattr(tempfile, "mkstemp", no_room)  # of the look-ups in SQLite


@pytest.mark.usefixtures("full_cache")
def test_f11_without_room_for_its_caches_a_conversation_goes_on(
    run: Any, state: Path, setup: Callable[..., None], serve: Callable[..., ScriptedModelServer]
) -> None:
    server = serve(lambda _: Reply("Fine."))
    setup(server, context={"ttl": {"rules": RULES}, "cache": {}})
    (state / "workspace").mkdir()
    asyncio.run(say(state, "Hello"))
    [transcript] = (state / "agents" / "main" / "sessions").glob("*.jsonl")
    with SessionManager.open(transcript) as session:
        for number in range(6):
            text = f"lantern {number} of the harbour is lit, " * 20
            session.append_message({"role": "user", "content": text, "timestamp": number})
    for number in range(2):
        (state / "workspace" / "AGENTS.md").write_text(f"Rules {number}.")
        heard = asyncio.run(say(state, "And now?"))
        assert [each for each in heard if isinstance(each, LayerSummarised)], "made, and used"
        told = [each.text for each in heard if isinstance(each, Notice)]
        assert any("kept for this process only" in text for text in told), told
        assert "For reference: a summary" in str(server.requests[-1].body)
    files = [path for path in (state / "cache").rglob("*") if path.is_file()]
    assert [path for path in files if path.stat().st_size] == [], "no half of a file"
    assert run("doctor", "--json").json()["errors"] == 0


async def say(state: Path, text: str) -> list[object]:
    """As one process does; what was heard of it."""
    heard: list[object] = []
    talk = open_state(state, {}).conversation("main", KEY, holder="a test")
    try:
        assert (await talk.say(text, listener=heard.append)).reply == "Fine."
        await talk.settle()
    finally:
        await talk.close()
    return heard
