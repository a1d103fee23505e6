"""What is not known of a run, as lines: its doubts and what settles them, settings left open, the error to expect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramwise.render.folding import listed
from vramwise.render.outward import style
from vramwise.types.actions import action
from vramwise.variants.doubts import Doubt
from vramwise.variants.prediction import Prediction
from vramwise.variants.verdict import Verdict

# Doubts that are named, in a line that can still be read; the rest are counted.
_NAMED, _LONGEST = 3, 140
# What was not measured is named last, and only where there is room; the last two concern most runs.
_UNMEASURED = ("feature", "trainer", "family", "ranks", "card")
_USUAL = _UNMEASURED[-2:]
# What settles a doubt of a kind; a run of a few steps settles all others.
_SETTLES = {"rows": "read the lengths", "model": "name the model"}


def doubt_lines(prediction: Prediction, verdict: Verdict) -> Iterator[str]:
    """Yield what is not known of the run, with its margin, and what would settle a verdict that it leaves open."""
    unlimited = prediction.rows_unlimited  # which the verdict itself says
    doubts = [one for one in _in_order(prediction.doubts) if not unlimited or one.kind != "rows" or one.more]
    if doubts:
        yield f"{_margin(prediction)}: {named(doubts)}"
    if verdict.kind == "may_fit" and (unlimited or prediction.memory_fits is None):
        said = verdict.rows_up_to is not None and not unlimited  # with the rows
        asked = [_SETTLES[one.kind] for one in prediction.doubts if one.kind in _SETTLES]
        asked = [one for one in asked if _can_settle(one, prediction) and not (said and one == _SETTLES["rows"])]
        yield f"What would settle it: {'; or '.join(dict.fromkeys(map(action, [*asked, 'try a step'])))}"


def in_brief(prediction: Prediction) -> str:
    """Return what is not known besides what was not measured, with its margin, on one line; "" if that is nothing."""
    doubts = [one for one in _in_order(prediction.doubts) if one.kind not in _USUAL]
    margin = _margin(prediction)
    return f"{margin[:1].lower()}{margin[1:]}: {named(doubts)}" if doubts else ""


def named(doubts: Sequence[Doubt]) -> str:
    """Return the first doubts by their texts, and the number of the others."""
    texts: list[str] = []
    for one in doubts[:_NAMED]:
        if not texts or one.kind not in _UNMEASURED or len("; ".join([*texts, one.text])) <= _LONGEST:
            texts.append(one.text)
    more = len(doubts) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")


def _in_order(doubts: Sequence[Doubt]) -> list[Doubt]:
    """Return the doubts that have words, each text once, and what was not measured last."""
    last = sorted(doubts, key=lambda one: _UNMEASURED.index(one.kind) if one.kind in _UNMEASURED else -1)
    return list({one.text: one for one in last if one.text}.values())


def _can_settle(remedy: str, prediction: Prediction) -> bool:
    """Return whether a remedy is of use: a model that is described already is not known better by its name."""
    return remedy != _SETTLES["model"] or not prediction.model.family_assumed


def _margin(prediction: Prediction) -> str:
    """Return by how much the run may need more or less, with rows as long as simulated if nothing limits them."""
    margin = prediction.margin
    ends = [f"{100 * share:.0f} % {word}" for share, word in ((margin.more, "more"), (margin.less, "less"))]
    ends = [end for end in ends if not end.startswith("0 ")]
    rows = f"With rows of {prediction.run.shapes.sequence_len} tokens it" if prediction.rows_unlimited else "It"
    return f"{rows} may need up to {' or '.join(ends)}" if ends else "Not known"


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
