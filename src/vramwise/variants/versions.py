"""What is said of a run whose packages are newer or older than every known release, and its margin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramwise.types import ModelSpec, Release, RunSpec, Stack
from vramwise.types.actions import action

if TYPE_CHECKING:
    from vramwise.timeline import MemoryReport
    from vramwise.variants.doubts import Doubt

# Losses that other releases compute alike: without whole logits because the file asks for it, or in place (Unsloth,
# since its first release). Other kernels are defaults of new releases.
_ALIKE = frozenset({"liger_fused_linear", "cut", "tiled", "in_place"})
# Why a release is assumed if nothing names one, or the file sets what only older ones take.
NEWEST = "the newest known release"
WRITTEN = "written for "
# Settings that decide memory, in words.
_DECIDING = {
    "weights_dtype": "the dtype of weights",
    "precision": "precision",
    "sequence_len": "the length of rows",
    "loss_kernel": "the loss",
    "gradient_checkpointing": "checkpointing",
    "optimizer": "the optimizer",
    "quantised_base_prepared": "the preparation of the base",
    "reference_dtype": "the dtype of the reference",
}
# Facts about a script that imports what its trainer's package has removed: this, the package and the name.
GONE = "removed from "
# Bytes of logits per token and word of the vocabulary at the peak of the plain loss of older releases: in fp32 and as
# log-probabilities, and the gradients of both. Measured with torch on a CPU: 16.1, or 12.1 if nobody holds the logits
# in backward. Losses on pairs also hold the reference's logits.
_PLAIN_LOSS = {"tokens": 16}
_PLAIN_LOSS_OF_PAIRS = 24
# Another release may make one copy of the logits in fp32 more or less.
_ONE_COPY = 4


def versions_line(run: RunSpec) -> str:
    """Return which releases are only assumed and why that matters, as a sentence; "" if it does not."""
    releases = run.target.stack.releases
    names = dict.fromkeys((*list(releases)[:1], "transformers"))  # the trainer's own package is the first
    assumed = {name: releases[name] for name in names if name in releases and releases[name].origin.kind == "assumed"}
    shown = ", ".join(f"{name} {one.version}" for name, one in assumed.items())
    whys = {name: one.origin.why for name, one in assumed.items()}
    dated = "; ".join(why for why in whys.values() if why.startswith(WRITTEN))
    if dated:
        return f"{dated[:1].upper()}{dated[1:]}; read with {shown}"
    matters = next((name for name, why in whys.items() if why.startswith(f"{NEWEST}; ")), None)
    if matters is None:
        return ""
    differs = whys[matters].removeprefix(f"{NEWEST}; ")
    return f"No version is given: {shown} assumed, but {matters} {differs} ({action('say the version').format(matters)})"


def differing(run: RunSpec, other: RunSpec) -> str:
    """Return in which settings that decide memory another release runs a file otherwise; "" if in none."""
    names = [words for name, words in _DECIDING.items() if run.value(name) != other.value(name)]
    return f" differs in {', '.join(names)}" if names else ""


def unknown_versions(stack: Stack) -> str:
    """Return which of the run's versions are unknown, and what they are treated as; "" if all are known."""
    return ", ".join([_said(name, release) for name, release in stack.unknown.items()])


def _said(name: str, release: Release) -> str:
    if release.age == "own":
        copy = f"own copy of {release.said}" if release.said else "own copy"
        return f"{name} is the repository's {copy} (treated as {release.version})"
    taken = f" (treated as {release.version})" if release.said else f" ({release.age} than all known ones)"
    return f"{name} {release.meant} is unknown{taken}"


def version_doubts(run: RunSpec, model: ModelSpec, needs: MemoryReport, tokens: int) -> Iterator[Doubt]:
    """Yield the doubt about unknown versions. `needs`: the figure; `tokens`: of the largest batch.

    Releases differ most in how often logits are copied. An older one may compute the loss on all of them, in fp32.
    """
    yield from _of_older_code(run, model, needs, tokens)
    unknown = run.target.stack.unknown
    if not unknown:
        return
    from vramwise.variants.doubts import Doubt  # late: rules read versions too, and need no margins

    text, figure = unknown_versions(run.target.stack), max(1, needs.highest_reserved_bytes)
    if run.kernels.loss_kernel in _ALIKE or unknown.keys() == {"torch"}:
        yield Doubt(kind="version", text=text)
        return
    words = tokens * model.vocab_size
    counted = needs.breakdown_bytes.get("logits", 0)
    older = any(release.age == "older" for name, release in unknown.items() if name != "torch")
    each = _PLAIN_LOSS.get(run.objective.kind, _PLAIN_LOSS_OF_PAIRS) if older else _ONE_COPY
    more = max(_ONE_COPY * words, each * words - counted)
    trains_head = run.adapter.kind is None or run.adapter.lora_modules_to_save  # whose gradient comes with the logits'
    if counted < _ONE_COPY * words and not trains_head:  # the highest peak is elsewhere, or no logits are whole
        more -= _below_peak(needs)
    less = min(_ONE_COPY * words, counted)
    yield Doubt(kind="version", text=text, more=max(0, more) / figure, less=less / figure)


def _below_peak(needs: MemoryReport) -> int:
    """Return how far the loss, where more logits would be, stays below the highest peak."""
    at_loss = [peak.peak_allocated_bytes for peak in needs.phases if peak.step and peak.phase == "loss"]
    return max(0, needs.highest_allocated_bytes - max(at_loss, default=needs.highest_allocated_bytes))


def _of_older_code(run: RunSpec, model: ModelSpec, needs: MemoryReport, tokens: int) -> Iterator[Doubt]:
    """Yield the doubt about a script that imports what the assumed release has removed: it runs with an older one."""
    script, release = run.config.document.script, run.target.stack.releases.get(run.trainer)
    start = f"{GONE}{run.trainer}: "
    gone = next((fact for fact in (script.facts if script else ()) if fact.startswith(start)), None)
    if gone is None or release is None or release.origin.kind != "assumed":
        return
    if run.kernels.liger or run.kernels.loss_kernel in ("cut", "stock"):
        return
    from vramwise.variants.doubts import Doubt  # late, as above

    text = f"the script imports {gone.removeprefix(start)}, which {run.trainer} {release.version} no longer has"
    held = needs.breakdown_bytes.get("logits", 0)
    more = max(0, _PLAIN_LOSS.get(run.objective.kind, _PLAIN_LOSS_OF_PAIRS) * tokens * model.vocab_size - held)
    yield Doubt(
        kind="version",
        text=f"{text}: an older one may hold all logits",
        more=more / max(1, needs.highest_reserved_bytes),
    )
