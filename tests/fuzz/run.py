"""The runner: `python -m tests.fuzz.run --seconds 600 --jobs 2`, or `--corpus`, or `--replay FILE`."""

import argparse
import gc
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from tests.fuzz.jobs import run_worker
from tests.fuzz.schedule import Walk
from tests.fuzz.seeds import corpus
from tests.fuzz.targets import load
from tests.fuzz.targets.making_configs import BASE

# Processor time of a target with a share of 1 in a round: all have their turn, however soon it ends.
_TURN_S = 60
# A worker's at most. Starting one takes a second or two; in a longer one growth shows itself.
_WORKER_S = 300
_KEEPING = Lock()


def main(words=None):
    """Exit code: 0 nothing failed, 1 something did."""
    asked = _arguments(words)
    targets = load()
    if asked.fork:
        _import_all()
    if asked.replay:
        totals = {name: _replayed(targets[name], files, asked) for name, files in _by_target(asked.replay, targets)}
    else:
        chosen = _chosen(targets, asked.targets)
        totals = _fuzzed(chosen, asked)
    for name, total in totals.items():
        for line in total["failures"]:
            print(f"{name}: {line}", file=sys.stderr)
    print(_markdown(totals, targets) if asked.table else _plain(totals))
    print(*_coverage(totals, targets), sep="\n")
    return 1 if any(total["failures"] for total in totals.values()) else 0


def _import_all():
    """What workers would import and read, each anew."""
    import importlib

    from tests.fuzz.seeds import known_keys

    from vramwise import api
    from vramwise.cli.main import COMMANDS

    known_keys()
    for name in COMMANDS:
        importlib.import_module(f"vramwise.cli.{name}")
    api.check(BASE, gpu="24GB")
    gc.freeze()


def _arguments(words):
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60, help="processor time of each job, shared by the targets; 0: no fuzzing"
    )
    parser.add_argument(
        "--inputs", type=int, help="instead of --seconds: until so many in all, and every walk over the keys is done"
    )
    parser.add_argument("--executions", type=int, default=10**9, help="at most so many a target")
    parser.add_argument("--fork", action="store_true", help="one job, whose workers are forks: for many short ones")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--targets", default="", help="comma-separated; default: all; -NAME: all but it")
    parser.add_argument("--corpus", action="store_true", help="the regression files first")
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="NAME", help="regression files to leave out")
    parser.add_argument("--failures", default="fuzz-failures", help="where inputs that fail are written")
    parser.add_argument("--totals", metavar="FILE", help="go on from the totals in this file, and keep them there")
    parser.add_argument("--table", action="store_true", help="print the table as Markdown")
    parser.add_argument("--replay", nargs="+", metavar="FILE", help="only these; the folder's name is the target's")
    asked = parser.parse_args(words)
    asked.failures = str(Path(asked.failures).absolute())
    if asked.seed is None:
        asked.seed = int(time.time())
        print(f"seed {asked.seed}", file=sys.stderr)
    return asked


def _chosen(targets, names):
    """The targets that are named, or all but those with a minus."""
    names = [name for name in names.split(",") if name]
    without = [name.removeprefix("-") for name in names if name.startswith("-")]
    wanted = [name for name in names if not name.startswith("-")] or [name for name in targets if name not in without]
    return [targets[name] for name in wanted]


def _by_target(files, targets):
    """Files by the target that their folder names."""
    sorted_files = {}
    for name in files:
        folder = Path(name).absolute().parent.name
        if folder not in targets:
            sys.exit(f"{name}: its folder must have the name of a target: {', '.join(targets)}")
        sorted_files.setdefault(folder, []).append(str(Path(name).absolute()))
    return sorted_files.items()


def _regressions(target, asked):
    return [str(path) for path in corpus(target.name) if path.name not in asked.leave_out]


