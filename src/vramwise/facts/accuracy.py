"""The errors of predictions on measured runs, and the error to expect of a prediction from the runs most like it.

`accuracy.json` is written by `make record`: every measured run with its features and the errors of its prediction.
`variants.features` decides what a feature is; here features are only compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import median

from vramwise.bundled import bundled_json

# How many of the closest runs give the expected error; further runs are added only for features that none of these has.
_CLOSEST = 3
# The distance that a missing feature of this kind adds; 1 for all others.
_WEIGHTS = {
    **dict.fromkeys(("trainer", "rl", "torch_compile", "vendor"), 40),
    **dict.fromkeys(("cards", "method"), 20),
    **dict.fromkeys(("loss", "packing", "attention", "checkpointing", "activation_offloading"), 6),
    **dict.fromkeys(("optimizer", "widths", "allocator", "experts", "expert_quantization"), 4),
    "fused_lora": 8,
    "evaluation": 5,
    "release": 2,
}
# The dtype of matrix products decides which kernels run and what they hold: one never measured with a trainer is new.
_TYPE = "precision"
# A missing feature of at least this weight adds a run that has it, however different that run is otherwise.
_DECISIVE = 4

Features = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One measured run: its features as (kind, phrase), and the errors of its prediction in percent."""

    name: str
    features: frozenset[tuple[str, str]]
    allocated: float
    reserved: float
    load: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """Errors in percent of the measured peak, over the measured runs that are most like this one.

    `applies` is False if features are `outside`: no measured run had them, or the prediction does not model them.
    `closest_differs`: what differs in the closest run.
    """

    runs: int
    allocated_median: float
    allocated_worst: float
    reserved_median: float
    reserved_worst: float
    basis: str
    applies: bool = True
    outside: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    closest_differs: tuple[str, ...] = ()
    # Signed: negative if the prediction was too low.
    reserved_lowest: float = 0.0
    reserved_highest: float = 0.0


@cache
def record() -> tuple[tuple[Recorded, ...], str]:
    """Return every measured run that ships with this version, and a description of them."""
    stored = bundled_json("facts/accuracy.json")
    words = [(kind, phrase) for kind, phrase in stored["features"]]
    runs = [
        Recorded(
            name=name,
            features=frozenset([words[index] for index in indexes]),
            allocated=allocated,
            reserved=reserved,
            load=load,
        )
        for name, allocated, reserved, load, indexes in stored["runs"]
    ]
    return tuple(runs), stored["basis"]


@cache
def margins() -> dict[str, dict[str, float]]:
    """Return the calibrated margins by what is new about a run: shares by which it may need `more` or `less`."""
    found: dict[str, dict[str, float]] = bundled_json("facts/margins.json")["margins"]
    return found


@cache
def measured_with(trainer: str | None = None) -> frozenset[tuple[str, str]]:
    """Return every feature that a measured run had: of this trainer, or of any."""
    runs, same = record()[0], bundled_json("facts/margins.json")["measured_as"]
    trainer = same.get(trainer, trainer)
    alike = [run.features for run in runs if trainer is None or ("trainer", trainer) in run.features]
    return frozenset().union(*alike)


def expected_error(features: Features, not_modelled: Sequence[str] = ()) -> ExpectedError:
    """Return the errors of the measured runs closest to these features.

    `not_modelled`: phrases for what the prediction does not model; with any of them the figures do not apply.
    """
    return _expected(frozenset(features.items()), tuple(not_modelled))


@lru_cache(maxsize=64)
def _expected(features: frozenset[tuple[str, str]], not_modelled: tuple[str, ...]) -> ExpectedError:
    runs, basis = record()
    known = frozenset().union(*(run.features for run in runs))
    # A kind missing from the record is newer than the record and is ignored.
    kinds = {kind for kind, _ in known}
    unseen = [phrase for kind, phrase in sorted(features - known) if kind in kinds]
    alike = _alike(features & known, runs)
    if new := _new_type(features & known, runs):
        alike = list(dict.fromkeys([*alike, *_same_method(features, runs)]))
    outside = tuple(dict.fromkeys([*not_modelled, *unseen, *new]))
    return ExpectedError(
        **summary(alike),  # type: ignore[arg-type]
        basis=basis,
        applies=not outside,
        outside=outside,
        names=tuple(run.name for run in alike),
        closest_differs=tuple(phrase for _, phrase in sorted((features & known) - alike[0].features)),
    )


def _alike(features: frozenset[tuple[str, str]], runs: Sequence[Recorded]) -> list[Recorded]:
    """Return the closest runs and all that are equally close.

    For each decisive feature that none of them has, the closest run with it is added.
    """
    far = {run.name: sum(_WEIGHTS.get(kind, 1) for kind, _ in features - run.features) for run in runs}
    ranked = sorted(runs, key=lambda run: far[run.name])
    edge = far[ranked[min(_CLOSEST, len(ranked)) - 1].name]
    picked = [run for run in ranked if far[run.name] <= edge]
    lacking = features.difference(*(run.features for run in picked))
    for feature in sorted(lacking):
        decides = _WEIGHTS.get(feature[0], 1) >= _DECISIVE
        if decides and not any(feature in run.features for run in picked):
            picked.append(next(run for run in ranked if feature in run.features))
    return picked


def _new_type(features: frozenset[tuple[str, str]], runs: Sequence[Recorded]) -> list[str]:
    """Return a phrase for the dtype of matrix products if it was measured, but never with this trainer."""
    words = dict(features)
    with_trainer = [run.features for run in runs if ("trainer", words.get("trainer")) in run.features]
    if not with_trainer or any((_TYPE, words.get(_TYPE)) in found for found in with_trainer):
        return []
    return [f"{words[_TYPE]} in {words['trainer']}"] if _TYPE in words else []


def _same_method(features: frozenset[tuple[str, str]], runs: Sequence[Recorded]) -> list[Recorded]:
    """Return all runs with this trainer and method; their spread is used if the closest runs do not settle it."""
    shared = [feature for feature in features if feature[0] in ("trainer", "method")]
    return [run for run in runs if run.features.issuperset(shared)]


def summary(runs: Iterable[Recorded]) -> dict[str, float | int]:
    """Return medians and extremes of the runs' errors in percent."""
    runs = list(runs)
    allocated, reserved = ([abs(getattr(run, name)) for run in runs] for name in ("allocated", "reserved"))
    return {
        "runs": len(runs),
        "allocated_median": round(median(allocated), 2),
        "allocated_worst": round(max(allocated), 2),
        "reserved_median": round(median(reserved), 2),
        "reserved_worst": round(max(reserved), 2),
        "reserved_lowest": round(min(run.reserved for run in runs), 2),
        "reserved_highest": round(max(run.reserved for run in runs), 2),
    }
