"""A cause → what to change: as edits of the config with their diff and the ghost run's word, else as keys to set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vramwise.allocator.settings import CUDA_VARIABLE
from vramwise.allocator.variables import EXPANDABLE
from vramwise.diagnosis import remedies as r
from vramwise.diagnosis.case import Case
from vramwise.diagnosis.evidence import Cause, Remedy
from vramwise.diagnosis.witness import Ghost, would_survive
from vramwise.documents.edit import EditRefused, apply_edits, diff
from vramwise.errors import VramwiseError
from vramwise.subject import Subject
from vramwise.types import Edit, Fix
from vramwise.variants import changes

_SMALLER: tuple[r.Build, ...] = (
    r.halve_micro_batch,
    r.checkpoint_activations,
    r.fuse_loss,
    r.eight_bit_optimizer,
    r.quantize_base,
    r.shorten,
)
BUILDERS: dict[str, tuple[r.Build, ...]] = {
    "capacity": _SMALLER,
    "oversized-batch": _SMALLER,
    "load": (r.quantize_base,),
    "logits": (r.fuse_loss, r.halve_micro_batch, r.shorten),
    "eager-attention": (r.fused_attention, r.halve_micro_batch, r.shorten),
    "optimizer-state": (r.eight_bit_optimizer, r.halve_micro_batch, r.checkpoint_activations),
    # No fused loss here: Liger's holds no logits in training only.
    "eval-batch": (r.equal_eval_batch, r.halve_micro_batch, r.shorten),
    "after-eval": (r.equal_eval_batch, r.collect_garbage_at_eval, r.halve_micro_batch),
    "after-save": (r.halve_micro_batch,),
    "save-gather": (r.shard_checkpoints,),
    "fragmentation": (r.pad_to_length, r.equal_eval_batch),
    "long-tail": (r.pad_to_length, r.halve_micro_batch, r.shorten),
    "resume": (r.eight_bit_optimizer, r.halve_micro_batch),
    "outside-torch": (r.halve_micro_batch,),
    "fp16-trainable-weights": (r.train_in_bf16,),
    "fp16-scaler-bf16-weights": (r.train_in_bf16,),
    "fp16-overflow": (r.train_in_bf16,),
    "mixed-operands": (r.train_in_bf16,),
    "flash-needs-half": (r.flash_attention,),
    "flash-card": (r.no_flash_attention,),
    "bf16-unsupported": (r.train_without_bf16,),
    "fsdp-mixed-dtypes": (r.second_fsdp,),
    "fsdp-mixed-frozen": (r.second_fsdp,),
    "recompute-dtype": (r.reentrant,),
    "recompute-freed-weights": (r.reentrant,),
    "recompute-changed": (r.reentrant,),
    "fp8-alignment": (r.pad_for_fp8,),
    "auto-batch-exhausted": (r.no_auto_batch,),
    "offload-tracker": (r.legacy_offloading,),
    "optimizer-unhandled": (r.known_optimizer,),
    "paged-unsupported": (r.unpaged_optimizer,),
    "host-memory": (r.fewer_workers,),
}
_EXPANDABLE = f"export {CUDA_VARIABLE}={EXPANDABLE}"
COMMANDS: dict[str, tuple[Remedy, ...]] = {
    "fragmentation": (Remedy(title="Let segments grow instead of lying side by side", command=_EXPANDABLE),),
    "after-eval": (Remedy(title="Let segments grow instead of lying side by side", command=_EXPANDABLE),),
    "after-save": (Remedy(title="Let segments grow instead of lying side by side", command=_EXPANDABLE),),
    "other-process": (
        Remedy(title="See who holds the memory, and free it or choose another card", command="nvidia-smi"),
    ),
    "bnb-8bit-save": (Remedy(title="Update bitsandbytes", command="pip install -U 'bitsandbytes>=0.39'"),),
    "host-shared-memory": (
        Remedy(title="Give the container more shared memory", command="docker run --shm-size=16g …"),
    ),
    "leak": (
        Remedy(
            title="Keep numbers, not tensors, from step to step: loss.item() or .detach().cpu(); empty lists of outputs"
        ),
    ),
    "load": (Remedy(title="Load to fewer bytes or more cards: 4-bit, or sharding (FSDP2, ZeRO-3)"),),
    "resume": (Remedy(title="Load the checkpoint to host memory first: map_location='cpu'"),),
    "mixed-operands": (
        Remedy(
            title="Where the model is called outside the trainer (generation, a callback), do it under torch.autocast; "
            "else cast the part that differs"
        ),
    ),
    "flash-needs-half": (Remedy(title="Call the model under torch.autocast, or cast what is fp32 before attention"),),
    "fsdp-mixed-dtypes": (
        Remedy(
            title="Give all parameters of a block one dtype: the adapter the base's, or the quantised base's storage"
        ),
    ),
    "host-memory": (
        Remedy(title="See whether the kernel killed it", command="dmesg -T | grep -iE 'killed process|oom-kill'"),
    ),
    "dtype-not-implemented": (
        Remedy(title="Run the whole model on the GPU with a torch that has the kernel, or give this part fp32"),
    ),
    "absurd-size": (Remedy(title="Look for the rank that failed first; run again with NCCL_DEBUG=INFO"),),
    "kernel-shared-memory": (
        Remedy(title="Choose a kernel or block size made for this card; memory settings do not matter"),
    ),
}
_MOST_PREDICTIONS = 4
# What is added, in this order, where no single change is enough: harmless ones first.
_LADDER: tuple[r.Build, ...] = (
    *(r.checkpoint_activations, r.halve_micro_batch, r.fuse_loss, r.halve_micro_batch),
    *(r.eight_bit_optimizer, r.quantize_base, r.halve_micro_batch),
)
# Causes where more or less memory decides, so that the prediction has a say.
_OF_MEMORY = frozenset(
    [
        "capacity",
        "oversized-batch",
        "load",
        "logits",
        "eager-attention",
        "optimizer-state",
        "eval-batch",
        "after-eval",
        "fragmentation",
        "long-tail",
        "resume",
        "outside-torch",
        "after-save",
    ]
)


def advise(case: Case, causes: Sequence[Cause]) -> list[Cause]:
    """The causes with their remedies; for the likeliest, each remedy is tried on the ghost run."""
    return [replace(cause, remedies=tuple(_remedies(case, cause, tried=at == 0))) for at, cause in enumerate(causes)]


def _remedies(case: Case, cause: Cause, *, tried: bool) -> list[Remedy]:
    built = {build: _built(case, build(_subject(case))) for build in _builders(case, cause)}
    offered = {build: remedy for build, remedy in built.items() if remedy is not None}
    edited = list(offered.values())
    if tried and cause.id in _OF_MEMORY and case.ghost is not None:
        edited = _tried(case, offered)
    commands = list(COMMANDS.get(cause.id, ()))
    return commands + edited if cause.id in ("fragmentation", "other-process") else edited + commands


def _subject(case: Case) -> Subject | None:
    return None if case.ghost is None else case.ghost.subject


def _built(case: Case, remedy: Remedy | None) -> Remedy | None:
    """With the log's own values, and with its diff."""
    known = remedy and _with_known_values(case, remedy)
    return known and _with_diff(case, known)


