"""Doubts about what no measured run had: the card, several of them, the trainer, the model family, a feature.

Their margins are calibrated: they cover nine of ten errors that first predictions had where this was new
(`facts/margins.json`, written by `bench/calibration.py`; docs/accuracy.md has the tables).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from vramwise.facts.accuracy import margins, measured_with
from vramwise.types import ModelSpec, RunSpec
from vramwise.variants.doubts import Doubt
from vramwise.variants.features import features

_MEASURED_CARD = "H200"
# Kinds of features that decide what is allocated; a new one of another kind changes little.
_DECISIVE = (
    *("method", "rl", "loss", "packing", "attention", "checkpointing", "activation_offloading", "optimizer"),
    *("experts", "expert_quantization", "fused_lora", "precision", "torch_compile"),
)
_SHOWN = 3


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
