"""An engine whose compaction moves the conversation to another transcript."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from strandline.context.engine import CompactionOutcome, CompactResult
from strandline.errors import EngineError
from strandline.manager import SessionManager
from strandline.testing import ScriptedModelServer

LONG = "lantern harbour " * 400
KEY = "agent:main:main"


def rotated(home: Any, **otherwise: Any) -> Callable[[Any], CompactResult]:
    """Writes a successor with what was said last, and names it."""

    def rotate(request: Any) -> CompactResult:
        old = SessionManager.open(request.session.session_file)
        newest = [item.message for item in old.build_context().items][-1]
        old.close()
        new = SessionManager.create(session_dir=home.folder, cwd="/", clock=home.clock)
        with new:
            new.append_message({"role": "user", "content": "(what was before)", "timestamp": 1})
            new.append_message(otherwise.pop("says", newest))
            named = {"session_id": new.session_id, "session_file": new.log_name, **otherwise}
        return CompactResult(ok=True, compacted=True, result=CompactionOutcome(**named))

    return rotate


def open_files() -> int:
    """So many files this process has open; 0 where it cannot be told."""
    listed = Path("/proc/self/fd")
    return len([*listed.iterdir()]) if listed.exists() else 0


async def overflowing(home: Any, server: ScriptedModelServer) -> Any:
    conversation = home.open(server)
    for n in range(3):
        await conversation.say(f"{n} {LONG}")
    server.context_window = 3_000
    return conversation


async def test_the_successor_serves_the_same_turn_and_every_later_one(home: Any) -> None:
    home.engine.does["compact"] = rotated(home)
    with ScriptedModelServer() as server:
        conversation = await overflowing(home, server)
        old_id, old = conversation.session_id, Path(conversation.session.log_name)
        before = old.read_bytes()
        result = await conversation.say("and now?")
        assert result.reply
        sent = [str(m["content"]) for m in server.requests[-1].body["messages"]]
        assert sent[-2:] == ["(what was before)", "and now?"]
        new_id = conversation.session_id
        assert new_id != old_id
        row = home.registry.find(KEY)
        assert row.session_id == new_id
        assert (home.folder / str(row.session_file)).exists()
        assert row.total_tokens == result.context_tokens < 1_000
        assert old.read_bytes()[: len(before)] == before
        assert len(old.read_bytes().splitlines()) == len(before.splitlines()) + 1, (
            "the old one got the question and nothing after it"
        )
        await conversation.say("later")
        assert home.engine.heard == home.path(conversation)
        assert len(home.path(conversation)) == 5
        await conversation.close()
        home.restart()
        conversation = home.open(server)
        await conversation.say("after a restart")
        assert conversation.session_id == new_id
        assert len(home.path(conversation)) == 7
        await conversation.close()


async def test_the_engine_hears_of_the_successor_as_one_and_of_nothing_as_new(home: Any) -> None:
    """cases/faults G10: after a rotation nothing is purged, or taken in a second time."""
    home.engine.does["compact"] = rotated(home)
    with ScriptedModelServer() as server:
        conversation = await overflowing(home, server)
        await conversation.say("and now?")
        path = home.path(conversation)
        await conversation.close()
    first, second = home.engine.asked("bootstrap")
    assert (first.reason, second.reason) == ("new", "rotation")
    assert second.session.session_id != first.session.session_id
    assert [item.entry_id for item in second.messages] == path[:2]
    added = home.engine.asked("after_turn")[-1].new_messages
    assert [item.entry_id for item in added] == path[1:]


async def test_a_manual_compaction_moves_the_conversation_too(home: Any) -> None:
    home.engine.does["compact"] = rotated(home)
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await conversation.say("hello")
        newest = conversation.session.build_context().items[0].message
        home.engine.does["compact"] = rotated(home, says=newest)
        old_id = conversation.session_id
        assert await conversation.compact() is None
        assert conversation.session_id != old_id
        await conversation.say("go on")
        assert len(home.path(conversation)) == 4
        await conversation.close()


async def test_a_successor_may_hold_other_words_under_the_same_ids(home: Any) -> None:
    """What was counted of the old transcript says nothing of the new one."""

    def shorter(request: Any) -> CompactResult:
        lines = Path(request.session.session_file).read_text().splitlines()
        lines[0] = lines[0].replace(request.session.session_id, "the-next")
        small = [line.replace(LONG, "(shortened)") for line in lines]
        (home.folder / "the-next.jsonl").write_text("\n".join(small) + "\n")
        outcome = CompactionOutcome(session_id="the-next")
        return CompactResult(ok=True, compacted=True, result=outcome)

    home.engine.does["compact"] = shorter
    with ScriptedModelServer() as server:
        conversation = await overflowing(home, server)
        result = await conversation.say("and now?")
        assert conversation.session_id == "the-next"
        assert result.context_tokens < 1_000
        await conversation.close()


async def test_an_engine_that_names_the_transcript_that_is_there_moves_nothing(home: Any) -> None:
    with ScriptedModelServer() as server:
        conversation = home.open(server)
        await conversation.say(f"one {LONG}")
        await conversation.say("two")
        outcome = CompactionOutcome(
            "Lanterns.", home.path(conversation)[-1], session_id=conversation.session_id
        )
        home.engine.does["compact"] = CompactResult(ok=True, compacted=True, result=outcome)
        receipt = await conversation.compact()
        assert receipt is not None
        assert receipt.summarizer == "notebook"
        await conversation.close()


@pytest.mark.parametrize(
    ("otherwise", "said"),
    [
        ({"session_id": "no-such-session", "session_file": None}, "cannot be opened"),
        ({"session_file": "/etc/passwd"}, "cannot be opened"),
        ({"session_file": ".."}, "cannot be"),
        ({"session_id": "another-id"}, "is not of the session another-id"),
        ({"session_id": "../../etc/passwd", "session_file": None}, "cannot be"),
        ({"says": {"role": "user", "content": "no!", "timestamp": 2}}, "does not hold what was"),
    ],
)
async def test_a_successor_that_is_none_is_an_error_and_the_old_one_goes_on(
    home: Any, otherwise: dict[str, Any], said: str
) -> None:
    with ScriptedModelServer() as server:
        conversation = await overflowing(home, server)
        old_id, old = conversation.session_id, Path(conversation.session.log_name)
        before = old.read_bytes()
        home.engine.does["compact"] = rotated(home, **otherwise)
        with pytest.raises(EngineError, match=said) as failed:
            await conversation.say("and now?")
        assert (failed.value.engine, failed.value.phase) == ("notebook", "compact")
        assert home.registry.find(KEY).session_id == conversation.session_id == old_id
        assert old.read_bytes().startswith(before)
        server.context_window = None
        await conversation.retry()
        assert home.engine.heard == home.path(conversation)
        assert len(home.path(conversation)) == 8
        await conversation.close()
    assert [failure.phase for failure in home.health.recent()] == ["compact"]


async def test_a_successor_that_another_writes_to_is_not_followed_and_the_old_one_goes_on(
    home: Any,
) -> None:
    """The row is moved when the successor is ours, not before; what was opened is closed."""
    held = ExitStack()

    def hold(request: Any) -> CompactResult:
        result = rotated(home)(request)
        assert result.result is not None
        other = held.enter_context(SessionManager.open(str(result.result.session_file)))
        held.enter_context(other.run_lock(timeout_ms=0, holder="another"))
        return result

    home.engine.does["compact"] = hold
    with ScriptedModelServer() as server, held:
        conversation = home.open(server, lock_timeout_ms=60)
        for n in range(3):
            await conversation.say(f"{n} {LONG}")
        old_id, server.context_window = conversation.session_id, 3_000
        files = open_files()
        notices: list[Any] = []
        await conversation.say("and now?", listener=notices.append)
        assert any("another" in str(notice) for notice in notices)
        assert home.registry.find(KEY).session_id == conversation.session_id == old_id
        held.close()
        assert open_files() == files
        await conversation.say("later")
        assert "and now?" in str(conversation.session.build_context().messages)
        await conversation.close()
