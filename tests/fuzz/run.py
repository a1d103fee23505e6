"""The runner: `python -m tests.fuzz.run --seconds 600 --jobs 2`, or `--corpus`, or `--replay FILE`."""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.jobs import run_worker
from tests.fuzz.seeds import corpus
from tests.fuzz.targets import load

# A worker's share at a time: caches that grow with the input stay small, and all targets get their turn.
_SLICE_S = 30


def main(words=None):
    """Exit code: 0 nothing failed, 1 something did."""
    asked = _arguments(words)
    targets = load()
    if asked.replay:
        totals = {name: _replayed(targets[name], files, asked) for name, files in _by_target(asked.replay, targets)}
    else:
        chosen = [targets[name] for name in asked.targets.split(",") if name] or list(targets.values())
        with ThreadPoolExecutor(asked.jobs) as pool:
            done = pool.map(lambda target: _all_of(target, asked, len(chosen)), chosen)
            totals = {target.name: total for target, total in zip(chosen, done, strict=True)}
    for name, total in totals.items():
        for line in total["failures"]:
            print(f"{name}: {line}", file=sys.stderr)
    print(_markdown(totals, targets) if asked.table else _plain(totals))
    return 1 if any(total["failures"] for total in totals.values()) else 0


def _arguments(words):
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="wall time in all, shared by the targets")
    parser.add_argument("--executions", type=int, default=10**9, help="at most so many a target")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--targets", default="", help="comma-separated; default: all")
    parser.add_argument("--corpus", action="store_true", help="the regression files first")
    parser.add_argument("--failures", default="fuzz-failures", help="where inputs that fail are written")
    parser.add_argument("--table", action="store_true", help="print the table as Markdown")
    parser.add_argument("--replay", nargs="+", metavar="FILE", help="only these; the folder's name is the target's")
    asked = parser.parse_args(words)
    asked.failures = str(Path(asked.failures).absolute())
    if asked.seed is None:
        asked.seed = int(time.time())
        print(f"seed {asked.seed}", file=sys.stderr)
    return asked


def _by_target(files, targets):
    """Files by the target that their folder names."""
    sorted_files = {}
    for name in files:
        folder = Path(name).absolute().parent.name
        if folder not in targets:
            sys.exit(f"{name}: its folder must have the name of a target: {', '.join(targets)}")
        sorted_files.setdefault(folder, []).append(str(Path(name).absolute()))
    return sorted_files.items()


def _replayed(target, files, asked):
    """One worker for all files; where an input ended it, another goes on with the next file."""
    total = _nothing()
    while files:
        done = run_worker(target, {"files": files, "failures": asked.failures})
        _join(total, done)
        files = files[-(-max(1, done["executions"]) // len(target.checks)) :]
    return total


def _all_of(target, asked, targets):
    """The corpus, then fuzzing in slices until this target's share of the time is over."""
    total = _nothing()
    if asked.corpus:
        files = [str(path) for path in corpus(target.name)]
        _join(total, _replayed(target, files, asked))
    share = asked.seconds * asked.jobs / targets
    end, start = time.monotonic() + share, 0
    while start < asked.executions and time.monotonic() < end:
        request = {"seed": asked.seed, "start": start, "count": asked.executions - start, "failures": asked.failures}
        slice_s = min(_SLICE_S, end - time.monotonic())
        done = run_worker(target, {**request, "seconds": max(0.1, slice_s)})
        _join(total, done)
        if not done["executions"]:
            break
        start += done["executions"]
    return total


def _nothing():
    return {"executions": 0, "slowest": 0.0, "peak_rss": 0, "failures": []}


def _join(total, done):
    total["executions"] += done["executions"]
    total["slowest"] = max(total["slowest"], done["slowest"])
    total["peak_rss"] = max(total["peak_rss"], done["peak_rss"])
    total["failures"] += [line for line in done["failures"] if line not in total["failures"]]


def _plain(totals):
    lines = [f"{'target':<12}{'executions':>12}{'failures':>10}{'slowest':>11}{'peak RSS':>12}"]
    for name, total in [*totals.items(), ("all", _sum(totals))]:
        lines.append(
            f"{name:<12}{total['executions']:>12,}{len(total['failures']):>10}{total['slowest']:>9.2f} s"
            f"{total['peak_rss'] / 2**20:>8.0f} MiB"
        )
    return "\n".join(lines)


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
