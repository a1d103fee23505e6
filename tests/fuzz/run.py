"""The runner: `python -m tests.fuzz.run --seconds 600 --jobs 2`, or `--corpus`, or `--replay FILE`."""

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from tests.fuzz.jobs import run_worker
from tests.fuzz.seeds import corpus
from tests.fuzz.targets import load

# A worker's processor time at a time: caches that grow with the input stay small, and all targets get their turn.
_SLICE_S = 10
_KEEPING = Lock()


def main(words=None):
    """Exit code: 0 nothing failed, 1 something did."""
    asked = _arguments(words)
    targets = load()
    if asked.replay:
        totals = {name: _replayed(targets[name], files, asked) for name, files in _by_target(asked.replay, targets)}
    else:
        chosen = [targets[name] for name in asked.targets.split(",") if name] or list(targets.values())
        totals = _fuzzed(chosen, asked)
    for name, total in totals.items():
        for line in total["failures"]:
            print(f"{name}: {line}", file=sys.stderr)
    print(_markdown(totals, targets) if asked.table else _plain(totals))
    return 1 if any(total["failures"] for total in totals.values()) else 0


def _arguments(words):
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60, help="processor time of each job, shared by the targets; 0: no fuzzing"
    )
    parser.add_argument("--executions", type=int, default=10**9, help="at most so many a target")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--targets", default="", help="comma-separated; default: all")
    parser.add_argument("--corpus", action="store_true", help="the regression files first")
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


def _fuzzed(chosen, asked):
    """The corpus, then rounds in which every target has a slice of its share: whenever it ends, all had their turn."""
    kept = _kept(asked.totals)
    totals = {target.name: kept.get(target.name) or _nothing() for target in chosen}
    share = asked.seconds * asked.jobs / len(chosen)
    left = {target.name: share for target in chosen}
    with ThreadPoolExecutor(asked.jobs) as pool:
        if asked.corpus:
            done = pool.map(lambda target: _replayed(target, list(map(str, corpus(target.name))), asked), chosen)
            for target, found in zip(chosen, done, strict=True):
                _join(totals[target.name], found)
        while going := [one for one in chosen if left[one.name] > 0 and totals[one.name]["next"] < asked.executions]:
            list(pool.map(lambda target: _slice(target, asked, totals, left), going))
    return totals


def _slice(target, asked, totals, left):
    """One worker's time with one target."""
    total = totals[target.name]
    seconds = min(_SLICE_S, left[target.name])
    left[target.name] -= seconds
    request = {"seed": asked.seed, "start": total["next"], "count": asked.executions - total["next"]}
    done = run_worker(target, {**request, "seconds": seconds, "failures": asked.failures})
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
    return {"executions": 0, "next": 0, "slowest": 0.0, "peak_rss": 0, "failures": []}


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
