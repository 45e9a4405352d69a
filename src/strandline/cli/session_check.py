"""``session verify`` and ``repair``: what is damaged, and a file without the damage."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import click

from strandline.cli.new_file import check_is_free, write_new
from strandline.cli.output import bold, dim, json_option, print_json, print_lines
from strandline.cli.transcript_file import file_argument, opened, read_bytes, refuse
from strandline.cli.words import amount, one_line
from strandline.clock import RandomIds, SystemClock
from strandline.transcript.damage import Finding
from strandline.transcript.header import new_header
from strandline.transcript.messages import JsonObject
from strandline.transcript.migrate import CURRENT_VERSION, migrate
from strandline.transcript.repair import Repair, version_in
from strandline.transcript.repair import repair as repaired
from strandline.transcript.survey import Change

MOST_OF_A_KIND = 20
"""So many findings of one kind in a row are printed; `--json` has them all."""


@click.command()
@file_argument
@json_option
@click.pass_obj
def verify(state_dir: Path, *, file: Path, as_json: bool) -> int:
    """Say what is damaged in FILE, line by line.

    Exit code 0 is clean, 1 is with findings, 2 is unreadable.
    """
    with opened(file, state_dir) as session:
        findings, entries = session.verify(), session.entry_count
    version, findings = _with_lines(file, findings)
    if as_json:
        print_json(_findings_json(file, version, entries, findings))
    else:
        print_lines(_finding_lines(file, version, entries, findings))
    return 1 if findings else 0


def _with_lines(file: Path, findings: list[Finding]) -> tuple[int, list[Finding]]:
    """The version of the file, and the findings in its order, each with its line number."""
    with file.open("rb") as stream:
        version = version_in(stream.read(1 << 16))
    unplaced = [finding for finding in findings if finding.line is None]
    if unplaced:
        image = read_bytes(file)
        if version < CURRENT_VERSION:
            image = migrate(image, version)  # the image that the offsets are of
        lines = _line_numbers(image, sorted({finding.offset for finding in unplaced}))
        findings = [f if f.line else replace(f, line=lines[f.offset]) for f in findings]
    return version, sorted(findings, key=lambda finding: finding.line or 0)


def _line_numbers(image: bytes, offsets: Sequence[int]) -> dict[int, int]:
    numbers, line, start = {}, 1, 0
    for offset in offsets:
        line += image.count(b"\n", start, offset)
        numbers[offset], start = line, offset
    return numbers


def _findings_json(
    file: Path, version: int, entries: int, findings: Sequence[Finding]
) -> JsonObject:
    return {
        "file": str(file),
        "version": version,
        "entries": entries,
        "findings": [_json(finding) | {"offset": finding.offset} for finding in findings],
        "clean": not findings,
    }


def _json(found: Finding | Change) -> JsonObject:
    return {
        "line": found.line,
        "kind": found.kind,
        "detail": found.detail,
        "entryId": found.entry_id,
    }


def _finding_lines(
    file: Path, version: int, entries: int, findings: Sequence[Finding]
) -> Iterator[str]:
    yield from _listed(findings)
    counts = Counter(finding.kind for finding in findings)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
    verdict = f"{amount(len(findings), 'finding')}: {kinds}" if findings else "clean"
    summary = f"version {version}, {amount(entries, 'entry', 'entries')}, {verdict}"
    yield bold(f"{one_line(str(file))}: {summary}")
    if findings:
        name = one_line(shlex.quote(str(file)))
        yield dim(f"`strandline session repair {name}` writes a new file without them")


def _listed(found: Sequence[Finding | Change]) -> Iterator[str]:
    """One line for each thing, long rows of one kind cut short."""
    for kind, group in groupby(found, key=lambda each: each.kind):
        same = list(group)
        for each in same[:MOST_OF_A_KIND]:
            yield f"line {each.line:<6} {kind:<20} {one_line(each.detail)}"
        if len(same) > MOST_OF_A_KIND:
            more = f"and {len(same) - MOST_OF_A_KIND:,} more like these"
            yield dim(f"{'':<11} {kind:<20} {more}")


@click.command()
@file_argument
@click.option(
    "-o",
    "--output",
    "out",
    metavar="OUT",
    type=click.Path(path_type=Path, readable=False),
    help="The new file  [default: NAME.repaired.jsonl beside FILE]",
)
@json_option
@click.pass_obj
def repair(state_dir: Path, *, file: Path, out: Path | None, as_json: bool) -> None:
    """Write a new file with everything that can be read in FILE, without the damage.

    FILE stays as it is. Lines that the new file does not hold as they were are kept, byte
    for byte, in OUT.damaged. An old version comes out as the current one.
    """
    del state_dir
    out = out or file.with_name(f"{file.name.removesuffix('.jsonl')}.repaired.jsonl")
    header = new_header(RandomIds().session_id(), SystemClock(), "", None)
    result = repaired(read_bytes(file), header)
    if not result.lines:
        refuse(file)
    kept = out.with_name(out.name + ".damaged") if result.damaged else None
    if all(change.kind == "old-version" for change in result.changes):
        result, kept = replace(result, changes=[]), None
    else:
        _write(result, out, kept)
    if as_json:
        print_json(_repair_json(file, result, out if result.changes else None, kept))
    else:
        print_lines(_repair_lines(file, result, out, kept))


def _write(result: Repair, out: Path, kept: Path | None) -> None:
    check_is_free(out)
    if kept is not None:
        write_new(kept, (line + b"\n" for line in result.damaged))
    write_new(out, (line + b"\n" for line in result.lines))


def _repair_json(file: Path, result: Repair, out: Path | None, kept: Path | None) -> JsonObject:
    return {
        "file": str(file),
        "out": str(out) if out else None,
        "damaged": str(kept) if kept else None,
        "entries": len(result.lines) - 1,
        "changes": [_json(change) for change in result.changes],
    }


def _repair_lines(file: Path, result: Repair, out: Path, kept: Path | None) -> Iterator[str]:
    if not result.changes:
        yield bold(f"{one_line(str(file))} is clean: there is nothing to repair")
        return
    yield from _listed(result.changes)
    entries = amount(len(result.lines) - 1, "entry", "entries")
    yield bold(f"{one_line(str(out))}: {entries}, {amount(len(result.changes), 'change')}")
    if kept is not None:
        lines = amount(len(result.damaged), "old line")
        yield dim(f"{one_line(str(kept))}: {lines}, byte for byte")
