"""Writes the text of a new config: its keys in groups, with comments on the important lines.

Findings that the config settles are silenced by such comments, with the reason.

The comments explain important settings, found by their name in RunSpec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from vramwise.opening.subject import Subject
from vramwise.trainers.base import Trainer
from vramwise.trainers.rulebook import rules_for
from vramwise.types import Finding, RunSpec, join_key
from vramwise.units import gib, readable
from vramwise.variants.prediction import Prediction
from vramwise.verbs.starting.plan import METHODS, Better, Plan
from vramwise.verbs.starting.trials import Trial

Groups = Sequence[Sequence[str]]


def config_text(values: Mapping[str, Any], groups: Groups, comments: Mapping[str, str], head: Sequence[str]) -> str:
    """Return YAML with blank lines between groups and comments after values; keys whose value is None are omitted."""
    written = {key: value for key, value in values.items() if value is not None}
    blocks = [[f"# {' '.join(line.splitlines())}".rstrip() for line in head]]
    blocks += [
        [line for key in group for line in _lines(key, written[key], comments)]
        for group in grouped(list(written), groups)
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def grouped(keys: Sequence[str], groups: Groups) -> Iterator[list[str]]:
    """Yield the keys in their groups; keys without a group go to the last but one (kernels and memory savings)."""
    known = {key for group in groups for key in group}
    others = [key for key in keys if key not in known]
    for place, group in enumerate(groups):
        found = [key for key in group if key in keys]
        if place == len(groups) - 2:
            found += others
        if found:
            yield found


def _lines(key: str, value: Any, comments: Mapping[str, str]) -> list[str]:
    """Return the lines of a key with its value; keys of a section have their own comments."""
    text: str = yaml.dump({key: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    lines = text.rstrip("\n").split("\n")
    inner = value if isinstance(value, Mapping) else {}
    behind = {f"  {name}:": comments.get(f"{key}.{name}", "") for name in inner} | {f"{key}:": comments.get(key, "")}
    return [_behind(line, behind.get(line[: line.find(":") + 1], "")) for line in lines]


def _behind(line: str, comment: str) -> str:
    return f"{line}  # {comment}" if comment else line


class _Dumper(yaml.SafeDumper):
    """Indents list items."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Always indent lists."""
        super().increase_indent(flow, False)


