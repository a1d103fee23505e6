"""`predict --what-if` as text: one change compared with the original, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.render.outward import style
from vramwise.render.speed_text import seconds, times
from vramwise.render.verdict_text import headline, judgement
from vramwise.units import gib, gib_change
from vramwise.variants.speed import Speed
from vramwise.verbs.predict import Answer, WhatIf


def render_change(before: Answer, changed: WhatIf) -> list[str]:
    """Return the change compared with the original, and the findings that appear and disappear."""
    now, after = before.prediction, changed.prediction
    rows = (
        ("reserved", now.needs.highest_reserved_bytes, after.needs.highest_reserved_bytes),
        ("allocated", now.needs.peak_allocated_bytes, after.needs.peak_allocated_bytes),
    )
    lines = [f"{style('What if', bold=True)} {', '.join(changed.changes)}"]
    for name, old, new in rows:
        lines.append(f"  {name:<10}{gib(old):>10} → {gib(new):>10}  ({gib_change(new - old)})")
    if before.speed is not None and changed.speed is not None:
        then, soon = before.speed, changed.speed
        faster = soon.tokens_per_second / then.tokens_per_second
        times_ = f"{times(faster)} the tokens per second"
        lines.append(f"  {'a step':<10}{seconds(then.step_seconds):>10} → {seconds(soon.step_seconds):>10}  ({times_})")
    lines.append(f"  {headline(after, changed.verdict)}")
    lines += [f"  new: {found.severity.value} {found.rule}: {found.message}" for found in changed.new]
    lines += [f"  gone: {found.severity.value} {found.rule}" for found in changed.gone]
    return lines


def render_scenarios(before: Answer, scenarios: Sequence[WhatIf]) -> list[str]:
    """Return several what-ifs side by side, one line each, the original first."""
    shared = set.intersection(*(set(one.changes) for one in scenarios))
    own = [", ".join(words for words in one.changes if words not in shared) for one in scenarios]
    rows: list[tuple[str, Answer | WhatIf]] = [("as it is", before), *zip(own, scenarios, strict=True)]
    width = max(len(name) for name, _ in rows)
    together = f" (each with {', '.join(sorted(shared))})" if shared else ""
    timed = any(one.speed is not None for _, one in rows)
    head = f"  {'':<{width}}  {'reserved':>9}  {'allocated':>9}" + f"  {'speed':>6}" * timed
    lines = [f"{style('What if', bold=True)}{together}", head]
    for name, one in rows:
        needs = one.prediction.needs
        figures = f"{gib(needs.highest_reserved_bytes):>9}  {gib(needs.peak_allocated_bytes):>9}"
        pace = _pace(before.speed, one.speed) if timed else ""
        lines.append(f"  {name:<{width}}  {figures}{pace}  {judgement(one.prediction, one.verdict)}")
    for changed in scenarios:
        words = ", ".join(changed.changes)
        lines += [f"  {words}: new {found.severity.value} {found.rule}" for found in changed.new]
    return lines


def _pace(before: Speed | None, speed: Speed | None) -> str:
    """Return the ratio of tokens per second to the original."""
    if before is None or speed is None:
        return f"  {'':>6}"
    return f"  {times(speed.tokens_per_second / before.tokens_per_second):>6}"