def _builders(case: Case, cause: Cause) -> tuple[r.Build, ...]:
    """What suits a cause at this moment.

    In the optimizer's own step no activation is alive: fewer of them would not help. Training's micro-batch does not
    make an evaluation's larger batch smaller, and data loaders have no part in loading and saving.
    """
    if cause.id == "optimizer-state" and case.symptom.phase == "optimizer":
        return (r.eight_bit_optimizer, r.quantize_base)
    if cause.id == "host-memory" and case.symptom.phase in ("load", "save"):
        return ()
    if cause.id == "eval-batch" and case.larger_eval_batch:
        return (r.equal_eval_batch,)
    return BUILDERS.get(cause.id, ())


def _with_known_values(case: Case, remedy: Remedy) -> Remedy | None:
    """Without a config: keys with the log's own values in place of words; None where there is nothing to halve."""
    if case.run is not None:
        return remedy
    micro = case.number("micro_batch_size")
    if micro == 1 and "micro_batch_size: half of it" in remedy.keys:
        return None
    steps = case.number("gradient_accumulation_steps")
    smaller, more = next(changes.smaller_sizes(micro, steps), (0, 0)) if steps else (micro // 2, 0)
    instead = {
        "micro_batch_size: half of it": ("micro_batch_size", smaller, micro),
        "eval_batch_size: the value of micro_batch_size": ("eval_batch_size", micro, case.number("eval_batch_size")),
        "sequence_len: half of it": ("sequence_len", case.number("sequence_len") // 2, case.number("sequence_len")),
        "gradient_accumulation_steps: twice as many": (
            "gradient_accumulation_steps",
            more,
            steps,
        ),
    }
    return replace(remedy, keys=tuple(_known(line, instead.get(line)) for line in remedy.keys))


def _known(line: str, value: tuple[str, int, int] | None) -> str:
    if value is None or not value[1]:
        return line
    key, after, before = value
    return f"{key}: {after}" + (f"  # was {before}" if before and before != after else "")


def _with_diff(case: Case, remedy: Remedy) -> Remedy:
    if remedy.fix is None or case.ghost is None:
        return remedy
    document = case.ghost.document
    try:
        return replace(remedy, diff=diff(document, apply_edits(document, remedy.fix.edits)))
    except EditRefused as error:
        return replace(remedy, refused=str(error))


def _tried(case: Case, offered: Mapping[r.Build, Remedy]) -> list[Remedy]:
    """Each remedy on the ghost run, those that survive first, and of these the ones that keep the training as it is.

    Shorter rows lose data: they come last, and where nothing else survives, several changes together are tried.
    """
    judged = {build: _judged(case, remedy) for build, remedy in list(offered.items())[:_MOST_PREDICTIONS]}
    half = judged.get(r.halve_micro_batch)
    if half is not None and half.survives is False:
        judged[r.halve_micro_batch] = _smaller_still(case, half)
    last = judged.pop(r.shorten, offered.get(r.shorten))
    remedies = list({**offered, **judged, r.shorten: last}.values())
    ranked = [remedy for remedy in remedies if remedy is not None and remedy is not last]
    if not any(remedy.survives for remedy in ranked) and _can_be_tried(case):
        ranked += _combined(case, [remedy.fix for remedy in ranked if remedy.fix and not remedy.refused])
    ranked.sort(key=lambda remedy: (remedy.survives is not True, remedy.fix is not None and not remedy.fix.safe))
    return [*ranked, last] if last is not None else ranked


def _can_be_tried(case: Case) -> bool:
    ghost = case.ghost
    return ghost is not None and ghost.prediction is not None and ghost.surpassed_by(case.memory) is None


def _judged(case: Case, remedy: Remedy) -> Remedy:
    assert case.ghost is not None
    if remedy.fix is None or remedy.refused:
        return remedy
    survives, figures = would_survive(case.ghost, remedy.fix.edits, case.memory)
    return replace(remedy, survives=survives, prediction=figures)


def _smaller_still(case: Case, half: Remedy) -> Remedy:
    """The largest micro-batch that survives; half of it where none does."""
    assert case.run is not None
    assert case.ghost is not None
    for change in changes.smaller_micro_batches(case.run):
        remedy = r.spelt(case.ghost.subject, change)
        if remedy is None or remedy.title == half.title:
            continue
        judged = _judged(case, _with_diff(case, remedy))
        if judged.survives:
            return judged
    return half


def _combined(case: Case, tried: list[Fix]) -> list[Remedy]:
    """Where no single change is enough: one after another, until the ghost run survives."""
    ghost = case.ghost
    assert ghost is not None
    edits: list[Edit] = list(tried[0].edits) if tried else []
    safe = all(fix.safe for fix in tried[:1])
    survives: bool | None = False
    figures = ""
    for build in _LADDER:
        try:
            changed = ghost.subject.with_document(apply_edits(ghost.document, edits))
        except VramwiseError:
            return []
        remedy = build(changed)
        if remedy is None or remedy.fix is None:
            continue
        edits += remedy.fix.edits
        safe = safe and remedy.fix.safe
        survives, figures = would_survive(ghost, edits, case.memory)
        if survives is not False:
            break
    title = "Several changes together" if survives else "All of these together"
    fix = Fix(title=title, safe=safe, edits=tuple(edits))
    together = _with_diff(case, Remedy(title=title, fix=fix, survives=survives, prediction=figures))
    return [together] if survives is not False else [Remedy(title=_not_enough(ghost)), together]


def _not_enough(ghost: Ghost) -> str:
    adapter = "" if ghost.run.adapter else "an adapter (lora, qlora), "
    return f"No change of these is enough for this card: it takes {adapter}sharding over several cards, or a larger one"
