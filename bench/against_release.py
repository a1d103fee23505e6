"""CPU time and lines of the default output of two releases of vramwise, on the same files, in turns.

Usage: python bench/against_release.py OLD NEW CARD VERB[,VERB…] PATH…

OLD, NEW: the `vramwise` commands of both. PATH: files, or folders with configs and scripts, of which PER_FOLDER are
drawn, always the same. Files that one of the two refuses (exit code 2) are left out and counted.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import subprocess
import sys
from pathlib import Path

ROUNDS = 2
PER_FOLDER = 8
SUFFIXES = (".yml", ".yaml", ".py", ".ipynb")


def files(paths: list[str]) -> list[Path]:
    """Return the files, and those drawn of each folder."""
    found = []
    for path in map(Path, paths):
        inside = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES) if path.is_dir() else [path]
        found += inside if len(inside) <= PER_FOLDER else random.Random(0).sample(inside, PER_FOLDER)
    return found


def run(command: list[str]) -> tuple[float, int] | None:
    """Return the CPU seconds of a command and the lines it prints; None if it refuses its input."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "COLUMNS": "160"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        return None
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, len(done.stdout.splitlines())


def compared(verb: str, path: Path, card: str, releases: list[str]) -> list[tuple[float, int]] | None:
    """Return the lowest CPU time and the lines of both releases; None if one of them refuses the file."""
    rounds = []
    for _ in range(ROUNDS):
        both = [run([release, verb, str(path), "--gpu", card]) for release in releases]
        if None in both:
            return None
        rounds.append(both)
    return [(min(time for time, _ in turns), turns[0][1]) for turns in zip(*rounds, strict=True)]


def main() -> None:
    """Print a line a file, and the figures of all of them."""
    old, new, card, verbs, *paths = sys.argv[1:]
    for verb in verbs.split(","):
        rows, refused = [], 0
        for path in files(paths):
            both = compared(verb, path, card, [old, new])
            if both is None:
                refused += 1
                continue
            (before, lines_before), (after, lines_after) = both
            rows.append((before, after, lines_before, lines_after))
            said = f"{before:6.2f} → {after:6.2f} s  × {after / before:4.2f}   {lines_before:3} → {lines_after:3} lines"
            print(f"{verb:8} {said}  {path}", flush=True)
        before, after, lines_before, lines_after = zip(*rows, strict=True)
        ratios = sorted(b / a for a, b in zip(before, after, strict=True))
        print(
            f"{verb} on {card}: {len(rows)} files, {refused} refused; CPU: median {statistics.median(before):.2f} → "
            f"{statistics.median(after):.2f} s, all {sum(before):.1f} → {sum(after):.1f} s; ratio: median "
            f"{statistics.median(ratios):.2f}, highest {ratios[-1]:.2f}, above 1.5: {sum(r > 1.5 for r in ratios)}; "
            f"lines: median {statistics.median(lines_before):g} → {statistics.median(lines_after):g}, most "
            f"{max(lines_before)} → {max(lines_after)}, longer: "
            f"{sum(b > a for a, b in zip(lines_before, lines_after, strict=True))}",
            flush=True,
        )


if __name__ == "__main__":
    main()
