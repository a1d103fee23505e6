"""Replay recordings and print, for each, mismatches and events per second: reading the file, and replaying it.

    python bench/replay.py [FILE …]

Without files: ../shared/traces if that is there, and tests/data/traces.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from vramwise.recordings.reader import read_recording
from vramwise.recordings.replay import replay
from vramwise.units import gib

ROOT = Path(__file__).parent.parent
FOLDERS = (ROOT.parent / "shared" / "traces", ROOT / "tests" / "data" / "traces")


def main() -> int:
    """Replay each file; the exit code says whether all agree with their recording."""
    paths = [Path(name) for name in sys.argv[1:]]
    paths = paths or [path for folder in FOLDERS for path in sorted(folder.glob("*.gz"))]
    columns = ("allocations", "mismatches", "peak", "recorded", "events", "read/s", "replay/s")
    print("recording".ljust(40), *(column.rjust(11) for column in columns))
    mismatches = events = 0
    seconds = 0.0
    for path in paths:
        started = time.perf_counter()
        recording = read_recording(path)
        read = time.perf_counter()
        result = replay(recording)
        done = time.perf_counter()
        mismatches, events, seconds = mismatches + result.mismatches, events + result.events, seconds + done - read
        figures = (
            f"{result.allocations:,}",
            f"{result.mismatches:,}",
            gib(result.peak_reserved_bytes),
            gib(result.recorded_peak_reserved_bytes),
            f"{result.events:,}",
            f"{result.events / (read - started):,.0f}",
            f"{result.events / (done - read):,.0f}",
        )
        print(path.name.split(".")[0].ljust(40), *(figure.rjust(11) for figure in figures))
    print(f"\n{mismatches:,} mismatches; {events:,} events replayed at {events / seconds:,.0f} a second")
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
