"""Computes the time of one kernel on a GPU, and the time that the host needs to launch it."""

from __future__ import annotations

from functools import lru_cache

from vramwise.facts.rates import Efficiency, Rates
from vramwise.ghost.kernel import Kernel

# Tile sizes of a product on one multiprocessor, and how well each uses the tensor cores.
_TILES = ((256, 128, 1.0), (128, 128, 0.95), (128, 64, 0.8), (64, 64, 0.6), (32, 64, 0.4))
# A long inner dimension can be split among multiprocessors, in pieces of at least this.
_SPLITS, _SHORTEST = (1, 2, 4, 8, 16), 512

# A multiprocessor that runs alone can use this multiple of its share of the memory bandwidth: it can have about 64 KiB
# in flight, at a latency of 0.7 us.
_ALONE = 2.5

# Families limited by a share of the tensor cores' rate, and families that transfer bytes over a link.
_COMPUTING = {"attention forward", "attention backward", "cut loss"}
TRANSFERS = {"to host", "from host", "gather", "reduce"}


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
