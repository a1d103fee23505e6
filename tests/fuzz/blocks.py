"""Many jobs for a limited time: each takes the next block of inputs of the target that has had the least time so far.

A target's inputs are numbered, so that blocks of it run beside one another and none is executed twice.
"""

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from tests.fuzz.jobs import run_worker

# A block should take about so long: starting a worker takes a second or two.
_BLOCK_S = 60
_FEWEST, _MOST = 25, 40_000
# Of processor time: one that meets slow inputs hands the rest back.
_LONGEST_S = 3 * _BLOCK_S
# Known before the first block of a target has ended.
_FIRST = 100


class Blocks:
    """What is left to execute, of every target."""

    def __init__(self, targets, totals, *, inputs, until):
        self._targets = {target.name: target for target in targets}
        self._totals = totals
        self._inputs = inputs
        self._until = until
        self._next = {name: totals[name]["next"] for name in self._targets}
        self._left = {name: deque() for name in self._targets}
        self._running = {name: set() for name in self._targets}
        self._taken = dict.fromkeys(self._targets, 0.0)
        self._lock = Lock()

    def take(self):
        """(target, start, count) of the next block; None: it is over."""
        with self._lock:
            if self._until - time.monotonic() < 1 or (self._inputs and sum(self._next.values()) >= self._inputs):
                return None
            name = min(self._targets, key=lambda one: self._taken[one] / self._targets[one].share)
            self._taken[name] += _BLOCK_S
            if self._left[name]:
                start, count = self._left[name].popleft()
            else:
                start, count = self._next[name], self._count(name)
                self._next[name] += count
            self._running[name].add(start)
            return self._targets[name], start, count

    def done(self, target, start, count, found):
        """Count a block; what a worker that ended early left is a block again."""
        with self._lock:
            self._taken[target.name] += found["cpu"] - _BLOCK_S
            self._running[target.name].discard(start)
            executed = found["executions"]
            if executed < count:
                self._left[target.name].append((start + max(1, executed), count - max(1, executed)))
            self._left[target.name] = deque(sorted(one for one in self._left[target.name] if one[1] > 0))
            for name, left in self._left.items():  # up to where every input of a target was executed
                open_ends = [*self._running[name], *(start for start, _ in left)]
                self._totals[name]["next"] = min(open_ends, default=self._next[name])

    def _count(self, name):
        total = self._totals[name]
        if not total["executions"]:
            return _FIRST
        return int(min(_MOST, max(_FEWEST, _BLOCK_S * total["executions"] / max(0.01, total["cpu"]))))


def fuzz_blocks(targets, asked, totals, join, keep):
    """Blocks until the time is over or so many inputs were taken; `join` adds what a block found to its total.

    `keep` writes the totals down, after every block.
    """
    until = time.monotonic() + 60 * asked.minutes
    blocks = Blocks(targets, totals, inputs=asked.inputs, until=until)
    lock = Lock()

    def work(_):
        while (block := blocks.take()) is not None:
            target, start, count = block
            request = {"seed": asked.seed, "start": start, "count": count, "seconds": _LONGEST_S, "until": until}
            try:
                found = run_worker(target, {**request, "failures": asked.failures})
            except Exception as error:  # of the target itself: the others go on
                line = f"the fuzzer's own fault: {error!r}"
                found = {"executions": count, "cpu": 0.0, "slowest": 0.0, "peak_rss": 0, "failures": [line]}
            with lock:
                join(totals[target.name], found)
                blocks.done(target, start, count, found)
                keep()

    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(work, range(asked.jobs)))
