"""The first lines of a prediction: whether it fits, why, its assumptions, and what was not measured."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vramwise.render.doubt_text import doubt_lines, unsaid
from vramwise.render.outward import style
from vramwise.timeline import PhasePeak
from vramwise.types import Document, Edit, Finding
from vramwise.types.actions import action
from vramwise.units import gib, largest, readable
from vramwise.variants.attempt import Attempt
from vramwise.variants.prediction import Prediction
from vramwise.variants.verdict import NAMES, Verdict
from vramwise.variants.versions import versions_line

if TYPE_CHECKING:
    from vramwise.verbs.fitting.ways_out import WayOut
    from vramwise.verbs.predict import Answer

SIGNS = {
    "fits": ("✓", "green"),
    "tight": ("!", "yellow"),
    "may_fit": ("?", "yellow"),
    "not_known": ("?", "yellow"),
    "does_not_fit": ("✗", "red"),
    "stops": ("✗", "red"),
}
# How a page colours the kinds of verdict; uncertain ones are open.
_STATES = {"fits": "good", "does_not_fit": "bad", "stops": "bad"}
# A run that needs so many times the card is not short of a few GiB.
_MANY_TIMES = 4
_LIMIT = " under the limit"
# Keyed by whether the run starts anyway.
STOPPED = {False: "Will not start", True: "Will not train as written"}
EFFECTS = {"same": "same result", "rounding": "same math, different kernels", "changes": "changes the training"}


def judgement(prediction: Prediction, verdict: Verdict | None = None) -> str:
    """Return the verdict in two words and a figure, for a table."""
    verdict = verdict or prediction.verdict()
    if verdict.kind == "no_card":
        return "no card"
    name = stopped(prediction.stops) if verdict.kind == "stops" else NAMES[verdict.kind]
    short = shortage(prediction, verdict.short_bytes)
    figure = f"{readable(verdict.spare_bytes)} spare" if verdict.spare_bytes else short
    shown = f", {figure}" if verdict.kind in ("fits", "tight", "does_not_fit") else ""
    return style(name.lower(), fg=SIGNS[verdict.kind][1], bold=True) + shown


def state_of(kind: str) -> str:
    """Return how a page shows a kind of verdict: `good`, `open` or `bad`."""
    return _STATES.get(kind, "open")


def shortage(prediction: Prediction, short_bytes: int) -> str:
    """Return by how much a run exceeds the card or limit: a figure only if it is of the card's order."""
    capacity = prediction.capacity_bytes or 0
    if short_bytes + capacity <= _MANY_TIMES * capacity:
        return f"{readable(short_bytes)} short"
    return "many times the limit" if where(prediction) == _LIMIT else "many times the card"


def headline(prediction: Prediction, verdict: Verdict | None = None) -> str:
    """Return one short line for a terminal: the verdict with its sign, and its figures."""
    verdict = verdict or prediction.verdict()
    said, figures = _said(prediction, verdict)
    sign, colour = SIGNS.get(verdict.kind, ("", None))
    return f"{style(f'{sign} {said}', fg=colour, bold=True)}{figures}" if sign else f"{said}{figures}"


def sentence(prediction: Prediction, verdict: Verdict | None = None, *, signed: bool = False) -> str:
    """Return the headline as plain text; `signed`: with its sign in front."""
    verdict = verdict or prediction.verdict()
    sign = SIGNS.get(verdict.kind, ("", None))[0] if signed else ""
    return " ".join(filter(None, (sign, "".join(_said(prediction, verdict)))))


