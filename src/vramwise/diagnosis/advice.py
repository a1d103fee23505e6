"""Turn causes into remedies: edits of the config with their diff and predicted effect, or keys to set.

`remedies.json` lists changes that may fix a failure, and which suit each cause. With a config, `variants.changes`
decides whether a change applies and the trainer spells it; without one, the trainer names the keys to set.

Remedies are tried on the ghost run: rejected ones are dropped, and the result of `fit` comes last. The others keep
their order: first those that leave the training result unchanged. Shorter rows lose data and come last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from vramwise.bundled import bundled_json
from vramwise.diagnosis.case import Case
from vramwise.diagnosis.causes.resident import resident_of
from vramwise.diagnosis.circumstances import circumstances
from vramwise.diagnosis.evidence import Cause, Remedy
from vramwise.diagnosis.read.phases import in_loss, in_zero_optimizer
from vramwise.diagnosis.read.settings_texts import setting_of
from vramwise.diagnosis.witness import Ghost, survival, would_survive
from vramwise.documents.edit import EditRefused, apply_edits, diff
from vramwise.opening.subject import Subject
from vramwise.trainers.base import Trainer
from vramwise.types import Change, Fix
from vramwise.units import gib
from vramwise.variants import changes
from vramwise.variants.effort import DIAGNOSIS
from vramwise.verbs.fitting.ways_out import way_out

# Wording in key lines, used without a config, for a value that depends on another.
_HALF, _TWICE, _VALUE_OF = "half of it", "twice as many", "the value of "
_ZERO_OFFLOAD = Remedy(
    title="Keep the optimizer's state in host memory: DeepSpeed's offload",
    keys=('"zero_optimization": {"offload_optimizer": {"device": "cpu", "pin_memory": true}}  # the DeepSpeed JSON',),
)
# Causes that stem from too many tokens at once: if the failed request was for logits, a fused loss is offered first.
_OF_TOKENS = ("capacity", "oversized-batch", "long-tail", "logits")


def advise(case: Case, causes: Sequence[Cause]) -> list[Cause]:
    """Return the causes with their remedies; those of the likeliest cause are tried on the ghost run."""
    words = circumstances(case).union(_known_too_large(case))
    if any(cause.id == "long-tail" for cause in causes):
        words |= {"longer-batch"}
    return [_advised(case, cause, words, first=at == 0) for at, cause in enumerate(causes)]


def _known_too_large(case: Case) -> Iterator[str]:
    there, told = resident_of(case), case.told.prediction if case.told is not None else None
    if there is not None and there.too_large:
        yield "too-large"
        if there.weights_too_large:
            yield "weights-too-large"
    if there is not None and there.large_adapter:
        yield "large-adapter"
    if told is not None and told.memory_fits is False:
        yield "lean"  # checkpointing and a fused loss were simulated, and are not enough


def _advised(case: Case, cause: Cause, words: frozenset[str], *, first: bool) -> Cause:
    rows = list(_offered(case, cause, words))
    if not (first and is_of_memory(cause.id) and case.ghost is not None):
        return replace(cause, remedies=tuple(remedy for _, remedy in rows))
    start = next((at for at, (name, _) in enumerate(rows) if name), len(rows))
    changed = {name: remedy for name, remedy in rows if name}
    left, rejected = tried(case, changed, foremost="fuse-loss" if _asks_for_logits(case) else None)
    best = fitted(case)
    if best is None and rejected and not any(remedy.survives for remedy in left):
        left.insert(0, Remedy(title=not_enough(case.ghost)))
    lead = [remedy for _, remedy in rows[:start]]
    tail = [remedy for name, remedy in rows[start:] if not name]
    said = [f"{remedy.title} ({remedy.prediction})" for remedy in rejected]
    evidence = (*cause.evidence, f"simulated, and not enough: {'; '.join(said)}") if said else cause.evidence
    return replace(cause, remedies=(*lead, *left, *tail, *([best] if best else [])), evidence=evidence)


def _offered(case: Case, cause: Cause, words: frozenset[str]) -> Iterator[tuple[str, Remedy]]:
    """Yield what suits a cause and can run there, best first: a change by its name, or a line of advice without one."""
    subject = None if case.ghost is None else case.ghost.subject
    if offload := _zero_offload(case, cause):
        yield "offload-optimizer", offload
    for row in _in_order(case, cause):
        name = row.get("change", "")
        if name in case.log.stated.tried or not _holds(row, words):
            continue
        if not name:
            remedy = Remedy(title=row["title"], command=row.get("command"), keys=tuple(row.get("keys", ())))
            own = case.speaker.trainer.words.get(row.get("named", ""))
            yield "", replace(remedy, keys=own) if own else remedy
        elif "mlx" not in words and _holds(_stored()["changes"][name], words):
            built = build(name, subject, case.speaker.trainer)
            if built is not None and (known := _with_known_values(case, built)) is not None:
                yield name, with_diff(case, known)


def _in_order(case: Case, cause: Cause) -> list[dict[str, Any]]:
    """Return the rows of a cause; a change that the failure itself points to goes first."""
    rows = [{"change": row} if isinstance(row, str) else row for row in rows_for(cause.id)]
    first = ""
    if cause.id in _OF_TOKENS and _asks_for_logits(case):
        first = "fuse-loss"
        rows = [{"change": first}, *(row for row in rows if row.get("change") != first)]
    elif case.log.stated.works_with_smaller_batch is not None:
        first = "smaller-micro-batch"
    return sorted(rows, key=lambda row: row.get("change", "") != first) if first else rows


def _holds(row: Mapping[str, Any], words: frozenset[str]) -> bool:
    """Whether a row can run there: all its `when` hold, and none of its `unless`."""
    return words.issuperset(row.get("when", ())) and words.isdisjoint(row.get("unless", ()))


def _zero_offload(case: Case, cause: Cause) -> Remedy | None:
    """Return a remedy that offloads the optimizer state, if DeepSpeed shards it and does not offload it yet."""
    run = case.run
    sharded = in_zero_optimizer(case.symptom.frames) or (run is not None and run.sharding.is_zero)
    if cause.id != "optimizer-state" or not sharded or (run is not None and run.sharding.offload_optimizer):
        return None
    return replace(_ZERO_OFFLOAD, fields={"offload_optimizer": True}) if run is not None else _ZERO_OFFLOAD


def _asks_for_logits(case: Case) -> bool:
    return in_loss(case.symptom.frames) or case.as_large_as("logits") is not None


def _with_known_values(case: Case, remedy: Remedy) -> Remedy | None:
    """Without a config, return the remedy with the log's values in its keys; None if there is nothing to halve."""
    if case.run is not None:
        return remedy
    micro, steps = case.micro_batch_size, case.number("gradient_accumulation_steps")
    halved = [setting_of(line.partition(":")[0]) for line in remedy.keys if line.endswith(_HALF)]
    if micro == 1 and "micro_batch_size" in halved:
        return None
    smaller, more = next(changes.smaller_sizes(micro, steps), (0, 0)) if steps else (micro // 2, 0)
    instead = {
        ("micro_batch_size", _HALF): smaller,
        ("sequence_len", _HALF): case.number("sequence_len") // 2,
        ("gradient_accumulation_steps", _TWICE): more,
    }
    return replace(remedy, keys=tuple(_known(case, line, instead) for line in remedy.keys))


def _known(case: Case, line: str, instead: Mapping[tuple[str, str], int]) -> str:
    """Return a key line with its wording replaced by a value, if the log has the number for it."""
    key, _, words = line.partition(": ")
    name = setting_of(key)
    after = instead.get((name, words), 0)
    if name == "eval_batch_size" and words.startswith(_VALUE_OF):
        after = case.number("micro_batch_size")
    if not after:
        return line
    before = case.number(name)
    return f"{key}: {after}" + (f"  # was {before}" if before and before != after else "")


@cache
def _stored() -> dict[str, Any]:
    found: dict[str, Any] = bundled_json("remedies.json", __file__)
    return found


def rows_for(cause: str) -> Sequence[Any]:
    """Return the remedies listed for a cause, best first: names of changes, or rows with their conditions."""
    found: Sequence[Any] = _stored()["causes"].get(cause, {}).get("remedies", ())
    return found


def is_of_memory(cause: str) -> bool:
    """Whether the cause is about memory, so that the prediction can judge its remedies."""
    return "of_memory" in _stored()["causes"].get(cause, {})


def build(name: str, subject: Subject | None, trainer: Trainer) -> Remedy | None:
    """Return a change as a remedy: edits for a config, or the trainer's keys; None if it does not apply."""
    row = _stored()["changes"][name]
    if subject is None:
        return Remedy(title=row["title"], keys=trainer.words.get(name, ()))
    wanted: Change | None = getattr(changes, row["change"])(subject.run)
    spelling = None if wanted is None else subject.trainer.spell(subject.run, wanted)
    if wanted is None or spelling is None or not spelling.edits:
        return None
    title = spelling.title or wanted.title
    return Remedy(title=title, fix=Fix(title=title, safe=wanted.safe, edits=spelling.edits, change=wanted))


def tried(
    case: Case, offered: Mapping[str, Remedy], *, foremost: str | None = None
) -> tuple[list[Remedy], list[Remedy]]:
    """Return the remedies that survive on the ghost run, then those without a prediction; and those that fail too.

    `foremost`: the remedy that addresses the root cause; it goes first if it survives.
    """
    judged = {name: _judged(case, remedy) for name, remedy in offered.items()}
    last = judged.pop("shorten-rows", None)
    ranked = list(judged.values())
    ranked.sort(key=lambda remedy: (remedy.survives is not True, remedy.fix is not None and not remedy.fix.safe))
    if foremost in judged and judged[foremost].survives:
        ranked.sort(key=lambda remedy: remedy is not judged[foremost])
    if last is not None:
        ranked.append(last)
    left = [remedy for remedy in ranked if remedy.survives is not False]
    rejected = [remedy for remedy in ranked if remedy.survives is False]
    return left, rejected


def fitted(case: Case) -> Remedy | None:
    """Return what `fit` makes of the config on the log's card, with the command that writes it.

    None if nothing that was tried fits, or if the config was predicted to fit as it is.
    """
    ghost = case.ghost
    if ghost is None or ghost.prediction is None or not _can_be_tried(case):
        return None
    try:
        room = case.memory.allowed_bytes if case.memory else None
        out = way_out(ghost.subject, limit_bytes=room, most=DIAGNOSIS)
    except Exception:
        return None  # an internal error of the prediction must not break the diagnosis; the remedies report it
    if out is None:
        return None
    attempt = out.attempt
    if attempt is None or attempt.prediction is None:
        return Remedy(title="See what would make it fit", command=out.command)
    before, after = [gib(one.needs.highest_reserved_bytes) for one in (ghost.prediction, attempt.prediction)]
    remedy = Remedy(
        title=f"The fastest that fits: {attempt.words}",
        command=out.command,
        survives=True,
        prediction=f"{before} → {after} reserved of {gib(attempt.prediction.capacity_bytes or 0)}",
    )
    if not attempt.edits or attempt.writable is None:
        return remedy
    gravest = max(attempt.changes, key=lambda change: ("same", "rounding", "changes").index(change.effect))
    fix = Fix(title=attempt.title, safe=attempt.safe, edits=attempt.edits, change=gravest)
    return replace(remedy, fix=fix, diff=diff(ghost.document, attempt.writable))


def with_diff(case: Case, remedy: Remedy) -> Remedy:
    """Return the remedy with the diff of its edits, or with the reason why they cannot be made."""
    if remedy.fix is None or case.ghost is None:
        return remedy
    document = case.ghost.document
    try:
        return replace(remedy, diff=diff(document, apply_edits(document, remedy.fix.edits)))
    except EditRefused as error:
        return replace(remedy, refused=str(error))


def _can_be_tried(case: Case) -> bool:
    ghost = case.ghost
    return ghost is not None and ghost.prediction is not None and ghost.surpassed_by(case.memory) is None


def _judged(case: Case, remedy: Remedy) -> Remedy:
    assert case.ghost is not None
    if remedy.refused:
        return remedy
    if remedy.fields:
        subject = case.ghost.subject
        changed = subject.with_run(subject.run.changed(**remedy.fields))
        survives, figures = survival(case.ghost, changed, case.memory)
    elif remedy.fix is not None:
        survives, figures = would_survive(case.ghost, remedy.fix.edits, case.memory)
    else:
        return remedy
    return replace(remedy, survives=survives, prediction=figures)


def not_enough(ghost: Ghost) -> str:
    """Return the advice for a case in which no change is enough."""
    adapter = "" if ghost.run.adapter.kind else "an adapter (lora, qlora), "
    return f"None of these changes is enough for this card. Use {adapter}sharding over several cards, or a larger card"
