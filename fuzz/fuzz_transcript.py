"""Feed the reader of transcripts with nonsense, guided by coverage.

Whatever the bytes are: only typed errors come out, the next append works, a fresh reading
agrees with the one that appended, and nothing that could be read before is gone.
Run it with `make fuzz`; the corpus of a run is kept in `.fuzz-corpus`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports():
    from strandline.clock import SystemClock
    from strandline.errors import StrandlineError
    from strandline.stores.memory import MemoryStore
    from strandline.testing import CountingIds
    from strandline.transcript.session import Session

STAMP = b'"timestamp":"2026-01-01T00:00:00.000Z"'
TREE = b"""\
{"type":"session","version":3,"id":"s",%(at)s,"cwd":"/"}
{"type":"message","id":"00000001","parentId":null,%(at)s,"message":{"role":"user","content":"hi"}}
{"type":"leaf","id":"00000002","parentId":null,"targetId":null}
{"type":"label","id":"00000003","parentId":"00000002","targetId":"00000001","label":"x"}
{"type":"compaction","id":"00000004","parentId":"00000001","summary":"s",\
"firstKeptEntryId":"00000001","tokensBefore":1}
""" % {b"at": STAMP}
OLD = b"""\
{"type":"session","id":"s"}
{"type":"message","message":{"role":"hookMessage"}}
{"type":"compaction","summary":"s","firstKeptEntryIndex":1,"tokensBefore":1}
"""
DAMAGED = b'\xef\xbb\xbf\x00\x00{"type":"custom","customType":"x","id":5}\r\n\n{"type"'
SEEDS = (TREE, OLD, DAMAGED)


def one_input(data: bytes) -> None:
    """Open, look, append, open again."""
    store = MemoryStore()
    log = store.create("fuzz.jsonl", data)
    ids = CountingIds(start=0x7000_0000)
    try:
        session = Session(log, clock=SystemClock(), ids=ids)
        before = {entry.id: entry.raw for entry in session.entries()}
        session.verify()
        session.tree()
        session.tips()
        said = session.append_message({"role": "user", "content": "next", "timestamp": 1})
    except StrandlineError:
        return
    again = Session(store.open("fuzz.jsonl"), clock=SystemClock(), ids=ids)
    assert again.leaf_id == said, "the next message is not where the conversation stands"
    assert again.path() == session.path(), "a fresh reading takes another path"
    assert again.build_context().messages == session.build_context().messages
    after = {entry.id: entry.raw for entry in again.entries()}
    assert before.items() <= after.items(), "an entry is gone"


def main() -> None:
    """Run until told to stop, or until something breaks."""
    corpus = Path(".fuzz-corpus")
    corpus.mkdir(exist_ok=True)
    for number, seed in enumerate(SEEDS):
        (corpus / f"seed-{number}").write_bytes(seed)
    atheris.Setup([*sys.argv, str(corpus)], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
