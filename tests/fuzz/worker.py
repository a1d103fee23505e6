"""One process that executes: fuzzing from an index on, or files given. Dies alone if an input kills it.

The parent reads the file `progress` (the index of the present execution), and `result` at the end.
"""

import json
import os
import resource
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.bench import Bench, Failure, crash
from tests.fuzz.failures import Found
from tests.fuzz.growth import Growth
from tests.fuzz.targets import load

GROWTH_BYTES = 2**30


def main(arguments):
    """Arguments: one JSON object, see `fuzz` and `replay`."""
    asked = json.loads(arguments[0])
    target = load()[asked["target"]]
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if os.access(shm, os.W_OK) else None, prefix="fuzz-") as folder:
        bench = Bench(folder).install()
        if not asked.get("forked"):  # else the parent has imported all
            _warm_up(bench, target)
        _limit_growth()
        work = replay if "files" in asked else fuzz
        Path(asked["result"]).write_text(json.dumps(work(bench, target, asked)), encoding="utf-8")


def fuzz(bench, target, asked):
    """Executions from `start` on, until `count` are done or `seconds` of processor time are over."""
    found = Found(asked["failures"], target)
    progress = os.open(asked["progress"], os.O_RDWR | os.O_CREAT)
    end = _spent() + asked["seconds"]
    index, slowest, growth, checks = asked["start"], 0.0, Growth(), Counter()
    while index < asked["start"] + asked["count"] and _spent() < end:
        os.pwrite(progress, struct.pack("q", index), 0)
        data, check = target.case(asked["seed"], index)
        failure, spent = _timed(bench, target, check, data)
        slowest = max(slowest, spent)
        if failure is not None:
            found.keep(failure, data, check=check, seed=asked["seed"], index=index, argv=bench.argv)
        index += 1
        checks[check] += 1
        growth.after(index - asked["start"])
    grown = growth.failure(target.name, asked["start"])
    if grown is not None:
        found.say(grown, name=f"seed {asked['seed']} from index {asked['start']}", check="any", argv=())
    return {**_summary(index - asked["start"], slowest, found), "checks": checks}


def replay(bench, target, asked):
    """Every file through every check of the target."""
    found, executions, slowest = Found(asked["failures"], target), 0, 0.0
    progress = os.open(asked["progress"], os.O_RDWR | os.O_CREAT)
    for name in asked["files"]:
        data = Path(name).read_bytes()
        for check in target.checks:
            os.pwrite(progress, struct.pack("q", executions), 0)
            executions += 1
            failure, spent = _timed(bench, target, check, data)
            slowest = max(slowest, spent)
            if failure is not None:
                found.say(failure, name=name, check=check, argv=bench.argv)
    return _summary(executions, slowest, found)


def attempt(bench, target, check, data):
    """One execution; the failure, or None."""
    try:
        target.checks[check](bench, data)
    except Failure as failure:
        return failure
    except (Exception, RecursionError) as error:  # outside the watch: the fuzzer's own fault, and said as one
        return crash(error)
    return None


def _timed(bench, target, check, data):
    """The failure or None, and the processor time; what the timer does not see, in processes of its own, counts too."""
    started = _spent()
    failure = attempt(bench, target, check, data)
    spent = _spent() - started
    if failure is None and spent > bench.limit_s:
        failure = Failure("slow", f"{target.name} with its processes", f"{spent:.1f} s of processor time")
    return failure, spent


def _spent():
    """Processor time of this process and of those that it has started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _summary(executions, slowest, found):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"executions": executions, "cpu": _spent(), "slowest": slowest, "peak_rss": peak, "failures": found.lines}


def _warm_up(bench, target):
    """Import what the first execution would, before memory and time are measured."""
    for check in target.checks:
        attempt(bench, target, check, target.case(0, 0)[0])


def _limit_growth():
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + GROWTH_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main(sys.argv[1:])