def of_memory(trainer: Trainer, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that concern only memory: their cost is already in the prediction."""
    rules = {rule.id for rule in rules_for(trainer) if rule.costs_memory}
    return [one for one in findings if one.rule in rules]


def of_rounding(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings whose fix changes only rounding: the search could have chosen it."""
    changes = [(one, one.fix.change) for one in findings if one.fix is not None]
    return [one for one, change in changes if change is not None and change.effect == "rounding"]


def with_silenced(comments: Mapping[str, str], findings: Sequence[Finding], why: str) -> dict[str, str]:
    """Return the comments with findings silenced at their keys; the key "" is for the whole file."""
    found = dict(comments)
    for one in findings:
        key = one.key or ""
        silence = f"vramwise: ignore[{one.rule}] {why}"
        found[key] = f"{found[key]}  # {silence}" if found.get(key) else silence
    return found


_LOSSES = {
    "chunked": "the loss is computed in parts",
    "liger_fused_linear": "the loss never holds all logits",
    "cut": "the loss never holds all logits",
}
_SHARDED = {"fsdp": "FSDP 2", "zero": "ZeRO"}


def reasons(
    plan: Plan, trial: Trial, subject: Subject, others: Sequence[Trial], better: Better | None
) -> dict[str, str]:
    """Return comments by key of the config (with its section); self-explanatory keys are left out."""
    run = subject.run
    found = dict(_reasons(plan, trial, subject, others, better))
    return {join_key(run.config.path(run.keys.get(field, field))): why for field, why in found.items() if why}


def _reasons(
    plan: Plan, trial: Trial, subject: Subject, others: Sequence[Trial], better: Better | None
) -> Iterator[tuple[str, str]]:
    run, prediction = subject.run, subject.prediction()
    yield "adapter", _method(trial.method, better)
    yield "sequence_len", _length(plan, trial, run)
    yield "sample_packing", _packing(plan, trial, others)
    yield "micro_batch_size", _batch(plan, trial, run, prediction)
    yield "eval_batch_size", "evaluate at the micro-batch" if run.evaluation.evaluates else ""
    yield "optimizer", _optimizer(run)
    yield "attn_implementation", _attention(run)
    yield "precision", _precision(run)
    yield "gradient_checkpointing", _checkpointing(run)
    yield "activation_offloading", _offloading(run)
    yield "loss_kernel", _LOSSES.get(run.kernels.loss_kernel, "")
    yield "sharding", _sharding(run)
    yield "learning_rate", "usual for " + ("DPO with " if plan.format == "pairs" else "") + METHODS[trial.method]


def _method(method: str, better: Better | None) -> str:
    if better is None:
        return ""
    return f"{METHODS[better.method]} needs {gib(better.needs_bytes)}, {readable(better.short_bytes)} too much"


def _length(plan: Plan, trial: Trial, run: RunSpec) -> str:
    rows, samples = plan.rows(packed=trial.packed), plan.samples
    if plan.ask.sequence_len is not None:
        why = "as asked"
    elif samples is None:
        return "usual; with --data the length follows the samples"
    elif plan.model.max_position_embeddings <= rows.length:
        why = "the most that the model takes"
    else:
        why = f"holds {1 - rows.longer / samples:.1%} of the {samples:,} samples whole".replace("%", " %")
    if samples is None:
        return why
    lost = "dropped" if run.shapes.long_rows == "drop" else "cut"
    if not rows.longer:
        return f"{why}: none is {lost}" if plan.ask.sequence_len is not None else f"holds all {samples:,} samples whole"
    return f"{why}; {rows.longer:,} longer {'ones are' if rows.longer > 1 else 'one is'} {lost}"


def _packing(plan: Plan, trial: Trial, others: Sequence[Trial]) -> str:
    if not plan.packs:
        return ""
    mine = trial.duration
    other = next((one for one in others if one.packed != trial.packed and one.fits), None)
    theirs = None if other is None else other.duration
    ratio = theirs.hours / mine.hours if mine and theirs and mine.hours else None
    word = "padding" if trial.packed else "packing"
    longer = ratio is not None and ratio >= 1.05  # smaller differences are not significant
    against = f"; {word} takes {ratio:.1f} × as long" if longer else ""
    against = against or (f"; {word} is no faster" if trial.unbeaten or ratio is not None else "")
    if not trial.packed:
        joined = trial.subject.run.shapes.packing_fill == "single"
        how = "the samples of a batch are joined, without padding" if joined else "rows are padded"
        return f"{how}{against}" if against or joined else ""
    held = plan.rows(packed=True).samples_a_row
    filled = f"about {held:.1f} samples fill a row" if plan.lengths else "samples fill the rows"
    return f"{filled}{against}"


def _batch(plan: Plan, trial: Trial, run: RunSpec, prediction: Prediction) -> str:
    micro, steps, gpus = run.batch.micro_batch_size, run.batch.gradient_accumulation_steps, run.batch.gpus
    spread = f" × {gpus} GPUs" if gpus > 1 else ""
    total = run.batch.effective_batch_size
    held = plan.rows(packed=trial.packed).samples_a_row
    unit = f" row{'s' * (total > 1)}, about {total * held:.0f} samples" if held > 1.05 else ""
    spare = (prediction.capacity_bytes or 0) - prediction.needs.highest_reserved_bytes
    return f"micro {micro} × accumulation {steps}{spread} = {total}{unit}; {readable(spare)} to spare"


def _optimizer(run: RunSpec) -> str:
    name = run.optimizer.name
    if "paged" in name:
        return "its states move to host memory where the card is full"
    return "states in 8 bits: in full they do not fit" if "8bit" in name else ""


def _attention(run: RunSpec) -> str:
    gpu, name = run.target.gpu, run.kernels.attn_implementation
    if "flash" in name:
        return "needs the flash-attn package"
    if name == "sdpa" and gpu is not None and gpu.capability is not None and gpu.capability < (8, 0):
        return f"{gpu.name} has no flash attention"
    return ""


def _precision(run: RunSpec) -> str:
    gpu = run.target.gpu
    return "" if gpu is None or gpu.bf16 else f"{gpu.name} has no bf16"


def _checkpointing(run: RunSpec) -> str:
    if run.savings.gradient_checkpointing:
        return "recomputes activations: nothing that keeps them is faster and fits"
    return "everything fits without recomputing, which is faster"


def _offloading(run: RunSpec) -> str:
    return "" if run.savings.activation_offloading == "off" else "activations wait in host memory: without it less fits"


def _sharding(run: RunSpec) -> str:
    kind = run.sharding.kind
    name = next((name for start, name in _SHARDED.items() if kind.startswith(start)), "")
    return f"{name} over {run.batch.gpus} GPUs: the fastest that fits" if name else ""
