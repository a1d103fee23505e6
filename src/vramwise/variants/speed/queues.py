"""Models the host and the GPU as queues: the host launches kernels one after the other, the GPU runs them in order.

There are three clocks: the host's, the GPU's, and that of copies and exchanges that run beside the kernels. Every
kernel updates the clocks by maxima and sums. A stretch of kernels is therefore a matrix over (max, +), which is applied
once for each layer that the stretch represents. `on_card` and `on_host` are the times of one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from vramwise.facts.rates import Efficiency, Rates
from vramwise.ghost.work import Kernel
from vramwise.variants.speed.timed_step import Stretch

Clocks = tuple[float, float, float]  # host, card, copies
_NEVER = float("-inf")
_STARTS: tuple[Clocks, ...] = ((0.0, _NEVER, _NEVER), (_NEVER, 0.0, _NEVER), (_NEVER, _NEVER, 0.0))

# Families limited by a share of the tensor cores' rate, and families that transfer bytes over a link.
_COMPUTING = {"attention forward", "attention backward", "cut loss"}
TRANSFERS = {"to host", "from host", "gather", "reduce"}
_BESIDE = {*TRANSFERS, "sync", "wait", "update on the host"}

Priced = tuple[str, float, float]  # effect on the clocks, seconds of the host, seconds of the GPU or link

# Tile sizes of a product on one multiprocessor, and how well each uses the tensor cores.
_TILES = ((256, 128, 1.0), (128, 128, 0.95), (128, 64, 0.8), (64, 64, 0.6), (32, 64, 0.4))
# A long inner dimension can be split among multiprocessors, in pieces of at least this.
_SPLITS, _SHORTEST = (1, 2, 4, 8, 16), 512

# A multiprocessor that runs alone can use this multiple of its share of the memory bandwidth: it can have about 64 KiB
# in flight, at a latency of 0.7 us.
_ALONE = 2.5


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


@lru_cache(maxsize=65536)
def busy_share(batch: int, m: int, n: int, k: int, multiprocessors: int) -> float:
    """Return the share of a GPU's tensor rate that a product of this size can use.

    It works in whole tiles, in whole rounds over all multiprocessors. The best tiling counts.
    """
    best = 0.0
    for rows, columns, quality in _TILES:
        for a, b in {(rows, columns), (columns, rows)}:
            tiles = batch * -(-m // a) * -(-n // b)
            filled = batch * m * n / (tiles * a * b)
            for pieces in _SPLITS:
                if pieces > 1 and k // pieces < _SHORTEST:
                    break
                rounds = -(-tiles * pieces // multiprocessors)
                best = max(best, quality * filled * tiles * pieces / (rounds * multiprocessors))
    return best


def on_card(kernel: Kernel, rates: Rates, costs: Efficiency) -> float:
    """Return the seconds that a kernel takes on the GPU, or a transfer on its link."""
    family, moved = kernel.family, kernel.read + kernel.written
    if not kernel.count:
        return 0.0
    if family in TRANSFERS or family == "update on the host":
        return _transfer(kernel, rates, costs)
    streamed = moved / (rates.memory * (costs.added if kernel.adds else _share_of_memory(family, costs)))
    if moved < rates.cache_bytes:
        streamed /= costs.cached
    if kernel.turns:
        streamed += -(-kernel.turns // rates.multiprocessors) * costs.turn
    if kernel.blocks:
        rounds = -(-kernel.blocks // rates.multiprocessors)
        streamed = max(streamed, rounds * moved / kernel.blocks * rates.multiprocessors / (rates.memory * _ALONE))
    computed = 0.0
    if family in ("product", "grouped product") and kernel.flops:
        share = busy_share(*kernel.dims, rates.multiprocessors)
        computed = kernel.flops / (rates.flops(kernel.dtype) * costs.product * costs.sustained * share)
    elif family in _COMPUTING:
        share = getattr(costs, family.replace(" ", "_")) * (costs.cudnn if kernel.cudnn else 1)
        computed = kernel.flops / (rates.flops(kernel.dtype) * share)
    elif family == "blockwise":
        computed = kernel.flops / (rates.multiprocessors * costs.blockwise)
    return kernel.count * costs.kernel + max(streamed, computed)


def _share_of_memory(family: str, costs: Efficiency) -> float:
    return float(costs.optimizer if family == "blockwise" else getattr(costs, family, costs.stream))


def _transfer(kernel: Kernel, rates: Rates, costs: Efficiency) -> float:
    if kernel.family == "update on the host":
        return kernel.read / costs.host_update
    if kernel.family in ("to host", "from host"):
        return kernel.read / (rates.pcie * costs.pcie)
    return kernel.read / (rates.link * costs.link)


def on_host(kernel: Kernel, costs: Efficiency) -> float:
    """Return the seconds that the host needs until the kernel is launched."""
    before = kernel.ops * costs.host_op + kernel.calls * costs.host_call + kernel.functions * costs.host_function
    before += kernel.lines * costs.host_line + kernel.hooks * costs.host_hook
    before += kernel.checkpoints * costs.host_checkpoint
    if kernel.family == "sync":
        return before + costs.host_sync
    launch = float(getattr(costs, f"host_{kernel.by}"))
    if kernel.family == "product":
        launch += costs.host_product
    return before + kernel.count * launch
