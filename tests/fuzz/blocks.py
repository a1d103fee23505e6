"""Many jobs for a limited time: each takes the next block of inputs of the target that has had the least time so far.

A target's inputs are numbered, so that blocks of it run beside one another and none is executed twice.
"""

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from tests.fuzz.jobs import run_worker

# A block should take about so long: starting a worker takes a second or two, and the last blocks end late.
_BLOCK_S = 30
_FEWEST, _MOST = 25, 20_000
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
        self._taken = dict.fromkeys(self._targets, 0.0)
        self._lock = Lock()

    def take(self):
        """(target, start, count, seconds) of the next block; None: it is over."""
        with self._lock:
            seconds = self._until - time.monotonic()
            if seconds < 1 or (self._inputs and sum(self._next.values()) >= self._inputs):
                return None
            name = min(self._targets, key=lambda one: self._taken[one] / self._targets[one].share)
            self._taken[name] += _BLOCK_S
            if self._left[name]:
                start, count = self._left[name].popleft()
            else:
                start, count = self._next[name], self._count(name)
                self._next[name] += count
            return self._targets[name], start, count, seconds

    def done(self, target, start, count, found):
        """Count a block; what a worker that ended early left is a block again."""
        with self._lock:
            self._taken[target.name] += found["cpu"] - _BLOCK_S
            executed = found["executions"]
            if executed < count:
                self._left[target.name].append((start + max(1, executed), count - max(1, executed)))
            self._left[target.name] = deque(sorted(one for one in self._left[target.name] if one[1] > 0))

    def finish(self):
        """Say in the totals up to where every input of a target was executed."""
        for name, left in self._left.items():
            self._totals[name]["next"] = min([start for start, _ in left], default=self._next[name])

    def _count(self, name):
        total = self._totals[name]
        if not total["executions"]:
            return _FIRST
        return int(min(_MOST, max(_FEWEST, _BLOCK_S * total["executions"] / max(0.01, total["cpu"]))))


def fuzz_blocks(targets, asked, totals, join):
    """Blocks until the time is over or so many inputs were taken; `join` adds what a block found to its total."""
    blocks = Blocks(targets, totals, inputs=asked.inputs, until=time.monotonic() + 60 * asked.minutes)
    lock = Lock()

    def work(_):
        while (block := blocks.take()) is not None:
            target, start, count, seconds = block
            request = {"seed": asked.seed, "start": start, "count": count, "seconds": seconds}
            found = run_worker(target, {**request, "failures": asked.failures})
            with lock:
                join(totals[target.name], found)
            blocks.done(target, start, count, found)

    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(work, range(asked.jobs)))
    blocks.finish()
