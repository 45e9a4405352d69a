"""Files of records: damage, other processes, and a disk that fails; for each file there is."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import StoreError
from strandline.stores.cooldowns_file import CooldownsFile
from strandline.stores.disk import RealDisk
from strandline.stores.engine_health_file import EngineHealthFile
from strandline.stores.records_file import MAX_BYTES, RecordsFile
from strandline.testing import Faults, FaultyDisk, PowerCut

File = type[RecordsFile[Any]]


@pytest.fixture(params=[CooldownsFile, EngineHealthFile], ids=lambda file: file.member)
def file(request: pytest.FixtureRequest) -> File:
    found: File = request.param
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "records.json"


def adding(name: str) -> Callable[[Any], Any]:
    """A change that adds a record of that name."""

    def change(records: Any) -> Any:
        if isinstance(records, dict):
            return {**records, name: {"n": 1}}
        return [*records, {"name": name}]

    return change


def names(records: Any) -> set[str]:
    return set(records) if isinstance(records, dict) else {each["name"] for each in records}


def test_the_file_is_private_and_says_what_it_holds(file: File, path: Path) -> None:
    file(path).update(adding("a"))
    kept = adding("a")(file.shape())
    assert json.loads(path.read_text()) == {"version": 1, file.member: kept}
    assert file(path).read() == kept
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_reading_makes_no_file(file: File, path: Path) -> None:
    assert file(path).read() == file.shape()
    assert not path.parent.exists()


def test_what_does_not_change_is_not_written_again(file: File, path: Path) -> None:
    file(path).update(adding("a"))
    before = path.stat().st_ino
    file(path).update(lambda records: records)
    assert path.stat().st_ino == before


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "\xff\xfe",
        "[]",
        '{"version": 9, "MEMBER": RIGHT}',
        '{"version": 1, "MEMBER": WRONG}',
        "[" * 100_000,
        " " * MAX_BYTES + '{"version": 1, "MEMBER": RIGHT}',
    ],
    ids=["empty", "torn", "no-text", "list", "other-version", "odd", "deep", "large"],
)
def test_a_file_that_is_not_understood_reads_as_nothing_and_is_kept_aside_with_a_warning(
    file: File, path: Path, content: str
) -> None:
    right, wrong = ("{}", "[]") if file.shape is dict else ("[]", "{}")
    filled = content.replace("MEMBER", file.member).replace("RIGHT", right).replace("WRONG", wrong)
    damaged = filled.encode("latin-1")
    path.parent.mkdir()
    path.write_bytes(damaged)
    warnings: list[str] = []
    assert file(path).read() == file.shape()
    file(path, warn=warnings.append).update(adding("a"))
    assert names(file(path).read()) == {"a"}
    assert path.with_name("records.json.unreadable").read_bytes() == damaged
    assert len(warnings) == 1
    assert str(path) in warnings[0]


def test_processes_that_write_at_once_lose_nothing(file: File, path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        f"from {file.__module__} import {file.__name__} as File\n"
        "def add(old, name):\n"
        "    return {**old, name: {}} if isinstance(old, dict) else [*old, {'name': name}]\n"
        "for n in range(10):\n"
        "    File(Path(sys.argv[1])).update(lambda old: add(old, f'{sys.argv[2]}{n}'))\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, path, name]) for name in "ab"]
    assert [process.wait(60) for process in running] == [0, 0]
    assert len(file(path).read()) == 20


def test_a_lock_that_is_never_given_back_is_an_error_that_names_the_file(
    file: File, path: Path
) -> None:
    held = RealDisk().open(path.with_name("records.json.flock"), write=True, create=True)
    assert held.lock(wait=False)
    with pytest.raises(StoreError, match=r"records\.json is held by another"):
        file(path, pause=lambda _: None).update(adding("a"))
    held.close()


def test_a_disk_that_fails_at_any_step_leaves_the_old_records_or_the_new(file: File) -> None:
    path = Path("/state/records.json")
    step, done = 0, False
    while not done:
        step += 1
        faults = Faults()
        disk = FaultyDisk(faults)
        file(path, disk=disk).update(adding("one"))
        before = disk.files[path]
        faults.fail_at = disk.operations + step
        try:
            file(path, disk=disk).update(adding("two"))
            done = True
        except StoreError:
            assert disk.files[path] == before or b"two" in disk.files[path]
        faults.fail_at = None
        file(path, disk=disk).update(adding("three"))
        assert b"three" in disk.files[path]
    assert step > 5


def test_after_a_power_cut_there_are_the_old_records_or_the_new(file: File) -> None:
    path = Path("/state/records.json")
    for step in range(1, 12):
        faults = Faults()
        disk = FaultyDisk(faults)
        file(path, disk=disk).update(adding("one"))
        faults.power_cut_at = disk.operations + step
        with suppress(PowerCut):
            file(path, disk=disk).update(adding("two"))
        for seed in range(5):
            found = file(path, disk=disk.after_power_cut(seed)).read()
            assert names(found) in ({"one"}, {"one", "two"})


def test_a_folder_that_cannot_be_read_is_an_error_with_its_remedy(
    file: File, tmp_path: Path
) -> None:
    (tmp_path / "records.json").mkdir()
    with pytest.raises(StoreError, match="cannot be read"):
        file(tmp_path / "records.json").read()
    (tmp_path / "plain").write_text("")
    with pytest.raises(StoreError, match=r"plain/records\.json"):
        file(tmp_path / "plain" / "records.json").update(adding("a"))