def _replayed(target, files, asked):
    """One worker for all files; where an input ended it, another goes on with the next file."""
    total = _nothing()
    while files:
        done = run_worker(target, {"files": files, "failures": asked.failures}, fork=asked.fork)
        _join(total, done)
        files = files[-(-max(1, done["executions"]) // len(target.checks)) :]
    return total


def _fuzzed(chosen, asked):
    """The corpus, then rounds in which every target has a turn, the longest first: no job waits for another at the end."""
    kept = _kept(asked.totals)
    totals = {target.name: {**_nothing(), **kept.get(target.name, {})} for target in chosen}
    seconds = 1e9 if asked.inputs else asked.seconds
    share = seconds * asked.jobs / sum(target.share for target in chosen)
    left = {target.name: share * target.share for target in chosen}
    chosen = sorted(chosen, key=lambda target: -target.share)

    def goes_on(target):
        done = totals[target.name]["next"] >= asked.executions or left[target.name] <= 0
        return not done and not (asked.inputs and _enough(chosen, totals, asked.inputs))

    with ThreadPoolExecutor(asked.jobs) as pool:
        each = map if asked.fork else pool.map  # no threads where processes are forked
        if asked.corpus:
            done = each(lambda target: _replayed(target, _regressions(target, asked), asked), chosen)
            for target, found in zip(chosen, done, strict=True):
                _join(totals[target.name], found)
        while any(goes_on(target) for target in chosen):
            list(each(lambda target: _turn(target, asked, totals, left, goes_on), chosen))
    return totals


def _enough(chosen, totals, inputs):
    """Whether so many were executed, and every fixed list of inputs was gone through once."""
    walks = [
        (target.walked(totals[target.name]["next"]), target.walk()) for target in chosen if target.walk is not None
    ]
    return sum(total["next"] for total in totals.values()) >= inputs and all(done >= len(walk) for done, walk in walks)


def _turn(target, asked, totals, left, goes_on):
    """A target's workers in one round, one after the other."""
    total, turn = totals[target.name], _TURN_S * target.share
    while turn > 0 and goes_on(target):
        seconds = min(_WORKER_S, turn, left[target.name])
        request = {"seed": asked.seed, "start": total["next"], "count": asked.executions - total["next"]}
        done = run_worker(target, {**request, "seconds": seconds, "failures": asked.failures}, fork=asked.fork)
        spent = max(1.0, done["cpu"])
        turn -= spent
        left[target.name] -= spent
        with _KEEPING:
            total["next"] += done["executions"]
            _join(total, done)
            _keep(asked.totals, totals)


def _kept(name):
    path = Path(name) if name else None
    return json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else {}


def _keep(name, totals):
    if name:
        path = Path(name)
        unfinished = path.with_name(path.name + ".new")
        unfinished.write_text(json.dumps({**_kept(name), **totals}, indent=1), encoding="utf-8")
        unfinished.replace(path)


def _nothing():
    return {"executions": 0, "next": 0, "cpu": 0.0, "slowest": 0.0, "peak_rss": 0, "failures": [], "checks": {}}


def _join(total, done):
    total["executions"] += done["executions"]
    total["cpu"] += done["cpu"]
    total["slowest"] = max(total["slowest"], done["slowest"])
    total["peak_rss"] = max(total["peak_rss"], done["peak_rss"])
    for check, count in done.get("checks", {}).items():
        total["checks"][check] = total["checks"].get(check, 0) + count
    total["failures"] += [line for line in done["failures"] if line not in total["failures"]]


def _plain(totals):
    lines = [f"{'target':<14}{'executions':>12}{'a second':>10}{'failures':>10}{'slowest':>11}{'peak RSS':>12}"]
    for name, total in [*totals.items(), ("all", _sum(totals))]:
        lines.append(
            f"{name:<14}{total['executions']:>12,}{_rate(total):>10.1f}{len(total['failures']):>10}{total['slowest']:>9.2f} s"
            f"{total['peak_rss'] / 2**20:>8.0f} MiB"
        )
    return "\n".join(lines)


def _rate(total):
    return total["executions"] / max(0.01, total["cpu"])


def _coverage(totals, targets):
    """What the walks reached: how many keys, and how many of them with how many kinds of value."""
    for name, total in totals.items():
        walk = targets[name].walk and targets[name].walk()
        if isinstance(walk, Walk):
            keys, pairs = walk.reached(targets[name].walked(total["next"]))
            yield f"{name}: keys reached {keys:,} of {len(walk.keys):,}; key × kind of value {pairs:,} of {len(walk):,}"


def _markdown(totals, targets):
    lines = ["| target | what goes in | executions | found | slowest | peak RSS |", "|---|---|---:|---:|---:|---:|"]
    for name, total in [*totals.items(), ("all", _sum(totals))]:
        about = targets[name].about if name in targets else ""
        lines.append(
            f"| {name} | {about} | {total['executions']:,} | {len(total['failures'])} | {total['slowest']:.1f} s "
            f"| {total['peak_rss'] / 2**20:.0f} MiB |"
        )
    return "\n".join(lines)


def _sum(totals):
    whole = _nothing()
    for name, total in totals.items():
        _join(whole, {**total, "failures": [f"{name}: {line}" for line in total["failures"]]})
    return whole


if __name__ == "__main__":
    sys.exit(main())
