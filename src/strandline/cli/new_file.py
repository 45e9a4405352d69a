"""A new file, whole or not at all, that never takes the place of another."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from strandline.errors import StoreWriteFailed, TranscriptExists


def write_new(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file of 0600 that survives a power cut once this returns.

    It appears under its name when it is complete. Raises `TranscriptExists`,
    `StoreWriteFailed`; then nothing is left behind.
    """
    check_is_free(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _write(draft, parts)
        os.link(draft, path)  # fails where a rename would replace
        _sync_folder(path.parent)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise StoreWriteFailed(
            f"cannot write {path} ({error.strerror})", remedy="check the folder and the disk"
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink()


def check_is_free(path: Path) -> None:
    """Raise `TranscriptExists` if there is something of that name."""
    if os.path.lexists(path):
        raise _exists(path)


def _exists(path: Path) -> TranscriptExists:
    return TranscriptExists(f"{path} exists already", remedy="choose another name")


def _write(path: Path, parts: Iterable[bytes]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:  # noqa: PTH123 - Path takes no descriptor
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
