"""Doubts about the model: a type that nobody described, or a shape that only the name suggests."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.facts.parameters import parameter_count
from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.doubts import Doubt

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
