"""What is said of a run whose packages are newer or older than every known release, and its margin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramwise.types import ModelSpec, Release, RunSpec, Stack

if TYPE_CHECKING:
    from vramwise.timeline import MemoryReport
    from vramwise.variants.doubts import Doubt

# Losses whose logits never exist as a whole because the file asks for it; other kernels are defaults of new releases.
_WITHOUT_LOGITS = frozenset({"liger_fused_linear", "cut", "tiled"})
# Bytes of logits per token and word of the vocabulary with the plain loss of older releases: in 16 bit, in fp32,
# shifted by one token and copied, as log-probabilities, and the gradients of these three, the last in 16 bit again.
_PLAIN_LOSS = 2 + 4 + 4 + 4 + 4 + 4 + 2
# Another release may make one copy of the logits in fp32 more or less.
_ONE_COPY = 4


def unknown_versions(stack: Stack) -> str:
    """Return which of the run's versions are unknown, and what they are treated as; "" if all are known."""
    return ", ".join([_said(name, release) for name, release in stack.unknown.items()])


def _said(name: str, release: Release) -> str:
    taken = f" (treated as {release.version})" if release.said else f" ({release.age} than all known ones)"
    return f"{name} {release.meant} is unknown{taken}"


def version_doubts(run: RunSpec, model: ModelSpec, needs: MemoryReport, tokens: int) -> Iterator[Doubt]:
    """Yield the doubt about unknown versions. `needs`: the figure; `tokens`: of the largest batch.

    Releases differ most in how often logits are copied. An older one may compute the loss on all of them, in fp32.
    """
    unknown = run.target.stack.unknown
    if not unknown:
        return
    from vramwise.variants.doubts import Doubt  # late: rules read versions too, and need no margins

    text, figure = unknown_versions(run.target.stack), max(1, needs.highest_reserved_bytes)
    if run.kernels.loss_kernel in _WITHOUT_LOGITS or unknown.keys() == {"torch"}:
        yield Doubt(kind="version", text=text)
        return
    words = tokens * model.vocab_size
    counted = needs.breakdown_bytes.get("logits", 0)
    more = less = _ONE_COPY * words
    if any(release.age == "older" for name, release in unknown.items() if name != "torch"):
        more = max(more, _PLAIN_LOSS * words - counted)
    yield Doubt(kind="version", text=text, more=more / figure, less=min(less, counted) / figure)
