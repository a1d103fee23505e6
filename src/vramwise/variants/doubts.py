"""What is not known of a run, and how far off its figure may therefore be: the margin of a verdict.

This is the one place for margins. To add one, write a function that yields a `Doubt` for a run and its model, and name
it in `_SOURCES`. Every verdict, on every interface, then takes it into account and names its text.

Margins for what no measured run had (the card, several of them, the trainer, the model family, a feature) are
calibrated: they cover nine of ten errors that first predictions had where this was new (`facts/margins.json`, written
by `tests/measured/calibration.py`; docs/accuracy.md has the tables).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from vramwise.facts.accuracy import margins, measured_with
from vramwise.models.parameters import parameter_count
from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.features import features

# Figures of a described type against those of the same config.json under a name that nobody knows: 27 types with a
# block close enough to llama's to be read, LoRA with and without checkpointing and full fine-tuning, 78 pairs. The true
# figure was between 26 % lower (MLPs of two matrices instead of three) and 11 % higher.
_TYPE_MORE, _TYPE_LESS = 0.11, 0.26
# Each known name looked up among all other shapes: where its name suggested another shape, the model had between 10 %
# fewer and 22 % more parameters in all but one group (vision towers are what names leave out).
_NAME_MORE, _NAME_LESS = 0.22, 0.10
# Known dense decoders as the plain model of another shape whose number of parameters is closest to theirs (163 of them)
# or to the size in their name (138), by four runs each of 4,096 tokens: 97 % of the true figures were at most so much
# higher, and 97 % at most so much lower. Vocabularies differ most, and weigh most in small models.
_SMALL = 3_000_000_000
_COUNT = {"small": (2.10, 0.58), "large": (0.56, 0.43)}
_SIZE = {"small": (1.34, 0.70), "large": (0.48, 0.39)}
_MEASURED_CARD = "H200"
# Kinds of features that decide what is allocated; a new one of another kind changes little.
_DECISIVE = (
    *("method", "rl", "loss", "packing", "attention", "checkpointing", "activation_offloading", "optimizer"),
    *("experts", "expert_quantization", "fused_lora", "precision", "torch_compile"),
)
_SHOWN = 3


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


def model_doubts(run: RunSpec, model: ModelSpec) -> Iterator[Doubt]:
    """Yield what is not known of the model."""
    if model.family_assumed:
        text = f"model type {model.model_type} is unknown, treated as llama"
        yield Doubt(kind="model", text=text, more=_TYPE_MORE, less=_TYPE_LESS)
    if model.source.startswith("name ("):
        text = f"{model.name} is unknown, its shape is that of {model.source[6:-1]}"
        yield Doubt(kind="model", text=text, more=_NAME_MORE, less=_NAME_LESS)
    if model.source.startswith("count ("):
        text = f"{model.name} is unknown, a plain model of as many parameters as stated is taken: {model.source[7:-1]}"
        more, less = _COUNT[_scale(model)]
        yield Doubt(kind="model", text=text, more=more, less=less)
    if model.source.startswith("size ("):
        text = f"{model.name} is unknown, a plain model of the size in its name is taken: {model.source[6:-1]}"
        more, less = _SIZE[_scale(model)]
        yield Doubt(kind="model", text=text, more=more, less=less)


def _scale(model: ModelSpec) -> str:
    return "small" if parameter_count(model) < _SMALL else "large"


def measurement_doubts(run: RunSpec, model: ModelSpec) -> Iterator[Doubt]:
    """Yield what was never measured about a run; the first doubt is that of every figure and has no words."""
    yield _doubt("base", "")
    gpu = run.target.gpu
    if gpu is not None and _MEASURED_CARD not in gpu.name:
        # a size names no card: what is predicted is the measured one's, with less memory
        named = gpu.name[0].isalpha()
        yield (
            _doubt("card", f"no {gpu.name} was measured")
            if named
            else Doubt(kind="card", text="which card is not said")
        )
    if run.batch.gpus > 1:
        yield _doubt("ranks", "several cards were measured only as processes that share one")
    words = features(run, model)
    known = measured_with(run.trainer)
    if not known:
        yield _doubt("trainer", f"{run.trainer} was never measured")
    if not model.family_assumed and ("family", words["family"]) not in measured_with():
        yield _doubt("family", f"{words['family']} was never measured")
    new = [words[kind] for kind in _DECISIVE if kind in words and (kind, words[kind]) not in (known or measured_with())]
    if new:
        more = f" and {len(new) - _SHOWN} more" if len(new) > _SHOWN else ""
        yield _doubt("feature", f"never measured with {run.trainer}: {', '.join(new[:_SHOWN])}{more}")


@cache
def _doubt(kind: str, text: str) -> Doubt:
    margin = margins()[kind]
    return Doubt(kind=kind, text=text, more=margin["more"], less=margin["less"])


def _of_keys(run: RunSpec, model: ModelSpec) -> Iterator[Doubt]:
    from vramwise.variants.unread import key_doubts  # builds on this module

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
    measurement_doubts,
    model_doubts,
    _of_keys,
    _of_packages,
    _of_outliers,
)
