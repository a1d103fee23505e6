"""How many configs of a folder `check` warns about on a card that fits them, and which rules do it.

Each config is judged alone, as `vramwise check FILE --gpu CARD` does, on the first card of a ladder on which it is
predicted to fit; one whose model is not known is judged on the ladder's first. Configs that shard get `--gpus 8`.
What Axolotl itself refuses (its recorded verdicts) is counted apart: an error there is what the tool is for. So are
configs that its parser accepts and that stop when the model is loaded or trained.
With --smallest the ladder begins with the cards of a desk instead of a data centre's: there is little to spare.

    python bench/alarms.py [FOLDER] [--smallest] [--list] [--only NAME]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from vramwise.errors import VramwiseError  # noqa: E402
from vramwise.facts.gpus import find_gpu  # noqa: E402
from vramwise.opening.options import Options  # noqa: E402
from vramwise.opening.subject import open_subject  # noqa: E402
from vramwise.types import Finding, Severity  # noqa: E402
from vramwise.variants.capacity import on_card  # noqa: E402
from vramwise.verbs.check import FileReport, check_source  # noqa: E402

DEFAULT = ROOT.parent / "shared" / "corpus" / "axolotl"
VERDICTS = ROOT / "tests" / "data" / "axolotl-0.21-verdicts-sm90-1gpu.json"
LARGE = ("h100", "h200", "b200", "mi355x")
SMALL = ("rtx-3060", "rtx-4090", "l40s", *LARGE)
SHARDED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One config, the machine it was judged for, and what was said."""

    name: str
    machine: str
    fits: bool | None
    report: FileReport

    @property
    def alarms(self) -> list[Finding]:
        """What makes the command fail."""
        return [found for found in self.report.findings if found.severity.rank >= 1]

    @property
    def stops(self) -> bool:
        """Whether an alarm says that the run will not start."""
        return any(found.severity is Severity.ERROR and not found.still_runs for found in self.alarms)


def judged(path: Path, ladder: tuple[str, ...]) -> Judged:
    """Judge one config on the first card that fits it."""
    card, gpus, fits = machine_for(path, ladder)
    report = check_source(str(path), Options(gpu=card, gpus=gpus), alone=True).lean()
    return Judged(name=path.name, machine=card if gpus == 1 else f"{gpus}× {card}", fits=fits, report=report)


def machine_for(path: Path, ladder: tuple[str, ...]) -> tuple[str, int, bool | None]:
    """The card, how many, and whether it fits; None: not known."""
    try:
        gpus = SHARDED if _shards(path) else 1
        prediction = open_subject(str(path), Options(gpu=ladder[-1], gpus=gpus)).prediction()
    except VramwiseError:
        return LARGE[0], 1, None
    for card in ladder:
        if on_card(prediction, find_gpu(card)).memory_fits:
            return card, gpus, True
    return ladder[-1], gpus, False


def _shards(path: Path) -> bool:
    run = open_subject(str(path), Options(gpu="h100", gpus=2)).run
    return (
        run.sharding.kind not in ("none", "ddp")
        or run.sharding.tensor_parallel_size > 1
        or run.sharding.context_parallel_size > 1
    )


def main() -> int:
    """Print the share that warns and the rules by how many files they warn about."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--smallest", action="store_true", help="the smallest card that fits, not the first large one")
    parser.add_argument("--list", action="store_true", help="every config with its alarms")
    parser.add_argument("--only", default="", help="files whose name contains this")
    arguments = parser.parse_args()
    paths = [path for path in sorted(arguments.folder.rglob("*.y*ml")) if arguments.only in path.name]
    ladder = SMALL if arguments.smallest else LARGE
    results = [one for one in (judged(path, ladder) for path in paths) if one.report.foreign is None]
    for one in results if arguments.list else ():
        print(f"{one.name} [{one.machine}, fits: {one.fits}]")
        for found in one.report.findings:
            print(f"    {found.severity.value:7} {found.rule}: {found.message}")
    _print_table(results)
    return 0


def _print_table(results: list[Judged]) -> None:
    refused = {one["file"] for one in json.loads(VERDICTS.read_text("utf-8")) if not one["ok"]}
    fitting = [one for one in results if one.fits is not False]
    accepted = [one for one in fitting if one.name not in refused]
    print(f"{len(results)} configs, {len(fitting)} of them fit or are not predicted ({_known(fitting)} predicted)")
    print(f"with a warning or error: {_share(fitting)}; of those that Axolotl accepts: {_share(accepted)}")
    started = [one for one in accepted if not one.stops]
    print(f"{len(accepted) - len(started)} of those stop later; with a warning of those that start: {_share(started)}")
    _print_rules("of those that Axolotl accepts", accepted)
    _print_rules("of those that it refuses", [one for one in fitting if one.name in refused])


def _share(results: list[Judged]) -> str:
    warned = sum(bool(one.alarms) for one in results)
    return f"{warned} of {len(results)} ({warned / max(1, len(results)):.0%})"


def _print_rules(title: str, results: list[Judged]) -> None:
    print(f"{title}:")
    fired = Counter(rule for one in results for rule in {(found.rule, found.severity) for found in one.alarms})
    ids = [{found.rule for found in one.alarms} for one in results]
    alone = Counter(rule for rules in ids if len(rules) == 1 for rule in rules)
    for (rule, severity), count in fired.most_common():
        print(f"  {count:4}  {severity.value:7}  {rule} ({alone[rule]} alone)")


def _known(results: list[Judged]) -> int:
    return sum(one.fits is True for one in results)


if __name__ == "__main__":
    sys.exit(main())
