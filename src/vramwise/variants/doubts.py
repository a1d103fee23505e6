"""What is not known of a run, and how far off its figure may therefore be: the margin of a verdict.

This is the one place for margins. To add one, write a function that yields a `Doubt` for a run and its model, and name
it in `_SOURCES`. Every verdict, on every interface, then takes it into account and names its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vramwise.types import ModelSpec, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One thing that is not known of a run.

    `kind`: its subject, such as "model", "version" or "card". `text`: a phrase that names it ("model type qwen5,
    treated as llama"). `more`, `less`: the shares of the figure by which the run may need more or less because of it.
    """

    kind: str
    text: str
    more: float = 0.0
    less: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """The shares of a figure by which a run may need more or less, all doubts together."""

    more: float = 0.0
    less: float = 0.0


def doubts_of(run: RunSpec, model: ModelSpec) -> tuple[Doubt, ...]:
    """Return what is not known of a run, the largest doubt first."""
    found = [doubt for source in _SOURCES for doubt in source(run, model)]
    return tuple(sorted(found, key=lambda doubt: -max(doubt.more, doubt.less)))


def margin_of(doubts: Sequence[Doubt]) -> Margin:
    """Return the margin of several doubts together: as independent errors, they add up as squares do."""
    more, less = (sum(getattr(one, side) ** 2 for one in doubts) ** 0.5 for side in ("more", "less"))
    return Margin(more=more, less=min(less, 1.0))


def _of_model(run: RunSpec, model: ModelSpec) -> Iterator[Doubt]:
    from vramwise.variants.unknown_models import model_doubts  # builds on this module

    yield from model_doubts(run, model)


def _of_measurements(run: RunSpec, model: ModelSpec) -> Iterator[Doubt]:
    from vramwise.variants.unmeasured import measurement_doubts  # builds on this module

    yield from measurement_doubts(run, model)


def _of_keys(run: RunSpec, model: ModelSpec) -> Iterator[Doubt]:
    from vramwise.variants.unread_keys import key_doubts  # builds on this module

    yield from key_doubts(run, model)


# 44 measured runs of Unsloth, predicted with xformers and again with FlashAttention and with neither: the largest
# differences but one, more and less; of 10 runs that keep what layers computed, and of 34 that recompute it.
_OTHER_ATTENTION = {False: (0.007, 0.086), True: (0.013, 0.031)}


def _of_packages(run: RunSpec, _model: ModelSpec) -> Iterator[Doubt]:
    """Yield what depends on packages that are only assumed to be installed."""
    attention, loss = run.origins.get("packed_attention"), run.origins.get("loss_kernel")
    joined = run.shapes.packing_rows == "one" or run.shapes.sample_packing
    if attention is not None and attention.kind == "assumed" and joined and run.kernels.fused_layers:
        more, less = _OTHER_ATTENTION[run.savings.recompute]
        yield Doubt(kind="feature", text=attention.why, more=more, less=less)
    if (
        loss is not None and loss.kind == "assumed"
    ):  # without a margin: releases that hold more size it by what the card has free
        yield Doubt(kind="version", text=loss.why)


# Eight measured runs on an 8-bit base whose weights were random, predicted as if they were trained: by how much the
# largest but one took more, as its inputs have outliers in far more columns than those of trained weights.
_MORE_OUTLIERS = 0.06


def _of_outliers(run: RunSpec, model: ModelSpec) -> Iterator[Doubt]:
    """Yield how many columns of an 8-bit layer's input have outliers, which no config says."""
    if run.loading.quantization == "8bit" and run.loading.int8_outliers and not model.random_weights:
        yield Doubt(kind="feature", text="how many outliers the 8-bit base's inputs have", more=_MORE_OUTLIERS)


_SOURCES: tuple[Callable[[RunSpec, ModelSpec], Iterator[Doubt]], ...] = (
    _of_measurements,
    _of_model,
    _of_keys,
    _of_packages,
    _of_outliers,
)
