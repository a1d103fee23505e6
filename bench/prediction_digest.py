"""One line a config: its predicted figures and a digest of every phase's peaks, to compare before and after a change.

What makes predictions faster must leave them as they are: `diff` of two outputs is empty then.

    python bench/prediction_digest.py [FOLDER] [--gpu GPU] > before.txt
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.options import Options  # noqa: E402
from vramwise.subject import open_subject  # noqa: E402
from vramwise.timeline import MemoryReport  # noqa: E402
from vramwise.variants.lengths import varied_lengths  # noqa: E402
from vramwise.variants.prediction import Prediction, predict_run  # noqa: E402

DEFAULT = ROOT.parent / "shared" / "corpus" / "axolotl"


def digest(*parts: object) -> str:
    """A short name for these values."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def figures(report: MemoryReport) -> str:
    """The peaks, and a digest of everything else that is shown."""
    rest = digest(list(report.phases), dict(report.breakdown_bytes), report.peak_step, report.peak_phase)
    return f"{report.peak_allocated_bytes} {report.peak_reserved_bytes} {report.retries} {report.out_of_memory} {rest}"


def line(prediction: Prediction) -> str:
    """What the run needs, what becomes of it on the card, and every event of it."""
    timeline = prediction.timeline
    tags = timeline.tags
    events = digest(
        [(action, *rest, tags[tag] if action == 0 else tag) for action, *rest, tag in timeline.events],
        list(timeline.phases),
    )
    return f"{figures(prediction.needs)} | {figures(prediction.report)} | {events} {digest(*prediction.assumptions)}"


def main() -> None:
    """Print the lines: each config as it is, and where widths follow the data, with lengths that vary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--gpu", default="rtx-4090")
    arguments = parser.parse_args()
    for path in sorted(arguments.folder.rglob("*.y*ml")):
        name = path.relative_to(arguments.folder)
        try:
            subject = open_subject(path, Options(gpu=arguments.gpu))
            print(name, line(subject.forecast()), flush=True)
            if not subject.run.constant_shapes and subject.model is not None:
                lengths = varied_lengths(subject.run, 1)
                print(name, "varied", line(predict_run(subject.run, subject.model, lengths=lengths)), flush=True)
        except VramwiseError as error:
            print(name, "none:", str(error).replace(str(arguments.folder), "")[:80], flush=True)


if __name__ == "__main__":
    main()