def _said(prediction: Prediction, verdict: Verdict) -> tuple[str, str]:
    """Return the verdict, and the figures after it."""
    if verdict.kind == "stops":
        return stopped(prediction.stops), f": {prediction.stops[0].message} ({would_need(prediction, verdict)})"
    if verdict.kind == "no_card":
        return _needs(prediction), f"; {action('choose a card')} to see whether it fits"
    name, on, room = _name(prediction, verdict), where(prediction), _room(prediction)
    short = shortage(prediction, verdict.short_bytes)
    if short.startswith("many"):
        room = f"{room.removesuffix(')')}{on})"
    else:
        short += on
    spare = f"{readable(verdict.spare_bytes)} spare{on}"
    if verdict.kind == "fits":
        return name, f": {spare} {room}"
    if verdict.kind == "tight":
        retries = f"fits{on} only by releasing cached memory and retrying"
        return name, f": {retries if prediction.report.retries else f'fits with only {spare}'} {room}"
    if verdict.kind == "does_not_fit":
        return name, f": {'stops while loading, ' * stops_loading(prediction)}{short} {room}"
    if prediction.rows_unlimited:
        longest = f"; up to about {verdict.rows_up_to} tokens they fit" if verdict.rows_up_to is not None else ""
        return name, f"{on}: nothing limits the rows{longest} {room}"
    if prediction.memory_fits is False or (prediction.mixed_bytes and verdict.short_bytes):  # but shorter rows may
        rows = "rows are full" if prediction.memory_fits is False else "row lengths vary up to"
        return name, f": {short} if {rows} {prediction.run.shapes.sequence_len} tokens {room}"
    if prediction.fits_by_emptying and verdict.kind == "may_fit":
        return name, f": only by releasing cached memory and retrying{on} {room}"
    return name, f"{on}: {_range(prediction, verdict)}"


def _name(prediction: Prediction, verdict: Verdict) -> str:
    """Return the name of the verdict, or a sentence that begins with the condition under which it holds."""
    name = NAMES[verdict.kind]
    if not prediction.model.family_assumed:
        return name
    outcome = f"is {name.lower()}" if verdict.kind == "tight" else name.lower()
    return f"If model type {prediction.model.model_type} is like llama, it {outcome}"


def stops_loading(prediction: Prediction) -> bool:
    """Return whether loading is what does not fit: it fails there and needs more than training."""
    failure, needs = prediction.report.out_of_memory, prediction.needs
    higher = needs.highest_allocated_bytes > needs.peak_allocated_bytes and not _is_upper_end(prediction)
    return failure is not None and failure.phase == "load" and higher


def _is_upper_end(prediction: Prediction) -> bool:
    """Return whether what was simulated is the upper end of a range whose lower end does not fit either."""
    return prediction.memory_fits is False and prediction.least_bytes < prediction.needs.highest_reserved_bytes


def stopped(stops: Sequence[Finding]) -> str:
    """Return what the errors do to a run, in a few words."""
    return STOPPED[stops[0].still_runs]


def at_line(document: Document, found: Finding) -> str:
    """Return `Line 3: `, or "" if a finding concerns the whole file."""
    return "" if found.line is None else f"Line {document.label(found.line)}: "


def would_need(prediction: Prediction, verdict: Verdict) -> str:
    """Return the memory needs of a run that does not start."""
    if prediction.bounds is not None and verdict.memory != "no_card":
        return f"it {_range(prediction, verdict)}".replace("it needs", "it would need", 1)
    if verdict.memory == "no_card":
        return f"it would need {gib(prediction.needs.highest_reserved_bytes)}"
    usable = (
        f"{needed(prediction)}{_rows(prediction)}, {_bare(prediction.capacity_bytes or 0)} usable{where(prediction)}"
    )
    if prediction.memory_fits:
        return f"it would need {usable}"
    if prediction.rows_unlimited and verdict.memory == "may_fit":
        return f"nothing limits the rows: it would need {usable}"
    either = "might not fit" if verdict.memory == "may_fit" else "would not fit"
    return f"and it {either}: it would need {usable}"


def where(prediction: Prediction) -> str:
    """Return ` on RTX 4090`, ` on each of 8 × H100` or ` under the limit`."""
    if prediction.gpu is None or prediction.capacity_bytes == prediction.limit_bytes:
        return _LIMIT
    each = f" each of {prediction.run.batch.gpus} ×" if prediction.run.batch.gpus > 1 else ""
    return f" on{each} {prediction.gpu.name}"


