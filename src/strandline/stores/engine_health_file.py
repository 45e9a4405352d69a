"""What went wrong with context engines in one small file: ``{"version": 1, "failures": [{…}]}``.

What the records mean is decided by `strandline.runtime.engine_health`.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.stores.records_file import RecordsFile
from strandline.transcript.messages import JsonObject

NAME = "engine-health.json"


class EngineHealthFile(RecordsFile[Sequence[JsonObject]]):
    """Satisfies `strandline.runtime.engine_health.EngineHealthRecords`."""

    member = "failures"
    shape = list
    what = "what is known of engines"

    def read(self) -> Sequence[JsonObject]:
        """The records; whoever asks for them is told where they make no sense."""
        if self._found() is None:
            self._tell(f"{self.place} is not understood: {self.what} is not in it")
        return super().read()
