"""A prediction as text: the verdict, what takes the memory, the phases, assumptions and the expected error.

Also what `--what-if` changes about it: one change compared with the original, or several side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramwise.render.doubt_text import error_lines
from vramwise.render.outward import style
from vramwise.render.speed_text import measured_on, seconds, speed_line, times
from vramwise.render.verdict_text import headline, judgement, loading_peak, reasons, ways_out
from vramwise.timeline import MemoryReport
from vramwise.units import GIB, gib, gib_change, readable
from vramwise.variants.assumptions import Assumption
from vramwise.variants.prediction import Prediction
from vramwise.variants.speed import Speed
from vramwise.verbs.predict import Answer, OnCard, WhatIf

_ORDER = ("weights", "gradients", "optimizer", "activations", "logits", "temporary", "workspace", "data")
_BAR = 30
# Parts below this share of the total are shown as "other".
_SMALL = 0.02
# How many groups of steps are shown first; the first group is what precedes all steps.
_GROUPS_SHOWN = 4


def render_prediction(prediction: Prediction, answer: Answer | None = None, *, verbose: bool = False) -> list[str]:
    """Return all lines: the verdict, why, what would make it fit, the peak, and the important assumptions.

    `verbose`: every phase, every assumption, versions, and the measured runs behind the expected error.
    """
    verdict = answer.verdict if answer else prediction.verdict()
    out = ways_out(answer) if answer else []
    return [
        headline(prediction, verdict),
        *([f"  {_sentence(answer.against_plain)}"] if answer and answer.against_plain else []),
        *(f"  {reason}" for reason in reasons(prediction, verdict)),
        *(f"  {line}" for line in _speed(answer)),
        *(["", *out] if out else []),
        "",
        describe(prediction),
        *_breakdown(prediction, whole=verbose),
        "",
        *(_detail(prediction, answer) if verbose else _in_short(prediction)),
    ]


def _in_short(prediction: Prediction) -> list[str]:
    matters = [one.text for one in prediction.assumed if one.kind in ("run", "rows") and not _in_doubt(prediction, one)]
    notes = f"{style('Assumed', bold=True)}: {'; '.join(matters)}" if matters else ""
    more = "More: --verbose (phases, versions, measured runs), --cards, --html FILE"
    return [*filter(None, [notes]), more]


def _in_doubt(prediction: Prediction, assumption: Assumption) -> bool:
    """Return whether the doubts above name an assumption already."""
    kinds = {one.kind for one in prediction.doubts}
    of_model = assumption.text == prediction.model.taken_for or assumption.text.startswith("unknown model_type")
    said = any(one.text == assumption.text for one in prediction.doubts)
    return said or (assumption.kind == "rows" and "rows" in kinds) or (of_model and "model" in kinds)


def _detail(prediction: Prediction, answer: Answer | None) -> list[str]:
    return [
        *_phases(prediction.decisive),
        "",
        style("Assumptions", bold=True),
        *(f"  {note}" for note in prediction.assumptions),
        *(f"  speed: {note}" for note in speed_notes(answer)),
        "",
        *error_lines(prediction),
    ]


def speed_notes(answer: Answer | None) -> list[str]:
    """Return the assumptions behind the speed, and how far measured speeds were off."""
    speed = answer.speed if answer is not None else None
    return [] if speed is None else [*speed.assumptions, measured_on(speed)]


def _speed(answer: Answer | None) -> Iterator[str]:
    """Yield the speed, or why there is none."""
    if answer is not None and answer.speed is not None:
        said = speed_line(answer.speed, answer.duration)
        yield f"If it fitted: {said[:1].lower()}{said[1:]}" if answer.prediction.memory_fits is False else said
    elif answer is not None and answer.no_speed:
        yield _sentence(answer.no_speed)


def _sentence(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}"


def describe(prediction: Prediction) -> str:
    """Return one line: what is trained, how, and with which allocator settings."""
    run, model = prediction.run, prediction.model
    method = run.adapter.kind or "full fine-tune"
    if run.loading.quantization:
        method += f" on a {run.loading.quantization} base"
    shape = f"micro {run.batch.micro_batch_size} × {run.shapes.sequence_len} tokens"
    cards = f", {run.batch.gpus} GPUs ({run.sharding.kind})" if run.batch.gpus > 1 else ""
    allocator = run.allocator.settings or "torch's defaults"
    return (
        f"{model.name}: {method}, {run.precision.compute}, {shape}, {run.optimizer.name}{cards}; allocator: {allocator}"
    )


def _breakdown(prediction: Prediction, *, whole: bool) -> list[str]:
    report = prediction.decisive  # the moment that the verdict names, unless loading decides
    where = f"step {report.peak_step}, {report.peak_phase}" if report.peak_step else report.peak_phase
    rows = list(breakdown_rows(report))
    if (loading := loading_peak(prediction)) is not None:
        where, held = "loading", loading.peak_allocated_bytes
        idle = max(0, loading.peak_reserved_bytes - held)
        rows = [("loaded", held), ("fragmentation", idle), ("CUDA context", report.outside_bytes)]
    title = f"{style('At the peak', bold=True)} ({where})"
    together = sum(size for _, size in rows)
    if not whole:
        small = [size for _, size in rows if size < _SMALL * together]
        rows = [(name, size) for name, size in rows if size >= _SMALL * together]
        rows += [("other", sum(small))] if small else []
    most = max((size for _, size in rows), default=1)
    lines = [f"  {name:<14}{readable(size):>10}  {'█' * round(_BAR * size / most)}".rstrip() for name, size in rows]
    return [title, *lines, f"  {'on the device':<14}{readable(together):>10}"]


def breakdown_rows(report: MemoryReport) -> Iterator[tuple[str, int]]:
    """Yield category and bytes at the peak: tensors, then unused reserved memory, then memory outside the allocator."""
    held = report.breakdown_bytes
    for name in (*_ORDER, *sorted(set(held) - set(_ORDER))):
        if held.get(name):
            yield name, held[name]
    yield "fragmentation", report.idle_bytes
    yield "CUDA context", report.outside_bytes


def _phases(report: MemoryReport) -> list[str]:
    """Return a line per phase; equal steps are shown once."""
    lines = [style("Phase by phase", bold=True), f"  {'':<24}{'allocated':>11}{'reserved':>11}   peak GiB"]
    for first, last, peaks in _folded(report):
        steps = f"step {first} " if first == last else f"steps {first}–{last} "
        for phase, allocated, reserved in peaks:
            name = f"{steps}{phase}" if first else phase
            lines.append(f"  {name:<24}{allocated:>11}{reserved:>11}")
    return lines


_Rows = list[tuple[str, str, str]]


def _folded(report: MemoryReport) -> Iterator[tuple[int, int, _Rows]]:
    """Yield (first step, last step, its phases with their peaks); equal neighbours are merged.

    If there are many groups, the first ones, the one with the peak and the last one are shown.
    """
    by_step: dict[int, _Rows] = {}
    for peak in report.phases:
        figures = (f"{peak.peak_allocated_bytes / GIB:.2f}", f"{peak.peak_reserved_bytes / GIB:.2f}")
        by_step.setdefault(peak.step, []).append((peak.phase, *figures))
    groups: list[tuple[int, int, _Rows]] = []
    for step, rows in sorted(by_step.items()):
        first, _, alike = groups[-1] if groups else (0, 0, [])
        if step and first and rows[: len(alike)] == alike:
            groups[-1] = (first, step, alike)
            if rows[len(alike) :]:  # additional phases of some steps, such as an evaluation
                groups.append((step, step, rows[len(alike) :]))
        else:
            groups.append((step, step, rows))
    shown = {*range(_GROUPS_SHOWN), len(groups) - 1}
    for at, (first, last, rows) in enumerate(groups):
        if at in shown or first <= report.peak_step <= last:
            yield first, last, rows
        elif at - 1 in shown:
            yield first, groups[-2][1], [("… none higher", "", "")]


def render_cards(rows: Sequence[OnCard]) -> list[str]:
    """Return which cards the run fits, one line each."""
    width = max(len(row.card) for row in rows)
    lines = [style("Cards", bold=True)]
    for name, prediction, verdict in rows:
        lines.append(f"  {name.ljust(width)}  {judgement(prediction, verdict)}")
    return lines


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
