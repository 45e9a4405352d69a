"""Taking times and sizes."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_PEAK = """
import resource, sys
def peak():
    try:
        for line in open("/proc/self/status"):
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
"""
"""The peak of a process's memory. Linux carries `ru_maxrss` over from the parent."""


def median_s(work: Callable[[], object], repeats: int) -> float:
    """The median time of `work`, in seconds, after one run that does not count."""
    if repeats > 1:
        work()
    return statistics.median(once_s(work) for _ in range(repeats))


def best_s(works: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The best time of each work, in seconds; they take turns, so that a busy moment of the
    machine falls on all of them.
    """
    times = [[once_s(work) for work in works] for _ in range(rounds)]
    return [min(of_one) for of_one in zip(*times, strict=True)]


def once_s(work: Callable[[], object]) -> float:
    """The time of one run, in seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_bytes(code: str, *arguments: str) -> int:
    """The most memory that a Python of its own needed for `code`."""
    words = [sys.executable, "-c", f"{_PEAK}\n{code}\nprint(peak())", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def command_s(words: Sequence[str | Path], repeats: int, **environment: str) -> float:
    """The median wall time of a command, in seconds. Raises `CalledProcessError`."""
    env = {**os.environ, **environment}

    def run() -> None:
        subprocess.run(words, check=True, env=env, capture_output=True)

    return median_s(run, repeats)
