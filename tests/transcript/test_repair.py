"""What a repaired transcript holds: the whole old conversation, and nothing to stumble over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.stores.memory import MemoryStore
from strandline.testing import CountingIds, SimulatedClock
from strandline.transcript.messages import Message
from strandline.transcript.repair import Repair, repair
from strandline.transcript.session import Session

FRESH = {"type": "session", "version": 3, "id": "fresh", "timestamp": "?", "cwd": ""}
HEADER = {"type": "session", "version": 3, "id": "old", "timestamp": "2025-01-01T00:00:00Z"}


def line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def entry(entry_id: str, parent: str | None, kind: str = "message", **body: Any) -> dict[str, Any]:
    if kind == "message":
        body = {"message": {"role": "user", "content": f"said {entry_id}", "timestamp": 7}, **body}
    stamp = "2025-01-01T00:00:01.000Z"
    return {"type": kind, "id": entry_id, "parentId": parent, "timestamp": stamp, **body}


def file_of(*lines: Any) -> bytes:
    return b"".join((each if isinstance(each, bytes) else line(each)) + b"\n" for each in lines)


def opened(image: bytes) -> Session:
    log = MemoryStore().create("t.jsonl", image)
    return Session(log, clock=SimulatedClock(0), ids=CountingIds())


def said(image: bytes) -> list[Any]:
    return [message.get("content") for message in opened(image).build_context().messages]


def image_of(result: Repair) -> bytes:
    return b"".join(each + b"\n" for each in result.lines)


def kinds(result: Repair) -> list[str]:
    return [change.kind for change in result.changes]


A, B, C = entry("a", None), entry("b", "a"), entry("c", "b")

CASES: dict[str, tuple[bytes, list[str], list[str]]] = {
    "a clean file": (file_of(HEADER, A, B, C), [], ["said a", "said b", "said c"]),
    "no header": (file_of(A, B), ["missing-header"], ["said a", "said b"]),
    "a damaged header": (
        file_of(line(HEADER)[:20], A),
        ["malformed-line", "missing-header"],
        ["said a"],
    ),
    "a header further down": (file_of(A, HEADER, B), ["second-header"], ["said a", "said b"]),
    "a second header": (file_of(HEADER, A, HEADER, B), ["second-header"], ["said a", "said b"]),
    "padding": (
        b"\xef\xbb\xbf" + file_of(HEADER, b"", line(A) + b"\r", line(B) + b"\x00" * 9),
        ["byte-order-mark", "blank-line", "carriage-returns", "nul-bytes"],
        ["said a", "said b"],
    ),
    "two entries on one line": (
        file_of(HEADER, line(A) + line(B), C),
        ["malformed-line", "salvaged", "salvaged"],
        ["said a", "said b", "said c"],
    ),
    "an entry behind a torn one": (
        file_of(HEADER, A, line(entry("x", "a"))[:50] + line(B), C),
        ["malformed-line", "salvaged"],
        ["said a", "said b", "said c"],
    ),
    "a torn last line": (
        file_of(HEADER, A, B) + line(C)[:-5],
        ["torn-line"],
        ["said a", "said b"],
    ),
    "a raw line end in a text": (
        file_of(HEADER, A, line(B).replace(b"said b", b"said\nb"), C),
        ["malformed-line", "salvaged", "malformed-line"],
        ["said a", "said\nb", "said c"],
    ),
    "NaN, which is not JSON": (
        file_of(HEADER, A, line(B).replace(b":7}", b":NaN}"), C),
        ["malformed-line", "salvaged"],
        ["said a", "said b", "said c"],
    ),
    "a taken id": (
        file_of(HEADER, A, B, entry("a", "b", message={"role": "user", "content": "?"}), C),
        ["duplicate-id"],
        ["said a", "said b", "said c"],
    ),
    "a line that is there twice": (
        file_of(HEADER, A, B, B, C),
        ["duplicate-id"],
        ["said a", "said b", "said c"],
    ),
    "no id": (
        file_of(HEADER, A, {k: v for k, v in B.items() if k != "id"}),
        ["missing-id"],
        ["said a", "said b"],
    ),
    "a parent that is nowhere": (file_of(HEADER, A, C), ["missing-parent"], ["said a", "said c"]),
    "a parent further down": (
        file_of(HEADER, A, entry("c", "b"), B, entry("d", "c")),
        ["late-parent"],
        ["said a", "said b", "said c", "said d"],
    ),
    "a ring of parents": (
        file_of(HEADER, entry("a", "b"), B, C),
        ["parent-cycle"],
        ["said a", "said b", "said c"],
    ),
    "an entry that is its own parent": (
        file_of(HEADER, A, entry("b", "b"), C),
        ["parent-cycle"],
        ["said b", "said c"],
    ),
    "bytes that are no UTF-8": (
        file_of(HEADER, A, line(B).replace(b"said", b"s\xffd"), C),
        ["invalid-utf8"],
        ["said a", "s\ufffdd b", "said c"],
    ),
    "a message without a message": (
        file_of(HEADER, A, {**B, "message": "lost"}, C),
        ["damaged-entry"],
        ["said a", "said c"],
    ),
    "a leaf line to nowhere": (
        file_of(HEADER, A, entry("l", "a", "leaf", targetId="zz"), B),
        ["unknown-leaf-target"],
        ["said a", "said b"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_kind_of_damage_is_repaired_and_the_conversation_is_the_old_one(case: str) -> None:
    image, expected, context = CASES[case]
    result = repair(image, FRESH)
    assert [kind for kind in kinds(result) if kind != "written-parent"] == expected
    assert said(image_of(result)) == context
    assert opened(image_of(result)).verify() == []


def test_good_lines_are_copied_byte_for_byte_and_changed_ones_kept_beside() -> None:
    odd = line(A)[:-1] + b',  "x":1e-07, "big":123456789012345678901234567890,"s":"\\ud83d"}'
    torn = line(B)[:30]
    result = repair(file_of(HEADER, odd, torn, entry("c", "b")), FRESH)
    assert result.lines[:2] == [line(HEADER), odd]
    assert result.damaged == [torn, line(entry("c", "b"))]


def test_an_old_header_comes_along_and_a_lost_one_is_made_with_the_time_of_the_first_entry() -> (
    None
):
    assert repair(file_of(A, HEADER), FRESH).lines[0] == line(HEADER)
    made = json.loads(repair(file_of(A), FRESH).lines[0])
    assert made == {**FRESH, "timestamp": A["timestamp"]}


def test_the_true_parent_takes_the_place_of_the_stand_in_once_it_is_salvaged() -> None:
    other = entry("x", "a")
    image = file_of(HEADER, A, B, other, b"{" + line(C), entry("d", "c"))
    assert said(image) == ["said a", "said x", "said d"]  # bridged to what stands before
    assert said(image_of(repair(image, FRESH))) == ["said a", "said b", "said c", "said d"]


def test_the_conversation_stands_where_it_stood_when_a_salvaged_line_goes_another_way() -> None:
    image = file_of(HEADER, A, B, C, b"{" + line(entry("x", "a")))
    result = repair(image, FRESH)
    assert kinds(result)[-1] == "leaf"
    session = opened(image_of(result))
    assert session.leaf_id == "c"
    assert "x" in session.tips()


def test_a_salvaged_line_that_continues_the_conversation_is_where_it_stands() -> None:
    session = opened(image_of(repair(file_of(HEADER, A, B, b"{" + line(C)), FRESH)))
    assert session.leaf_id == "c"


def test_parts_of_a_torn_line_are_not_taken_for_entries() -> None:
    call = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": "x"}}
    message = {"role": "assistant", "content": [{"type": "text", "text": "hi"}, call]}
    torn = line(entry("b", "a", message=message))[:-3]
    result = repair(file_of(HEADER, A, torn), FRESH)
    assert len(result.lines) == 2
    assert result.damaged == [torn]


def test_an_entry_written_over_several_lines_is_put_on_one() -> None:
    spread = json.dumps(B, indent=2).encode()
    assert said(image_of(repair(file_of(HEADER, A, spread, C), FRESH)))[1] == "said b"


def test_nothing_readable_gives_nothing() -> None:
    for image in (b"", b"\x00" * 300, b"hello\n", b'{"a":1}\n', b"[" * 9000):
        assert repair(image, FRESH).lines == []


def test_an_old_version_comes_out_as_the_current_one_with_its_conversation() -> None:
    def old(text: str) -> dict[str, Any]:
        message = {"role": "user", "content": text, "timestamp": 7}
        return {"type": "message", "timestamp": "2025-01-01T00:00:01.000Z", "message": message}

    header = {"type": "session", "id": "old", "timestamp": "2025-01-01T00:00:00.000Z"}
    image = file_of(header, old("one"), b'{"torn' + line(old("two")), old("three"))
    result = repair(image, FRESH)
    assert kinds(result)[0] == "old-version"
    assert json.loads(result.lines[0])["version"] == 3
    assert said(image_of(result)) == ["one", "two", "three"]
    assert opened(image_of(result)).verify() == []


# -- any transcript, any damage --------------------------------------------------------------

IDS = st.sampled_from(["a1", "b2", "c3", "d4", "e5", "f6", "g7", "h8"])
PARENTS = st.none() | IDS


def _body(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    if kind == "compaction":
        return {"summary": "sum", "firstKeptEntryId": draw(IDS), "tokensBefore": 1}
    if kind == "leaf":
        aside = draw(st.sampled_from([{}, {"appendParentId": draw(PARENTS)}]))
        return {"targetId": draw(PARENTS), **aside}
    return {"label": {"targetId": draw(IDS), "label": "x"}, "session_info": {"name": "n"}}.get(
        kind, {}
    )


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    kinds_of_entries = ["message", "compaction", "leaf", "label", "session_info", "strange"]
    kind = draw(st.sampled_from(["message"] * 4 + kinds_of_entries))
    made = entry(draw(IDS), draw(PARENTS), kind, **_body(draw, kind))
    if draw(st.integers(0, 9)) == 0:
        made["appendMode"] = "side"
    for key in ("id", "parentId", "message", "summary", "targetId", "name"):
        if draw(st.integers(0, 11)) == 0:
            made.pop(key, None)
    return made


@st.composite
def damaged(draw: st.DrawFn, *, hidden: bool) -> bytes:
    """A transcript with every kind of damage; `hidden` allows entries inside damaged lines."""
    parts: list[bytes] = [line(HEADER)] if draw(st.integers(0, 5)) else []
    ends = [b"\n", b"\n", b"\n", b"\r\n", b"\x00\x00\n", b"\n\n", b" \n"]
    for made in draw(st.lists(entries(), max_size=10)):
        text = line(made)
        fate = draw(st.integers(0, 11))
        if fate == 0:
            text = text[: draw(st.integers(1, len(text) - 1))]
        elif fate == 1 and hidden:
            text = text[: draw(st.integers(1, len(text)))] + line(draw(entries()))
        elif fate == 2:
            text = line(HEADER)
        elif fate == 3:
            text = text.replace(b"said", b"\xff\xfe")
        parts.append(text + draw(st.sampled_from(ends)))
    image = b"".join(part if part.endswith(b"\n") else part + b"\n" for part in parts)
    return image if draw(st.booleans()) else image.rstrip(b"\n")


def texts(messages: list[Message]) -> list[str]:
    """Messages to compare; a summary that is missing and one that is empty say the same."""
    return [json.dumps(m | {"summary": m.get("summary") or ""}) for m in messages]


@given(damaged(hidden=False))
def test_a_repair_changes_neither_the_tree_nor_the_conversation(image: bytes) -> None:
    result = repair(image, FRESH)
    if not result.lines:
        return
    old = opened(image)
    new = opened(image_of(result))
    assert new.verify() == []
    old_context, new_context = old.build_context().messages, new.build_context(old.leaf_id)
    if old.leaf_id is not None:
        assert texts(old_context) == texts(new_context.messages)
        assert new.path(old.leaf_id) == old.path()
        assert old.leaf_id in new.path()
    assert {each.id for each in old.entries()} <= {each.id for each in new.entries()}


@given(damaged(hidden=True))
def test_a_repaired_file_is_clean_and_a_second_repair_finds_nothing(image: bytes) -> None:
    result = repair(image, FRESH)
    if not result.lines:
        return
    assert opened(image_of(result)).verify() == []
    again = repair(image_of(result), FRESH)
    assert again.lines == result.lines
    assert again.changes == []
    assert again.damaged == []


@given(damaged(hidden=True))
def test_every_good_line_is_in_the_new_file_or_kept_beside_it(image: bytes) -> None:
    result = repair(image, FRESH)
    if not result.lines or "old-version" in kinds(result):
        return
    kept = {*result.lines, *result.damaged}
    for old in image.split(b"\n"):
        bare = old.strip(b" \t\r\x00")
        assert not bare or {old, bare} & kept


@given(st.binary(max_size=300))
def test_no_bytes_make_a_repair_fail(image: bytes) -> None:
    result = repair(image, FRESH)
    assert not result.lines or opened(image_of(result)).verify() == []
