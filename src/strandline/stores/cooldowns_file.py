"""The cool-downs of models in one small file, for any number of processes.

``{"version": 1, "models": {"provider/model": {…}}}``, written whole and put in place of the
old file under a lock of the operating system; reading takes no lock. The file can be had
again: what cannot be understood is kept aside, a warning says so, and the records begin
anew. What the records mean is decided by `strandline.runtime.cooldowns`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from strandline.errors import StoreError, StoreWriteFailed
from strandline.stores.disk import Disk, DiskFile, RealDisk
from strandline.stores.whole_file import backing_off, open_lock, replace_whole
from strandline.transcript.messages import JsonObject

VERSION = 1
MAX_BYTES = 1 << 20
"""A larger file is none of ours."""

ASIDE_SUFFIX = ".unreadable"
"""Of what was kept aside; the next one takes its place."""

Records = Mapping[str, JsonObject]


class CooldownsFile:
    """Satisfies `strandline.runtime.cooldowns.CooldownRecords`.

    `warn` hears what a person should know. `pause` waits for so many seconds. Both methods
    raise `StoreError` when the disk does not do what is asked.
    """

    def __init__(
        self,
        path: Path,
        *,
        disk: Disk | None = None,
        warn: Callable[[str], None] | None = None,
        pause: Callable[[float], None] = time.sleep,
        lock_timeout_ms: int = 5_000,
    ) -> None:
        self.path = path
        self._disk: Disk = disk or RealDisk()
        self._warn = warn
        self._pause = pause
        self._lock_timeout_ms = lock_timeout_ms

    def read(self) -> Records:
        """The records; none where the file is missing or makes no sense."""
        return _understood(self._content()) or {}

    def update(self, change: Callable[[Records], Records]) -> None:
        """Put `change` of the records in their place."""
        with self._writing(), self._locked():
            content = self._content()
            records = _understood(content)
            if records is None:
                self._set_aside()
            changed = dict(change(records or {}))
            if records is None or changed != records:
                self._replace(changed)

    def _content(self) -> bytes | None:
        """The file, None when there is none; a byte more than `MAX_BYTES` at most."""
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error) from error
        try:
            return file.read_at(0, MAX_BYTES + 1)
        except OSError as error:
            raise self._unreadable(error) from error
        finally:
            file.close()

    def _set_aside(self) -> None:
        aside = self.path.with_name(self.path.name + ASIDE_SUFFIX)
        self._disk.replace(self.path, aside)
        if self._warn is not None:
            self._warn(
                f"{self.path} was not understood: it is kept as {aside.name}, and which models "
                "are left alone after failures is recorded anew"
            )

    def _replace(self, records: Records) -> None:
        """Write a new file and put it in the place of the old one. The lock must be held."""
        text = json.dumps({"version": VERSION, "models": records}, indent=2)
        replace_whole(self._disk, self.path, text.encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with closing(open_lock(self._disk, self.path)) as lock:
            self._wait_for(lock)
            yield

    def _wait_for(self, lock: DiskFile) -> None:
        for _ in backing_off(self._pause, self._lock_timeout_ms):
            if lock.lock(wait=False):
                return
        raise StoreError(
            f"{self.path} is held by another Strandline process",
            remedy="wait until it is done, or stop it",
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreWriteFailed(
                f"{self.path} was not written ({error.strerror})",
                remedy="make room or correct the permissions; it is written again next time",
            ) from error

    def _unreadable(self, error: OSError) -> StoreError:
        return StoreError(
            f"{self.path} cannot be read ({error.strerror})",
            remedy="correct its permissions, or remove it",
        )


def _understood(content: bytes | None) -> dict[str, JsonObject] | None:
    """The records in a file; None for a file that is none of ours."""
    if content is None:
        return {}
    try:
        document: Any = json.loads(content.decode()) if len(content) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        return None
    models = document.get("models")
    return models if isinstance(models, dict) else None
