"""Measure Strandline and write docs/benchmarks.md: ``python bench/run.py [--quick]``.

Files go to a folder of the repository (`.benchmarks`, not under version control), because
what syncs cost is what the disk of the work costs; they are removed afterwards.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from bench import appending, assembling, commands, counting, opening, turning  # noqa: E402 - ROOT must be on the path
from bench.table import markdown, plain  # noqa: E402 - as above

TOPICS = {
    "opening": opening,
    "appending": appending,
    "assembling": assembling,
    "counting": counting,
    "turns": turning,
    "commands": commands,
}
PAGE = ROOT / "docs" / "benchmarks.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the sizes; prints, writes no page"
    )
    parser.add_argument("--only", choices=TOPICS, help="one topic; prints, writes no page")
    parser.add_argument("--folder", type=Path, default=ROOT / ".benchmarks", help="for files")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    sections = []
    for name, topic in TOPICS.items():
        if options.only in {None, name}:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                print(f"measuring: {topic.TITLE} …", file=sys.stderr, flush=True)
                sections.append((topic.TITLE, list(topic.rows(Path(folder), quick=options.quick))))
    print(plain(sections))
    if not options.quick and options.only is None:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(markdown(sections), encoding="utf-8")
        print(f"\nwritten to {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
