"""A prediction for people: the verdict first, then what takes the memory, the phases, assumptions, expected error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramwise.foreseeing import WhatIf
from vramwise.render.outward import style
from vramwise.timeline import MemoryReport
from vramwise.units import GIB, gib, gib_change, readable
from vramwise.variants.prediction import Prediction

_ORDER = ("weights", "gradients", "optimizer", "activations", "logits", "temporary", "workspace", "data")
_BAR = 30
# The first steps (0 is what comes before them) show what changes; the peak's and the last are added.
_STEPS_SHOWN = 4


def render_prediction(prediction: Prediction) -> list[str]:
    """All of it, line by line."""
    return [
        verdict(prediction),
        "",
        describe(prediction),
        "",
        *_breakdown(prediction),
        "",
        *_phases(prediction.needs),
        "",
        style("Assumptions", bold=True),
        *(f"  {note}" for note in prediction.assumptions),
        "",
        f"{style('Expected error', bold=True)}: {prediction.expected_error}",
    ]


def verdict(prediction: Prediction) -> str:
    """One line: needs how much of what, fits or not, and where it breaks."""
    needs = prediction.needs
    figures = f"needs {gib(needs.peak_reserved_bytes)} reserved ({gib(needs.peak_allocated_bytes)} allocated)"
    if needs.highest_reserved_bytes > needs.peak_reserved_bytes:
        figures += f", {gib(needs.highest_reserved_bytes)} while loading,"
    if prediction.capacity_bytes is None:
        return f"{figures}; name a card with --gpu to see whether it fits"
    return f"{figures} of {_room(prediction)}: {_judgement(prediction)}"


def _room(prediction: Prediction) -> str:
    capacity = prediction.capacity_bytes or 0
    if prediction.gpu is None or capacity == prediction.limit_bytes:
        return f"the limit {gib(capacity)}"
    outside = gib(prediction.report.outside_bytes)
    return f"{gib(capacity)} ({prediction.gpu.name}: {gib(prediction.gpu.memory_bytes)} less {outside} CUDA context)"


def _judgement(prediction: Prediction) -> str:
    report, capacity = prediction.report, prediction.capacity_bytes or 0
    failure = report.out_of_memory
    if failure is not None:
        where = f"step {failure.step}, {failure.phase}" if failure.step else failure.phase
        asked = f"asking for {readable(failure.requested_bytes)} ({failure.label})"
        held = f"with {gib(failure.allocated_bytes)} allocated and {gib(failure.reserved_bytes)} reserved"
        return f"{style('does not fit', fg='red', bold=True)}: out of memory in {where}, {asked} {held}"
    if report.retries:
        retries = "1 retry" if report.retries == 1 else f"{report.retries} retries"
        return style("fits only by releasing caches", fg="yellow", bold=True) + f" ({retries}: slow)"
    spare = capacity - report.highest_reserved_bytes
    return style("fits", fg="green", bold=True) + f", {gib(spare)} spare"


def describe(prediction: Prediction) -> str:
    """One line: what is trained, how, and under which allocator settings."""
    run, model = prediction.run, prediction.model
    method = run.adapter or "full fine-tune"
    if run.quantization:
        method += f" on a {run.quantization} base"
    shape = f"micro {run.micro_batch_size} × {run.sequence_len} tokens"
    cards = f", {run.gpus} GPUs ({run.sharding})" if run.gpus > 1 else ""
    allocator = run.allocator or "torch's defaults"
    return f"{model.name}: {method}, {run.precision}, {shape}, {run.optimizer}{cards}; allocator: {allocator}"


def _breakdown(prediction: Prediction) -> list[str]:
    report = prediction.needs  # the same moment in text, JSON and HTML, whether it fits or not
    where = f"step {report.peak_step}, {report.peak_phase}" if report.peak_step else report.peak_phase
    title = f"{style('At the peak', bold=True)} ({where})"
    rows = list(breakdown_rows(report))
    most = max((size for _, size in rows), default=1)
    lines = [f"  {name:<14}{readable(size):>10}  {'█' * round(_BAR * size / most)}".rstrip() for name, size in rows]
    together = report.peak_reserved_bytes + report.outside_bytes
    return [title, *lines, f"  {'on the device':<14}{readable(together):>10}"]


def breakdown_rows(report: MemoryReport) -> Iterator[tuple[str, int]]:
    """Category and bytes at the peak: tensors, then what no tensor holds, then what lies outside the allocator."""
    held = report.breakdown_bytes
    for name in (*_ORDER, *sorted(set(held) - set(_ORDER))):
        if held.get(name):
            yield name, held[name]
    yield "fragmentation", report.idle_bytes
    yield "CUDA context", report.outside_bytes


def _phases(report: MemoryReport) -> list[str]:
    lines = [style("Phase by phase", bold=True), f"  {'':<22}{'allocated':>11}{'reserved':>11}   peak GiB"]
    last = max((peak.step for peak in report.phases), default=0)
    most = max(report.phases, key=lambda peak: peak.peak_allocated_bytes, default=None)
    shown = {*range(_STEPS_SHOWN), report.peak_step, last, most.step if most else 0}
    for peak in report.phases:
        if peak.step not in shown:
            continue
        name = f"step {peak.step} {peak.phase}" if peak.step else peak.phase
        allocated, reserved = peak.peak_allocated_bytes / GIB, peak.peak_reserved_bytes / GIB
        lines.append(f"  {name:<22}{allocated:>11.2f}{reserved:>11.2f}")
    hidden = len({peak.step for peak in report.phases} - shown)
    if hidden:
        lines.append(f"  … {hidden} more step{'s' if hidden > 1 else ''}, none higher")
    return lines


def render_cards(rows: Sequence[tuple[str, Prediction]]) -> list[str]:
    """Which cards it would fit: one line each."""
    width = max(len(name) for name, _ in rows)
    lines = [style("Cards", bold=True)]
    for name, prediction in rows:
        lines.append(f"  {name.ljust(width)}  {_judgement(prediction)}")
    return lines


def render_change(before: Prediction, changed: WhatIf) -> list[str]:
    """What-if: the change beside what it changes, and the findings that come and go."""
    after = changed.prediction
    rows = (
        ("reserved", before.needs.peak_reserved_bytes, after.needs.peak_reserved_bytes),
        ("allocated", before.needs.peak_allocated_bytes, after.needs.peak_allocated_bytes),
    )
    lines = [f"{style('What if', bold=True)} {', '.join(changed.changes)}"]
    for name, old, new in rows:
        lines.append(f"  {name:<10}{gib(old):>10} → {gib(new):>10}  ({gib_change(new - old)})")
    lines.append(f"  {verdict(after)}")
    lines += [f"  new: {found.severity.value} {found.rule}: {found.message}" for found in changed.new]
    lines += [f"  gone: {found.severity.value} {found.rule}" for found in changed.gone]
    return lines