def needed(prediction: Prediction) -> str:
    """Return the memory by which a run is judged; of a range, which end that is."""
    bounds, judged = prediction.bounds, prediction.judged_bytes
    if bounds is not None and bounds.upper_bytes is None:
        return f"at least {gib(prediction.verdict().least_bytes)}"
    end = "least" if prediction.memory_fits is False and prediction.most_bytes > judged else "most"
    return f"at {end} {gib(judged)}" if bounds is not None else gib(judged)


def _room(prediction: Prediction) -> str:
    return f"(needs {needed(prediction)} reserved{_rows(prediction)}, {_bare(prediction.capacity_bytes or 0)} usable)"


def _rows(prediction: Prediction) -> str:
    return f" with rows of {prediction.run.shapes.sequence_len} tokens" if prediction.rows_unlimited else ""


def _range(prediction: Prediction, verdict: Verdict) -> str:
    least, most, capacity = verdict.least_bytes, verdict.most_bytes, _bare(prediction.capacity_bytes or 0)
    if most is None:
        return f"needs at least {gib(least)} reserved, {capacity} usable"
    ends = gib(most) if gib(least) == gib(most) else f"{_bare(least)} to {gib(most)}"
    return f"needs {ends} reserved, {capacity} usable"


def _bare(size_bytes: int) -> str:
    """Return GiB without the unit, for use beside another figure in GiB."""
    return gib(size_bytes).removesuffix(" GiB")


def _needs(prediction: Prediction) -> str:
    between = prediction.bounds
    if between is not None:
        upper = "" if between.upper_bytes is None else f", at most {gib(between.upper_bytes)},"
        return f"Needs at least {gib(between.lower_bytes)}{upper} reserved"
    needs = prediction.needs
    return f"Needs {gib(needs.highest_reserved_bytes)} reserved ({gib(needs.peak_allocated_bytes)} allocated)"


def reasons(prediction: Prediction, verdict: Verdict | None = None, *, with_stops: bool = True) -> Iterator[str]:
    """Yield the lines below the headline: the peak and what fills it, assumptions, what was not measured.

    `with_stops`: also the errors that keep the run from starting, after the first, which the headline has.
    """
    verdict = verdict or prediction.verdict()
    document = prediction.run.config.document
    yield from filter(None, [versions_line(prediction.run)])
    yield from (f"Read: {one.text}" for one in prediction.assumed if one.kind == "source")
    yield from doubt_lines(prediction, verdict)
    if with_stops:
        yield from (f"{at_line(document, found)}{found.message}" for found in prediction.stops[1:])
    yield from unsaid(prediction)
    if verdict.rows_up_to is not None and not prediction.rows_unlimited:
        longest = f"no row exceeds about {verdict.rows_up_to} tokens"
        yield f"It fits if {longest}: {action('read the lengths')}"
    yield f"Peak {_moment(prediction)}"
    failure = prediction.report.out_of_memory
    if failure is not None and prediction.memory_fits is False and not (prediction.stops or _is_upper_end(prediction)):
        at = f"step {failure.step}, {failure.phase}" if failure.step else failure.phase
        what = f" ({failure.label})" if failure.label else ""
        yield f"It runs out of memory in {at}, requesting {readable(failure.requested_bytes)} more{what}"
    yield from (f"Row lengths from {one}" for one in prediction.assumed if one.kind == "data")
    run = prediction.run
    if run.batch.gpus == 1 and run.sharding.kind not in ("none", "ddp"):
        yield f"The config uses sharding ({run.sharding.kind}), but one GPU is assumed: {action('say how many cards')}"
    if prediction.bounds is not None:
        yield f"Not modelled: {prediction.bounds.why}"


def loading_peak(prediction: Prediction) -> PhasePeak | None:
    """Return the peak of loading if it decides: the run stops there, or it reserves more than training does."""
    needs = prediction.decisive
    if _is_upper_end(prediction):
        return None
    if not stops_loading(prediction) and needs.highest_reserved_bytes <= needs.peak_reserved_bytes:
        return None
    return next((peak for peak in needs.phases if peak.phase == "load"), None)


