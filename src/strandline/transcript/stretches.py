"""Reading whole lines from anywhere in a log."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.transcript.store import TranscriptLog

CHUNK_BYTES = 1 << 22


def whole_lines(
    log: TranscriptLog, start: int, stop: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[bytes, int]]:
    """Chunks of whole lines with their offsets; only the last may end inside a line."""
    size = chunk_bytes
    while start < stop:
        data = log.read(start, min(stop, start + size))
        if not data:
            return
        if start + len(data) < stop:
            cut = data.rfind(b"\n") + 1
            if not cut:
                size *= 2
                continue
            data, size = data[:cut], chunk_bytes
        yield data, start
        start += len(data)


def lines_before(log: TranscriptLog, stop: int, size: int) -> tuple[int, bytes]:
    """The whole lines in the last `size` bytes before `stop`, and where they start."""
    start = max(0, stop - size)
    data = log.read(start, stop)
    if not start:
        return 0, data
    cut = data.find(b"\n") + 1
    return (start + cut, data[cut:]) if cut else (stop, b"")
