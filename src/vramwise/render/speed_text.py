"""The training speed in words, the same in all verbs and formats."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vramwise.variants.duration import Duration
from vramwise.variants.speed import Speed


def speed_line(speed: Speed, duration: Duration | None = None, *, error: bool = True) -> str:
    """Return `About 0.83 s a step, 9,900 tokens a second`, with its error and the duration of the training."""
    rate = f"{two_digits(speed.tokens_per_second)} tokens a second"
    said = f"About {seconds(speed.step_seconds)} a step, {rate}{_about(speed) if error else ''}"
    return said if duration is None else f"{said}; {duration_words(duration)}"


def _about(speed: Speed) -> str:
    error = speed.error
    return " (not measured)" if error is None else f" (± {error.median:.0f} %, {error.worst:.0f} % at worst)"


def measured_on(speed: Speed) -> str:
    """Return the runs behind the error of a speed."""
    error = speed.error
    if error is None:
        return "not measured for runs like this one"
    which = f" ({error.basis})" if error.basis else ""
    return f"measured on {error.runs:,} run{'s' * (error.runs != 1)}{which}"


def duration_words(duration: Duration) -> str:
    """Return `3 epochs of 2,000 samples (375 steps): 1.2 hours`."""
    least = "at least " if duration.at_least else ""
    counted = "" if duration.basis.endswith(" steps") else f" ({duration.steps:,} step{'s' * (duration.steps != 1)})"
    return f"{duration.basis}{counted}: {least}{hours(duration.hours)}"


def speed_figures(speed: Speed, duration: Duration | None = None) -> list[tuple[str, str, str]]:
    """Return the speed as named figures, each with a note."""
    rate = f"{two_digits(speed.tokens_per_second)} tokens a second{_about(speed)}"
    figures = [("A step", f"about {seconds(speed.step_seconds)}", rate)]
    if duration is not None:
        least = "at least " if duration.at_least else "about "
        figures.append(("All of it", f"{least}{hours(duration.hours)}", f"{steps_of(duration)}: {duration.basis}"))
    return figures


def speed_json(speed: Speed | None, duration: Duration | None = None) -> dict[str, Any] | None:
    """Return the speed as plain values; with `steps` and `hours` if the duration is known."""
    if speed is None:
        return None
    fields: dict[str, Any] = {
        "step_seconds": speed.step_seconds,
        "tokens_per_second": speed.tokens_per_second,
        "parts": dict(speed.parts),
        "assumptions": list(speed.assumptions),
        "error": speed.error and asdict(speed.error),
    }
    if duration is not None:
        fields |= {"steps": duration.steps, "hours": duration.hours, "basis": duration.basis}
        fields |= {"at_least": duration.at_least}
    return fields


def seconds(value: float) -> str:
    """Format seconds: `0.83 s`, `12.4 s`, `210 s`; short times in milliseconds."""
    if value < 0.0995:
        return f"{1000 * value:.0f} ms" if value >= 0.00095 else f"{1000 * value:.1g} ms"
    return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s" if value < 99.95 else f"{value:,.0f} s"


def steps_of(duration: Duration) -> str:
    """Format the number of steps: `1,200 steps`."""
    return f"{duration.steps:,} step{'s' * (duration.steps != 1)}"


def hours(value: float) -> str:
    """Format hours as `40 seconds`, `35 minutes`, `1.2 hours` or `3.4 days`."""
    if value < 1.5 / 3600:
        return "about a second"
    if value < 1.5 / 60:
        return f"{3600 * value:.0f} seconds"
    if value < 1:
        return f"{60 * value:.0f} minutes"
    return f"{value:.1f} hours" if value < 48 else f"{value / 24:.1f} days"


def two_digits(value: float) -> str:
    """Format a number with two significant digits: `9,900`."""
    return f"{float(f'{value:.2g}'):,.0f}"


def times(ratio: float) -> str:
    """Format a ratio: `1.4 ×`."""
    return f"{ratio:.2f} ×" if ratio < 0.995 or 1.005 < ratio < 1.095 else f"{ratio:.1f} ×"