def _moment(prediction: Prediction) -> str:
    needs = prediction.decisive
    at = f"step {needs.peak_step}, {needs.peak_phase}" if needs.peak_step else needs.peak_phase
    loading = loading_peak(prediction)
    if loading is None:
        return f"in {at}: {largest(needs.breakdown_bytes)}"
    held = f"while loading, with {gib(loading.peak_allocated_bytes)} allocated"
    if stops_loading(prediction):
        return f"{held}. Training itself allocates {gib(needs.peak_allocated_bytes)} at most"
    return f"{held}; then {gib(needs.peak_reserved_bytes)} in {at}: {largest(needs.breakdown_bytes)}"


def ways_out(answer: Answer) -> list[str]:
    """Return what would make the run fit, its memory, and the command that writes it."""
    if answer.prediction.stops:
        return list(_repairs(answer))
    if answer.prediction.fits is not False:
        return []
    out = answer.way_out
    if out is None:
        if answer.verdict.rows_up_to is not None:
            return []
        room = gib(answer.prediction.needs.device_bytes)
        return [
            f"No change that was tried makes it fit. Use a card with more than {room}, or {action('several cards')}"
        ]
    title = style("What would make it fit", bold=True)
    if out.attempt is None:
        return [title, "  A quick search found nothing. To search further:", f"    {fit_command(answer, out)}"]
    tried = out.attempt
    needed = gib(tried.reserved_bytes or 0)
    tight = ", tight" if tried.tight else ""
    found = f"  {needed:>9}  {tried.words} ({EFFECTS[effect(tried)]}{tight})"
    if answer.command.startswith("vramwise predict "):  # there is no file
        return [title, found, f"    {answer.command} {as_options(tried)}"]
    return [f"{title} (`vramwise fit` finds the fastest way)", found, f"    {fit_command(answer, out)}"]


def _repairs(answer: Answer) -> Iterator[str]:
    """Yield what would make the run start, and the command that shows it as a diff."""
    fixable = [found for found in answer.prediction.stops if found.fix is not None]
    if not fixable:
        return
    would = "train as written" if answer.prediction.stops[0].still_runs else "start"
    yield style(f"What would make it {would}", bold=True)
    for found in fixable:
        assert found.fix is not None
        yield f"  {at_line(answer.prediction.run.config.document, found).lower()}{found.fix.title}"
    if answer.prediction.capacity_bytes is None:  # nothing to fit it to
        unsafe = "" if all(found.fix and found.fix.safe for found in fixable) else " --unsafe-fixes"
        yield f"    vramwise fix {shlex.quote(answer.prediction.run.config.document.path)}{unsafe} --diff"
    elif answer.command.startswith("vramwise fit "):
        yield f"    {answer.command}"


def fit_command(answer: Answer, out: WayOut) -> str:
    """Return the command that shows the change as a diff, for the same machine."""
    if not answer.command.startswith("vramwise fit "):
        return out.command
    return " ".join([answer.command, *(f"--allow {word}" for word in out.allow)])


def effect(tried: Attempt) -> str:
    """Return the combined effect of the changes on training: the strongest of them."""
    order = ("same", "rounding", "changes")
    return max((change.effect for change in tried.changes), key=order.index)


def setting(edit: Edit) -> str:
    """Return an edit as the resulting line."""
    return f"without {edit.key}" if edit.op == "delete" else f"{edit.key}: {_value(edit.value)}"


def as_options(tried: Attempt) -> str:
    """Return the changes as options of `predict`; empty if the user must make some of them by hand."""
    if tried.by_hand:
        return ""
    words = [shlex.quote(f"{edit.key}={'' if edit.op == 'delete' else _value(edit.value)}") for edit in tried.edits]
    options = [f"--what-if {word}" for word in words]
    options += [
        f"--alloc-conf {shlex.quote(str(change.fields['allocator']))}"
        for change in tried.changes
        if "allocator" in change.fields and tried.commands
    ]
    return " ".join(options)


def _value(value: object) -> str:
    """Return a value on one line of YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_value(item)}" for key, item in value.items()) + "}"
    return "null" if value is None else str(value)
