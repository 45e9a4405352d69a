"""Files as crashes, full disks and other programs leave them (spec 1, Damage; faults C, B6)."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline import SessionManager
from strandline.errors import InvalidEntry, TranscriptUnreadable
from strandline.stores.disk import RealDisk, RealFile
from strandline.stores.jsonl import JsonlStore
from strandline.stores.memory import MemoryLog, MemoryStore
from strandline.testing import CountingIds, SimulatedClock
from strandline.transcript.damage import FindingKind
from strandline.transcript.session import Session

IDS = ["0f1e2d3c", "5a69788b", "c3b4a5d6", "96877869"]  # far from each other in every bit
HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2025-01-01T00:00:00.000Z"}


def line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def said(number: int, parent: str | None = "", **more: Any) -> bytes:
    before = IDS[number - 1] if number else None
    message = {"role": "user", "content": f"text {number}", "timestamp": 7}
    entry = {"type": "message", "id": IDS[number], "parentId": before if parent == "" else parent}
    return line({**entry, "timestamp": "2025-01-01T00:00:01.000Z", "message": message, **more})


CLEAN = line(HEADER) + b"".join(said(number) for number in range(4))


def opened(image: bytes) -> tuple[Session, MemoryLog]:
    log = MemoryLog("t.jsonl", image)
    return Session(log, clock=SimulatedClock(), ids=CountingIds()), log


def texts(session: Session) -> list[Any]:
    return [message.get("content") for message in session.build_context().messages]


def kinds(session: Session) -> list[FindingKind]:
    return [finding.kind for finding in session.verify()]


def goes_on(image: bytes) -> list[Any]:
    """Say one more thing; all old bytes must stay. Returns what a new opening sees."""
    session, log = opened(image)
    session.append_message({"role": "user", "content": "next", "timestamp": 8})
    after = log.read(0, log.end())
    assert after.startswith(image) or log.backups == {"t.jsonl.v2.bak": image}
    again, _ = opened(after)
    assert texts(again) == texts(session)
    assert texts(again)[-1] == "next"
    return texts(again)[:-1]


ALL = [f"text {number}" for number in range(4)]


# -- C1, C16: torn and cut ------------------------------------------------------------------


def test_c1_a_last_line_cut_anywhere_costs_nothing_but_itself() -> None:
    start = len(CLEAN) - len(said(3))
    for cut in range(start, len(CLEAN) + 1):
        image = CLEAN[:cut]
        session, _ = opened(image)
        whole = cut >= len(CLEAN) - 1  # without its line end alone it still reads
        assert texts(session) == (ALL if whole else ALL[:3])
        assert kinds(session) == ([] if whole or cut == start else ["torn-line"])
        assert goes_on(image) == texts(session)


def test_a_file_cut_anywhere_keeps_every_line_before_the_cut() -> None:
    ends = [place for place, byte in enumerate(CLEAN) if byte == 0x0A]
    for cut in range(len(CLEAN)):
        session, log = opened(CLEAN[:cut])
        whole_lines = sum(end <= cut for end in ends)
        assert len(session.entries()) == max(0, whole_lines - 1)
        if 0 < cut < ends[0]:  # not even a header: nothing that could be continued
            with pytest.raises(TranscriptUnreadable, match="nothing was written"):
                session.append_custom("t")
            assert log.read(0, log.end()) == CLEAN[:cut]
        else:
            assert goes_on(CLEAN[:cut]) == ALL[: max(0, whole_lines - 1)]


@pytest.mark.parametrize("mask", [0x01, 0x04, 0x20, 0x80, 0xFF])
def test_a_flipped_byte_costs_at_most_the_lines_that_it_touches(mask: int) -> None:
    for place, byte in enumerate(CLEAN):
        image = CLEAN[:place] + bytes([byte ^ mask]) + CLEAN[place + 1 :]
        hit = CLEAN.count(b"\n", 0, place) - 1
        touched = {hit, hit + 1} if byte == 0x0A else {hit}
        spared = [entry_id for number, entry_id in enumerate(IDS) if number not in touched]
        session, _ = opened(image)
        assert [entry_id for entry_id in session.path() if entry_id in spared] == spared
        session.verify()
        session.tree()
        assert goes_on(image) == texts(session)


def test_c16_two_objects_on_one_line_are_one_report_and_the_rest_is_there() -> None:
    image = line(HEADER) + said(0) + said(1).rstrip() + said(2) + said(3)
    session, _ = opened(image)
    assert kinds(session) == ["malformed-line", "missing-parent"]
    assert texts(session) == ["text 0", "text 3"]


def test_b6_an_object_that_a_raw_line_end_cuts_in_two_is_two_reports() -> None:
    image = line(HEADER) + said(0) + said(1).replace(b"text", b"te\nxt") + said(2)
    session, _ = opened(image)
    assert kinds(session) == ["malformed-line", "malformed-line", "missing-parent"]
    assert texts(session) == ["text 0", "text 2"]


# -- C3: NUL, blanks, byte order marks ------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (CLEAN + b"\x00" * 284, ["nul-bytes"]),
        (CLEAN + b"\x00" * 284 + b"\n", ["nul-bytes"]),
        (CLEAN[:-1] + b"\x00" * 9, ["nul-bytes"]),
        (CLEAN.replace(b"\n", b"\n\x00\x00", 2), ["nul-bytes", "nul-bytes"]),
        (CLEAN.replace(b"\n", b"\n\n", 2), ["blank-line", "blank-line"]),
        (CLEAN.replace(b"\n", b"\r\n", 1), ["carriage-returns"]),
        (b"\xef\xbb\xbf" + CLEAN, ["byte-order-mark"]),
    ],
    ids=["nul tail", "nul line", "nul end", "nul inside", "blank", "crlf", "bom"],
)
def test_c3_padding_is_reported_left_alone_and_costs_nothing(
    image: bytes, expected: list[str]
) -> None:
    session, _ = opened(image)
    assert texts(session) == ALL
    assert kinds(session) == expected
    assert goes_on(image) == ALL


@pytest.mark.parametrize("image", [b"", b"\x00" * 300, b"\n\n", b"\xef\xbb\xbf"])
def test_c3_c14_a_file_without_anything_in_it_gets_a_header_with_its_first_entry(
    image: bytes,
) -> None:
    session, log = opened(image)
    assert session.path() == session.tips() == []
    session.append_message({"role": "user", "content": "first", "timestamp": 1})
    assert (session.session_id, session.leaf_id) == ("t", "00000001")
    assert log.read(0, log.end()).startswith(image)
    again, _ = opened(log.read(0, log.end()))
    assert again.header["version"] == 3
    assert again.session_id == "t"
    assert "missing-header" not in kinds(again)
    assert texts(again) == ["first"]


@pytest.mark.parametrize(
    "image",
    [b'{"a":{"b":1}}\n', b'{\n  "a": 1\n}\n', b"\x89PNG\r\n\x1a\n", b'{"type":"trace","x":1}\n'],
)
def test_c14_a_file_that_is_no_transcript_takes_no_entry(image: bytes) -> None:
    session, log = opened(image)
    assert session.build_context().messages == []
    with pytest.raises(TranscriptUnreadable, match="holds no line of a transcript"):
        session.append_message({"role": "user", "content": "first", "timestamp": 1})
    assert log.read(0, log.end()) == image


# -- headers, ids, parents ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (CLEAN.split(b"\n", 1)[1], ["missing-header"]),
        (b'{"type":"sess\n' + CLEAN.split(b"\n", 1)[1], ["malformed-line", "missing-header"]),
        (CLEAN.replace(said(2), line(HEADER) + said(2)), ["second-header"]),
        (CLEAN + said(2), ["duplicate-id"]),
        (CLEAN.replace(said(2), said(2, parent=IDS[2])), ["parent-cycle"]),
    ],
    ids=["no header", "damaged header", "second header", "duplicate", "own parent"],
)
def test_odd_headers_ids_and_parents_are_reported(image: bytes, expected: list[str]) -> None:
    session, _ = opened(image)
    assert kinds(session) == expected
    shown = ALL[2:] if expected == ["parent-cycle"] else ALL
    assert texts(session) == shown
    assert goes_on(image) == shown


NOTHING_NAMED = "Expecting property name enclosed in double quotes"


def test_findings_name_the_line_and_say_why() -> None:
    session, _ = opened(CLEAN + b"[1]\n{\n")
    assert [str(finding) for finding in session.verify()] == [
        "line 6: malformed-line: a JSON array, not an object",
        f"line 7: malformed-line: not JSON: {NOTHING_NAMED} (character 2)",
    ]


def test_c6_three_bad_lines_of_145_are_three_findings_and_142_entries_are_there() -> None:
    lines = [line({"type": "custom", "id": f"{n:08x}", "customType": "t"}) for n in range(145)]
    for bad in (20, 70, 120):
        lines[bad] = lines[bad][:30] + b"\n"
    session, _ = opened(line(HEADER) + b"".join(lines))
    findings = session.verify()
    assert [(each.kind, each.line) for each in findings] == [
        ("malformed-line", bad + 2) for bad in (20, 70, 120)
    ]
    assert session.entry_count == len(session.path()) == 142


def test_a_missing_parent_is_bridged_so_that_the_conversation_keeps_its_beginning() -> None:
    session, _ = opened(CLEAN.replace(said(1), b""))
    assert kinds(session) == ["missing-parent"]
    assert texts(session) == ["text 0", "text 2", "text 3"]
    (root,) = session.tree()
    assert root.children[0].bridged
    assert not root.bridged


def test_a_long_chain_of_late_parents_and_a_ring_are_told_apart_in_one_pass() -> None:
    """20,000 lines in the wrong order: nothing here may cost the square of that."""
    count = 20_000

    def child(number: int, parent: int) -> bytes:
        entry = {"type": "custom", "id": f"{number:08x}", "parentId": f"{parent:08x}"}
        return line({**entry, "customType": "t"})

    entries = [child(number, number - 1) for number in range(count - 1, 0, -1)]
    root = line({"type": "custom", "id": "00000000", "parentId": None, "customType": "t"})
    session, _ = opened(line(HEADER) + b"".join([*entries, root]))
    assert kinds(session) == ["late-parent"] * (count - 1)
    session, _ = opened(line(HEADER) + b"".join([*entries, child(0, count - 1)]))
    assert kinds(session) == ["parent-cycle"] * (count - 1)
    assert len(session.path()) == count


def test_c9_a_header_s_id_is_the_session_s_whatever_the_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "boot-2-topic-7.jsonl"
    path.write_bytes(CLEAN)
    with SessionManager.open(path) as session:
        assert session.session_id == "s"
        assert session.verify() == []


def test_c11_metadata_that_reuses_an_id_is_reported_and_the_message_keeps_it() -> None:
    snapshot = line({"type": "file-history-snapshot", "id": IDS[1], "parentId": IDS[3]})
    session, _ = opened(CLEAN + snapshot)
    assert kinds(session) == ["duplicate-id"]
    assert session.entry(IDS[1]).type == "message"
    assert (session.leaf_id, session.append_parent_id) == (IDS[3], IDS[3])


def test_c12_a_parent_of_an_unknown_type_is_walked_through() -> None:
    progress = line({"type": "progress", "id": IDS[1], "parentId": IDS[0], "at": 1})
    session, _ = opened(CLEAN.replace(said(1), progress))
    assert kinds(session) == []
    assert texts(session) == ["text 0", "text 2", "text 3"]
    assert session.path() == [IDS[0], IDS[2], IDS[3]]  # its child follows the leaf before it


# -- what JSON can hold ---------------------------------------------------------------------


def test_c4_raw_unicode_line_separators_stay_inside_their_line() -> None:
    odd = "a\u2028b\u2029c\u0085d\x1ce\x0bf"
    session, log = opened(
        CLEAN.replace(b"text 2", odd.replace("\x1c", "").replace("\x0b", "").encode())
    )
    assert len(session.path()) == 4
    session.append_message({"role": "user", "content": odd, "timestamp": 1})
    again, _ = opened(log.read(0, log.end()))
    assert texts(again)[-1] == odd
    assert kinds(again) == []


def test_c5_lone_surrogates_are_read_written_and_copied_byte_for_byte(tmp_path: Path) -> None:
    halved = CLEAN.replace(b"text 2", b"cut \\ud83d here").replace(b"text 3", b"\\uDC00")
    path = tmp_path / "s.jsonl"
    path.write_bytes(halved)
    with SessionManager.open(path) as session:
        assert texts(session)[2:] == ["cut \ud83d here", "\udc00"]
        session.append_message({"role": "user", "content": "\ud83d", "timestamp": 1})
        assert b'"\\ud83d"' in path.read_bytes()
        with SessionManager.fork_from(path, session_dir=tmp_path) as fork:
            assert fork.path_name
            copied = Path(fork.path_name).read_bytes().split(b"\n", 1)[1]
        assert copied == path.read_bytes().split(b"\n", 1)[1]


def test_integers_beyond_every_limit_and_unknown_keys_and_blocks_survive() -> None:
    big = b'{"n":123456789012345678901234567890,"b":[{"type":"new","x":9007199254740993}]}'
    session, _ = opened(CLEAN.replace(b'"text 2"', big))
    content = session.build_context().messages[2]["content"]
    assert content == json.loads(big)
    assert big in b"".join(session.branch_lines())


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), b"bytes", dt.datetime.now(dt.UTC), {1, 2}, object()],
    ids=["nan", "inf", "bytes", "datetime", "set", "object"],
)
def test_c7_what_json_cannot_hold_is_refused_before_anything_is_written(value: Any) -> None:
    session, log = opened(CLEAN)
    attempts: list[Callable[[], object]] = [
        lambda: session.append_message({"role": "user", "content": "x", "details": [value]}),
        lambda: session.append_custom("t", value),
        lambda: session.append_custom_message("t", "x", details={"a": value}),
        lambda: session.append_compaction("s", IDS[2], 1, details=value),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidEntry, match="cannot be written as JSON"):
            attempt()
    assert log.read(0, log.end()) == CLEAN
    assert goes_on(CLEAN) == ALL


def test_what_is_no_message_is_refused() -> None:
    session, log = opened(CLEAN)
    for message in ({}, {"role": 5}, {"role": "compactionSummary"}, "text", None):
        with pytest.raises(InvalidEntry):
            session.append_message(message)  # type: ignore[arg-type]
    assert log.read(0, log.end()) == CLEAN


def nested(depth: int) -> bytes:
    return (
        b'{"type":"custom","id":"deep","parentId":null,"x":' + b"[" * depth + b"]" * depth + b"}\n"
    )


def test_json_nested_100_000_deep_is_one_report() -> None:
    session, _ = opened(CLEAN.replace(said(2), nested(100_000) + said(2)))
    assert kinds(session) == ["malformed-line"]
    assert texts(session) == ALL


def test_how_deep_a_line_may_be_does_not_depend_on_who_reads_it() -> None:
    def below(frames: int, image: bytes) -> list[str]:
        return below(frames - 1, image) if frames else [node.id for node in opened(image)[0].tree()]

    limit = sys.getrecursionlimit()
    for depth in (limit // 4, limit // 2, limit - 60, limit, 2 * limit):
        image = line(HEADER) + nested(depth)
        assert below(0, image) == below(limit // 2, image)


def test_bodies_that_say_nothing_keep_their_place_and_are_reported() -> None:
    image = CLEAN.replace(said(2), said(2, message="no object"))
    session, _ = opened(image)
    assert texts(session) == ["text 0", "text 1", "text 3"]
    assert kinds(session) == ["damaged-entry"]
    assert session.entry(IDS[2]).data["message"] == "no object"


def test_bytes_that_are_no_utf_8_read_as_replacement_characters_and_are_copied_as_they_are() -> (
    None
):
    session, _ = opened(CLEAN.replace(b"text 2", b"te\xff\xfet"))
    assert texts(session)[2] == "te\ufffd\ufffdt"
    assert kinds(session) == ["invalid-utf8"]
    assert b"te\xff\xfet" in b"".join(session.branch_lines())


# -- a line of 200 MB -----------------------------------------------------------------------


class CountedFile(RealFile):
    """Counts the bytes that are read."""

    read = 0

    def read_at(self, offset: int, size: int) -> bytes:
        data = super().read_at(offset, size)
        CountedFile.read += len(data)
        return data


class CountingDisk(RealDisk):
    def open(self, path: Path, *, write: bool = False, create: bool = False) -> RealFile:
        file = super().open(path, write=write, create=create)
        file.__class__ = CountedFile
        return file


def test_a_line_of_200_mb_is_read_when_it_is_asked_for_and_not_before(tmp_path: Path) -> None:
    size = 200_000_000
    with (tmp_path / "t.jsonl").open("wb") as file:
        file.write(line(HEADER) + said(0))
        before, after = said(1, message={"role": "user", "content": "@"}).split(b"@")
        file.write(before + b"x" * size + after)
        file.write(line({"type": "compaction", "id": "cc", "parentId": IDS[1], "summary": "s"}))
        file.write(said(2, parent="cc") + said(3))
    CountedFile.read = 0
    log = JsonlStore(tmp_path, disk=CountingDisk()).open("t.jsonl")
    session = Session(log, clock=SimulatedClock(), ids=CountingIds())
    assert texts(session)[1:] == ALL[2:]
    assert CountedFile.read < 1_000_000
    entry = session.entry(IDS[1])
    assert len(entry.data["message"]["content"]) == size
    session.close()


def test_a_list_that_lost_its_header_keeps_the_ids_that_its_first_append_gave_it() -> None:
    """Found by fuzzing: a line without a type before the entries had it migrated twice."""
    image = (
        b'{"type":"se\x03ssion","id":"s"}\n{"\xf0ype":"message"}\n'
        b'{"type":"message","message":{"role":"hookMessage","content":"old"}}\n'
    )
    store = MemoryStore()
    first = SessionManager(store.create("t.jsonl", image), store)
    said = first.append_message({"role": "user", "content": "next", "timestamp": 1})
    again = SessionManager(store.open("t.jsonl"), store)
    assert again.path() == first.path()
    assert again.leaf_id == said
    assert [m["content"] for m in again.build_context().messages] == ["old", "next"]


def test_ids_are_kept_where_the_header_is_lost_and_the_first_line_has_none() -> None:
    image = (
        b'{"type":"somebody-elses"}\n'
        b'{"type":"message","id":"aaaaaaaa","parentId":null,"message":{"role":"user","content":"x"}}\n'
    )
    store = MemoryStore()
    assert SessionManager(store.create("t.jsonl", image), store).path() == ["aaaaaaaa"]
