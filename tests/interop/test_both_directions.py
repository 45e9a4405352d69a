"""One transcript, written in turns by Strandline and by an original (pi, OpenClaw).

Whoever opens it sees the same context. Each test runs with both originals, where they are
installed. Source: spec 1.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from strandline import SessionManager

Original = Callable[..., dict[str, Any]]
Steps = Sequence[Sequence[Any]]

USAGE = {
    "input": 10,
    "output": 5,
    "cacheRead": 0,
    "cacheWrite": 0,
    "totalTokens": 15,
    "cost": {"input": 0.00001, "output": 1e-7, "cacheRead": 0, "cacheWrite": 0, "total": 0.0000101},
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1_700_000_000}


def assistant(text: str, *more: dict[str, Any], model: str = "small") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": text}, *more],
        "api": "openai-completions",
        "provider": "fake",
        "model": model,
        "usage": USAGE,
        "stopReason": "toolUse" if more else "stop",
        "timestamp": 1_700_000_001,
    }


def exchange(session: SessionManager, about: str, answers: int = 1) -> tuple[str, str]:
    """A question and its answer; the ids of both."""
    asked = session.append_message(user(f"What about {about}?"))
    answered = asked
    for number in range(answers):
        answered = session.append_message(assistant(f"{about}, answer {number}"))
    return asked, answered


# -- shapes of conversations ---------------------------------------------------------------


def linear(session: SessionManager) -> None:
    session.append_message({"role": "user", "content": "only text", "timestamp": 1})
    call = {"type": "toolCall", "id": "call_1", "name": "read", "arguments": {"path": "a.md"}}
    session.append_message(assistant("Let me look.", call))
    result = {"toolCallId": "call_1", "toolName": "read", "isError": False, "timestamp": 2}
    content = [{"type": "text", "text": "# A"}, {"type": "image", "data": "", "mimeType": "x/y"}]
    session.append_message({"role": "toolResult", "content": content, "details": {}, **result})
    shell = {"command": "ls", "output": "a.md", "exitCode": 0, "cancelled": False}
    session.append_message({"role": "bashExecution", "truncated": False, "timestamp": 3, **shell})
    session.append_message(assistant("It is a heading."))


def plugins(session: SessionManager) -> None:
    exchange(session, "plugins")
    session.append_custom("note.state", {"count": 3})
    session.append_custom_message("note", "remember the tide", display=False, details={"n": 1})
    session.append_custom_message("note", [{"type": "text", "text": "shown"}])


def branched(session: SessionManager) -> None:
    _, stay = exchange(session, "the harbour")
    exchange(session, "a way that is left")
    session.branch(stay)


def branched_and_continued(session: SessionManager) -> None:
    branched(session)
    exchange(session, "the way that is taken")


def branched_twice(session: SessionManager) -> None:
    first, _ = exchange(session, "one")
    exchange(session, "two")
    session.branch(first)
    session.append_message(assistant("another answer"))
    session.branch(first)


def put_back(session: SessionManager) -> None:
    exchange(session, "what is left behind")
    session.reset_leaf()


def put_back_and_continued(session: SessionManager) -> None:
    put_back(session)
    exchange(session, "a new beginning")


def labelled(session: SessionManager) -> None:
    asked, answered = exchange(session, "labels")
    session.append_label(asked, "start")
    session.append_label(answered, "wrong")
    session.append_label(answered, None)
    exchange(session, "more")
    session.branch(answered)
    session.append_label(answered, "here")
    session.append_session_info("  Labels  ")


def compacted_twice(session: SessionManager) -> None:
    exchange(session, "long ago")
    kept, _ = exchange(session, "before")
    session.append_compaction("What was long ago.", kept, 50_000, details={"readFiles": ["a"]})
    exchange(session, "between")
    kept, _ = exchange(session, "lately")
    session.append_compaction("What was, all in all.", kept, 60_000, from_hook=True)
    exchange(session, "now")


def summarised_branch(session: SessionManager) -> None:
    _, stay = exchange(session, "the trunk")
    exchange(session, "a detour")
    session.branch_with_summary(stay, "The detour led nowhere.", details={"n": 2})
    exchange(session, "the trunk again")


def summarised_whole(session: SessionManager) -> None:
    exchange(session, "everything")
    session.branch_with_summary(None, "All of it was a detour.")


def settings(session: SessionManager) -> None:
    session.append_model_change("fake", "large")
    session.append_thinking_level_change("high")
    asked, _ = exchange(session, "settings")
    session.append_model_change("other", "huge")
    session.append_thinking_level_change("minimal")
    exchange(session, "more", answers=0)
    session.branch(asked)


def unusual_text(session: SessionManager) -> None:
    texts = (
        "圧縮 🦀 naïve",
        "half an emoji \ud83d, the other half \ude00",
        'lines\u2028that\u2029are\x85none, a NUL \x00, a quote ", a backslash \\',
        "\ufeff a mark of byte order",
    )
    for text in texts:
        exchange(session, text)
    session.append_session_info("名前 \ud83d")
    session.append_label(session.path()[0], "しるし")


def long(session: SessionManager) -> None:
    """More than is read whole: what matters is found from the end."""
    for number in range(500):
        exchange(session, f"{number} " + "water " * 200)
    branched_and_continued(session)


SHAPES = (
    *(linear, plugins, branched, branched_and_continued, branched_twice, put_back),
    *(put_back_and_continued, labelled, compacted_twice, summarised_branch, summarised_whole),
    *(settings, unusual_text, long),
)

# -- ways in which an original goes on -----------------------------------------------------


def talks(_: SessionManager) -> Steps:
    return (
        ("appendMessage", user("and now?")),
        ("appendMessage", assistant("Now this.", model="theirs")),
    )


def changes_settings(session: SessionManager) -> Steps:
    return (
        ("appendModelChange", "theirs", "theirs-1"),
        ("appendThinkingLevelChange", "xhigh"),
        ("appendSessionInfo", "Their name"),
        ("appendLabelChange", session.entries()[0].id, "theirs"),
        ("appendCustomEntry", "their.state", {"a": [1, None]}),
        ("appendCustomMessageEntry", "theirs", "a word of theirs", True),
        *talks(session),
    )


def compacts(session: SessionManager) -> Steps:
    path = session.path() or [session.entries()[0].id]
    return (("appendCompaction", "Their summary.", path[len(path) // 2], 1234), *talks(session))


def branches(session: SessionManager) -> Steps:
    return (("branch", session.entries()[1].id), *talks(session))


def branches_with_summary(session: SessionManager) -> Steps:
    return (("branchWithSummary", session.entries()[1].id, "Their detour."), *talks(session))


def begins_anew(session: SessionManager) -> Steps:
    return (("resetLeaf",), *talks(session))


GOINGS_ON = (talks, changes_settings, compacts, branches, branches_with_summary, begins_anew)

# -- what both see -------------------------------------------------------------------------


def seen_by_us(session: SessionManager) -> dict[str, Any]:
    context = session.build_context()
    return {
        "messages": context.messages,
        "model": context.model,
        "thinkingLevel": context.thinking_level,
        "name": session.name,
        "labels": session.labels(),
    }


def seen_by_them(reply: dict[str, Any]) -> dict[str, Any]:
    context = reply["context"]
    settings = {key: context[key] for key in ("messages", "model", "thinkingLevel")}
    return {**settings, "name": reply["name"], "labels": reply["labels"]}


def made(shape: Callable[[SessionManager], None], folder: Path) -> str:
    """The path of a session of that shape."""
    with SessionManager.create(cwd="/w", session_dir=folder, durability="none") as session:
        shape(session)
        assert session.path_name is not None
        return session.path_name


@pytest.mark.parametrize("shape", SHAPES)
def test_an_original_sees_what_we_wrote_as_we_do(
    original: Original, shape: Callable[[SessionManager], None], tmp_path: Path
) -> None:
    path = made(shape, tmp_path)
    before = Path(path).read_bytes()
    with SessionManager.open(path) as session:
        assert seen_by_them(original(path)) == seen_by_us(session)
    assert Path(path).read_bytes() == before, "looking changed the file"


@pytest.mark.parametrize("go_on", GOINGS_ON)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_original_goes_on_then_we_then_the_original(
    original: Original,
    shape: Callable[[SessionManager], None],
    go_on: Callable[[SessionManager], Steps],
    tmp_path: Path,
) -> None:
    path = made(shape, tmp_path)
    with SessionManager.open(path, durability="none") as held:
        held.build_context()
        theirs = seen_by_them(original(path, *go_on(held)))
        held.refresh()
        assert seen_by_us(held) == theirs, "the session that was open meanwhile"
        with SessionManager.open(path) as fresh:
            assert seen_by_us(fresh) == theirs, "the session opened afterwards"
        exchange(held, "their turn")
        assert seen_by_them(original(path)) == seen_by_us(held)
        assert held.build_context().messages[:-2] == theirs["messages"]
        assert held.verify() == []


def test_a_session_that_an_original_began_is_continued(original: Original, tmp_path: Path) -> None:
    path = tmp_path / "theirs.jsonl"
    began = original(path, ("appendThinkingLevelChange", "low"), *talks_alone())
    with SessionManager.open(path) as session:
        assert session.session_id == began["header"]["id"]
        assert seen_by_us(session) == seen_by_them(began)
        exchange(session, "ours")
        assert session.verify() == []
        assert seen_by_them(original(path)) == seen_by_us(session)


def talks_alone() -> Steps:
    return (("appendMessage", user("hello")), ("appendMessage", assistant("Good morning.")))


@pytest.mark.parametrize("shape", [s for s in SHAPES if s is not put_back])
def test_our_fork_is_a_session_of_its_own_to_an_original(
    original: Original, shape: Callable[[SessionManager], None], tmp_path: Path
) -> None:
    path = made(shape, tmp_path)
    with SessionManager.fork_from(path, session_dir=tmp_path / "forks") as fork:
        reply = original(str(fork.path_name))
        assert seen_by_them(reply) == seen_by_us(fork)
        assert reply["header"]["parentSession"] == path
        with SessionManager.open(path) as parent:
            assert fork.build_context().messages == parent.build_context().messages


@pytest.mark.parametrize("shape", [s for s in SHAPES if s not in {put_back, labelled}])
def test_an_originals_fork_of_our_session_reads_alike(
    original: Original, shape: Callable[[SessionManager], None], tmp_path: Path
) -> None:
    path = made(shape, tmp_path)
    with SessionManager.open(path) as parent:
        leaf = parent.leaf_id
        reply = original(path, ("createBranchedSession", leaf), *talks(parent))
        with SessionManager.open(reply["file"]) as fork:
            assert seen_by_us(fork)["messages"] == reply["context"]["messages"]
            assert fork.build_context().messages[:-2] == parent.build_context().messages
            assert fork.verify() == []


def test_pi_cuts_a_fork_off_behind_a_label_and_we_bridge_it(pi: Original, tmp_path: Path) -> None:
    """pi leaves labels out of a fork, and what follows one loses its parent."""
    path = made(labelled, tmp_path)
    with SessionManager.open(path) as parent:
        reply = pi(path, ("createBranchedSession", parent.leaf_id), *talks(parent))
        assert len(reply["context"]["messages"]) == 2
        with SessionManager.open(reply["file"]) as fork:
            assert fork.build_context().messages[:-2] == parent.build_context().messages
            assert {finding.kind for finding in fork.verify()} == {"missing-parent"}


def test_a_question_without_an_answer_that_an_original_writes_twice_is_read_once(
    original: Original, tmp_path: Path
) -> None:
    """Before the first answer an original keeps lines to itself, and pi repeats ours then."""
    with SessionManager.create(cwd="/w", session_dir=tmp_path) as session:
        session.append_message(user("is anybody there?"))
        path = str(session.path_name)
        theirs = original(path, ("appendMessage", assistant("Yes.")))
        session.refresh()
        assert session.build_context().messages == theirs["context"]["messages"]
        exchange(session, "the tide")
        assert original(path)["context"]["messages"] == session.build_context().messages


def test_openclaw_stands_where_we_stand(openclaw: Original, tmp_path: Path) -> None:
    """pi takes the last line for the leaf; OpenClaw reads `leaf` lines as we do."""
    for shape in SHAPES:
        path = made(shape, tmp_path / shape.__name__)
        with SessionManager.open(path) as session:
            reply = openclaw(path)
            assert (reply["leafId"], reply["path"]) == (session.leaf_id, session.path())
            exchange(session, "more")
            again = openclaw(path)
            assert (again["leafId"], again["path"]) == (session.leaf_id, session.path())


def test_a_copied_file_of_ours_is_listed_by_an_original(original: Any, tmp_path: Path) -> None:
    path = made(labelled, tmp_path / "ours")
    (tmp_path / "theirs").mkdir()
    shutil.copy(path, tmp_path / "theirs")
    (listed,) = original.sessions_in(tmp_path / "theirs")
    with SessionManager.open(path) as session:
        assert listed["id"] == session.session_id
        assert listed["name"] == session.name == "Labels"
    assert listed["cwd"] == "/w"
    assert listed["messageCount"] == 4
    assert listed["firstMessage"] == "What about labels?"
