"""What is not known of a run, as lines: its doubts and what settles them, settings left open, the error to expect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramwise.actions import action
from vramwise.render.folding import listed
from vramwise.render.outward import style
from vramwise.variants.prediction import Prediction
from vramwise.variants.verdict import Verdict

# Doubts that are named; the rest are counted.
_NAMED = 3
# What settles a doubt of a kind; a run of a few steps settles all others.
_SETTLES = {"rows": "read the lengths", "model": "name the model"}


def doubt_lines(prediction: Prediction, verdict: Verdict) -> Iterator[str]:
    """Yield what is not known of the run, with its margin, and what would settle a verdict that it leaves open."""
    doubts = [one for one in prediction.doubts if one.text]
    if doubts:
        more = f"; and {len(doubts) - _NAMED} more" if len(doubts) > _NAMED else ""
        yield f"{_margin(prediction)}{'; '.join(one.text for one in doubts[:_NAMED])}{more}"
    if verdict.kind == "may_fit" and prediction.memory_fits is None:
        asked = _SETTLES if verdict.rows_up_to is None else _SETTLES.keys() - {"rows"}  # which is said with the rows
        named = [_SETTLES[one.kind] for one in doubts[:_NAMED] if one.kind in asked]
        yield f"What would settle it: {'; or '.join(dict.fromkeys(map(action, [*named, 'try a step'])))}"


def _margin(prediction: Prediction) -> str:
    """Return by how much the run may need more or less; "" if what is unknown has no margin."""
    margin = prediction.margin
    ends = [f"{100 * share:.0f} % {word}" for share, word in ((margin.more, "more"), (margin.less, "less"))]
    ends = [end for end in ends if not end.startswith("0 ")]
    return f"It may need up to {' or '.join(ends)}: " if ends else "Not known: "


# Names for whole groups of settings that a script may leave open; they are not keys.
_GROUPS = frozenset({"training arguments", "adapter", "quantization", "model"})


def unsaid(prediction: Prediction) -> Iterator[str]:
    """Yield the settings that affect the run and that a script leaves open, for which defaults are assumed."""
    run = prediction.run
    script = run.config.document.script
    asked = run.config.asked | _GROUPS
    open_keys = [one for one in script.unsaid if one.key in asked] if script is not None else []
    reasons: dict[tuple[int, str], list[str]] = {}
    for one in open_keys:
        either = f" ({' or '.join(map(str, one.either))})" if one.either else ""
        reasons.setdefault((one.line, one.why), []).append(f"{one.key}{either}")
    for (line, why), keys in reasons.items():
        where = run.config.document.label(line)
        taken = "its default is" if len(keys) == 1 and keys[0] not in _GROUPS else "their defaults are"
        yield f"Unknown: {', '.join(keys)} (line {where}: {why}); {taken} assumed. To set a value: --set KEY=VALUE"


def error_lines(prediction: Prediction) -> Sequence[str]:
    """Return the error to expect, the measured runs most like this one, and how they differ."""
    error, margin = prediction.expected_error, prediction.margin
    outside = f"not measured with {listed(error.outside)}; " if error.outside else ""
    expected = (
        f"{outside}nine of ten first predictions of runs known as well as this one were at most "
        f"{100 * margin.more:.1f} % too low and {100 * margin.less:.1f} % too high"
    )
    shown = ", ".join(error.names[:3])
    more = f" and {error.runs - 3} more" if error.runs > 3 else ""
    other = ", ".join(error.closest_differs[:4])
    differs = f"; differences from the closest: {other}" if other else ""
    title = style("Expected error", bold=True)
    return [f"{title}: {expected}", f"  closest: {shown}{more}{differs}", f"  {error.basis}"]
