"""Models the host and the GPU as queues: the host launches kernels one after the other, the GPU runs them in order.

There are three clocks: the host's, the GPU's, and that of copies and exchanges that run beside the kernels. Every
kernel updates the clocks by maxima and sums. A stretch of kernels is therefore a matrix over (max, +), which is applied
once for each layer that the stretch represents.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.facts.rates import Efficiency, Rates
from vramwise.ghost.kernel import Kernel
from vramwise.variants.speed.prices import TRANSFERS, on_card, on_host
from vramwise.variants.speed.timed_step import Stretch

Clocks = tuple[float, float, float]  # host, card, copies
_NEVER = float("-inf")
_STARTS: tuple[Clocks, ...] = ((0.0, _NEVER, _NEVER), (_NEVER, 0.0, _NEVER), (_NEVER, _NEVER, 0.0))

_BESIDE = {*TRANSFERS, "sync", "wait", "update on the host"}

Priced = tuple[str, float, float]  # effect on the clocks, seconds of the host, seconds of the GPU or link


class Queues:
    """The current clocks, and the seconds of each kernel family so far."""

    def __init__(self, rates: Rates, costs: Efficiency) -> None:
        self._rates = rates
        self._costs = costs
        self.clocks: Clocks = (0.0, 0.0, 0.0)
        self.parts: dict[str, float] = {}

    @property
    def now(self) -> float:
        """The time when everything launched so far is done."""
        return max(self.clocks)

    def run(self, stretches: Sequence[Stretch], turns: float = 1) -> None:
        """Run these stretches once. Their seconds are counted `turns` times in `parts`."""
        for stretch in stretches:
            priced = [self._priced(kernel, stretch.times * turns) for kernel in stretch.kernels]
            if stretch.times == 1:
                self.clocks = _through(priced, self.clocks)
                continue
            a, b, c = _columns(priced)
            for _ in range(stretch.times):
                host, card, copies = self.clocks
                self.clocks = (
                    max(host + a[0], card + b[0], copies + c[0]),
                    max(host + a[1], card + b[1], copies + c[1]),
                    max(host + a[2], card + b[2], copies + c[2]),
                )

    def host_works(self, seconds: float) -> None:
        """Advance the host's clock for work that launches nothing."""
        host, card, copies = self.clocks
        self.clocks = (host + seconds, card, copies)

    def later(self, seconds: float) -> None:
        """Advance all clocks, for work that is repeated without being run again."""
        host, card, copies = self.clocks
        self.clocks = (host + seconds, card + seconds, copies + seconds)

    def drain(self) -> None:
        """Wait until everything is done: set all clocks to the latest."""
        self.clocks = (self.now,) * 3

    def _priced(self, kernel: Kernel, times: float) -> Priced:
        seconds = on_card(kernel, self._rates, self._costs)
        family = kernel.family
        kind = "launch" if kernel.count else "nothing"
        if family in _BESIDE:
            kind = family
        elif seconds:
            self.parts[family] = self.parts.get(family, 0.0) + seconds * times
        return kind, on_host(kernel, self._costs), seconds


def _columns(priced: Sequence[Priced]) -> Sequence[Clocks]:
    """Return the (max, +) matrix of a stretch: for each clock, the clocks afterwards if only that clock had started."""
    if not _BESIDE.isdisjoint([kind for kind, _, _ in priced]):
        return [_through(priced, start) for start in _STARTS]
    # only launches: the GPU never delays the host, and nothing is copied
    return [_through(priced, _STARTS[0]), (_NEVER, sum([one[2] for one in priced]), _NEVER), _STARTS[2]]


def _through(priced: Sequence[Priced], clocks: Clocks) -> Clocks:
    """Return the clocks after these kernels."""
    host, card, copies = clocks
    for kind, launching, seconds in priced:
        host += launching
        if kind == "launch":
            card = (card if card > host else host) + seconds
        elif kind in ("from host", "gather"):
            # starts as soon as the host launches it; kernels that need the result wait
            copies = max(copies, host) + seconds
            if kind == "from host":
                card = max(card, copies)
        elif kind in ("to host", "reduce"):
            copies = max(copies, card, host) + seconds
        elif kind == "wait":
            card = max(card, copies)
        elif kind == "sync":
            host = max(host, card, copies)
        elif kind == "update on the host":
            host = max(host, card, copies) + seconds
    return host, card, copies
