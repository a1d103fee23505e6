"""How far predictions were off on measured runs, and what is to be expected of one: what runs like it showed.

`accuracy.json` is written by `make record`: every measured run with its features and the errors of its prediction.
What a feature is, is decided in `variants.features`; here they are words to compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import median

from vramwise.bundled import bundled_json

# So many of the closest runs say what is to be expected; further ones only for features that none of these has.
_CLOSEST = 3
# How much further away a run is that lacks a feature of this kind; 1 for all others.
_WEIGHTS = {
    **dict.fromkeys(("trainer", "rl", "torch_compile", "vendor"), 40),
    **dict.fromkeys(("cards", "method"), 20),
    **dict.fromkeys(("loss", "packing", "attention", "checkpointing", "activation_offloading"), 6),
    **dict.fromkeys(("optimizer", "widths", "allocator", "experts", "expert_quantization"), 4),
    "fused_lora": 8,
    "evaluation": 5,
    "release": 2,
}
# The type of products decides which kernels run and what they hold: one that a trainer was never measured in is new.
_TYPE = "precision"
# From this weight on a feature must be stood for by a run that had it, however unlike that run is otherwise.
_DECISIVE = 4

Features = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One measured run: its features as (kind, phrase), and the errors of its prediction in per cent."""

    name: str
    features: frozenset[tuple[str, str]]
    allocated: float
    reserved: float
    load: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """Errors in per cent of the measured peak, over the measured runs that are most like this one.

    `applies` is False where a feature is `outside`: no measured run had it, or the prediction does not follow it.
    `closest_differs`: what the closest of the runs has in another way.
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
    # Signed: below 0 the prediction was too low.
    reserved_lowest: float = 0.0
    reserved_highest: float = 0.0

    @property
    def took_more(self) -> float:
        """By which share one of the runs took more than was predicted for it; 0 where none did."""
        return 1 / (1 + self.reserved_lowest / 100) - 1 if self.reserved_lowest < 0 else 0.0

    @property
    def took_less(self) -> float:
        """By which share one of the runs took less than was predicted for it; 0 where none did."""
        return 1 - 1 / (1 + self.reserved_highest / 100) if self.reserved_highest > 0 else 0.0

    def __str__(self) -> str:
        runs = f"{self.runs} measured run{'s' * (self.runs != 1)}"
        figures = (
            f"predictions of reserved memory were off by {self.reserved_median:.1f} % (median), "
            f"at most {self.reserved_worst:.1f} %"
        )
        if not self.applies:
            return f"not measured with {listed(self.outside)}; on the {runs} otherwise closest to this one, {figures}"
        return f"on the {runs} most like this one, {figures}"


@cache
def record() -> tuple[tuple[Recorded, ...], str]:
    """Every measured run that ships with this version, and what they are."""
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


def expected_error(features: Features, not_modelled: Sequence[str] = ()) -> ExpectedError:
    """What the measured runs that share these features showed; `not_modelled`: phrases that no figure can stand for."""
    return _expected(frozenset(features.items()), tuple(not_modelled))


@lru_cache(maxsize=64)
def _expected(features: frozenset[tuple[str, str]], not_modelled: tuple[str, ...]) -> ExpectedError:
    runs, basis = record()
    known = frozenset().union(*(run.features for run in runs))
    # A kind that the record does not know at all is newer than the record: nothing can be said by it.
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
    """The closest runs, with all that are equally close; for what decides and none of them has, the closest with it."""
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
    """The type of products, where it was measured, but never with this trainer."""
    words = dict(features)
    with_trainer = [run.features for run in runs if ("trainer", words.get("trainer")) in run.features]
    if not with_trainer or any((_TYPE, words.get(_TYPE)) in found for found in with_trainer):
        return []
    return [f"{words[_TYPE]} in {words['trainer']}"] if _TYPE in words else []


def _same_method(features: frozenset[tuple[str, str]], runs: Sequence[Recorded]) -> list[Recorded]:
    """All runs of this trainer and method: where the closest do not settle it, the spread of them does."""
    shared = [feature for feature in features if feature[0] in ("trainer", "method")]
    return [run for run in runs if run.features.issuperset(shared)]


def summary(runs: Iterable[Recorded]) -> dict[str, float | int]:
    """Medians and worst cases in per cent."""
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


def listed(names: Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
