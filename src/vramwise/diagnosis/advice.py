"""A cause → what to change: as edits of the config with their diff and the ghost run's word, else as keys to set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vramwise.allocator.settings import CUDA_VARIABLE
from vramwise.allocator.variables import EXPANDABLE
from vramwise.diagnosis import remedies as r
from vramwise.diagnosis.case import Case
from vramwise.diagnosis.evidence import Cause, Remedy
from vramwise.diagnosis.read.phases import in_loss, in_zero_optimizer
from vramwise.diagnosis.read.settings_texts import setting_of
from vramwise.diagnosis.trial import Trial, fitted, not_enough, tried, with_diff
from vramwise.subject import Subject
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
    # No padding here: it would make every batch as long as the one that failed.
    "long-tail": (r.halve_micro_batch, r.checkpoint_activations, r.fuse_loss, r.shorten),
    "impossible-request": (r.fused_attention,),
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
# How trainers' lines without a config put a value that depends on another.
_HALF, _TWICE, _VALUE_OF = "half of it", "twice as many", "the value of "
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
    "impossible-request": (
        Remedy(
            title="Look at the line that asks for it, and at the longest row: print the shapes there, check lengths, "
            "labels and indices against the model's vocabulary and its image or position limits"
        ),
    ),
    "vllm-share": (
        Remedy(
            title="Give vLLM a smaller share: below what is free when it starts",
            keys=("gpu_memory_utilization: 0.5  # vllm_gpu_memory_utilization in TRL",),
        ),
        Remedy(title="See who holds the memory, and free it or choose another card", command="nvidia-smi"),
    ),
    "vllm-cache": (
        Remedy(
            title="Shorten what vLLM must hold, or give it a larger share of the card",
            keys=("max_model_len: half of it", "gpu_memory_utilization: 0.9"),
        ),
    ),
    "nccl-timeout": (
        Remedy(title="Mend what held the late rank up; a longer ddp_timeout helps only where it was merely slow"),
    ),
    "absurd-size": (Remedy(title="Look for the rank that failed first; run again with NCCL_DEBUG=INFO"),),
    "kernel-shared-memory": (
        Remedy(title="Choose a kernel or block size made for this card; memory settings do not matter"),
    ),
}
_VLLM_SHARE = Remedy(
    title="Give vLLM a smaller share, and empty torch's cache before it wakes",
    keys=("gpu_memory_utilization: 0.45  # vllm_gpu_memory_utilization in TRL",),
)
_ZERO_OFFLOAD = Remedy(
    title="Keep the optimizer's state in host memory: DeepSpeed's offload",
    keys=('"zero_optimization": {"offload_optimizer": {"device": "cpu", "pin_memory": true}}  # the DeepSpeed JSON',),
)
# Causes that too many tokens at once lead to: where logits were asked for, a loss that holds none goes first.
_OF_TOKENS = ("capacity", "oversized-batch", "long-tail", "logits")
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
    longest = any(cause.id == "long-tail" for cause in causes)
    return [_advised(case, cause, first=at == 0, longest=longest) for at, cause in enumerate(causes)]


def _advised(case: Case, cause: Cause, *, first: bool, longest: bool) -> Cause:
    builds = _builders(case, cause, longest=longest)
    built = {build: _built(case, build(_subject(case), case.speaker.trainer)) for build in builds}
    offered = {build: remedy for build, remedy in built.items() if remedy is not None}
    if offload := _zero_offload(case, cause):
        offered = {r.offload_optimizer: offload, **offered}
    trial = Trial(list(offered.values()), [])
    best = None
    if first and cause.id in _OF_MEMORY and case.ghost is not None:
        trial = tried(case, offered, foremost=r.fuse_loss if _asks_for_logits(case) else None)
        best = fitted(case)
        if best is None and trial.rejected and not any(remedy.survives for remedy in trial.remedies):
            trial.remedies.insert(0, Remedy(title=not_enough(case.ghost)))
    commands = list(_commands(case, cause))
    before = cause.id in ("fragmentation", "other-process") or case.symptom.kind == "vllm-cumem"
    remedies = commands + trial.remedies if before else trial.remedies + commands
    if best is not None:
        remedies.append(best)
    said = [f"{remedy.title} ({remedy.prediction})" for remedy in trial.rejected]
    evidence = (*cause.evidence, f"tried on the ghost run, and not enough: {'; '.join(said)}") if said else None
    return replace(cause, remedies=tuple(remedies), evidence=evidence or cause.evidence)


def _commands(case: Case, cause: Cause) -> tuple[Remedy, ...]:
    if cause.id == "outside-torch" and case.symptom.kind == "vllm-cumem":
        return _in_own_words(case, "vllm-share", (_VLLM_SHARE,))
    return _in_own_words(case, cause.id, COMMANDS.get(cause.id, ()))


def _in_own_words(case: Case, name: str, remedies: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """With the trainer's own lines in place of the library's, where it has keys of its own for them."""
    own = case.speaker.trainer.words(name)
    return tuple(replace(remedy, keys=own) if own and remedy.keys else remedy for remedy in remedies)


def _zero_offload(case: Case, cause: Cause) -> Remedy | None:
    """Of an optimizer that DeepSpeed shards: its state may lie on the host."""
    run = case.run
    sharded = in_zero_optimizer(case.symptom.frames) or (run is not None and run.sharding.kind.startswith("zero"))
    if cause.id != "optimizer-state" or not sharded or (run is not None and run.sharding.offload_optimizer):
        return None
    return replace(_ZERO_OFFLOAD, fields={"offload_optimizer": True}) if run is not None else _ZERO_OFFLOAD


def _subject(case: Case) -> Subject | None:
    return None if case.ghost is None else case.ghost.subject


def _built(case: Case, remedy: Remedy | None) -> Remedy | None:
    """With the log's own values, and with its diff."""
    known = remedy and _with_known_values(case, remedy)
    return known and with_diff(case, known)


def _builders(case: Case, cause: Cause, *, longest: bool) -> tuple[r.Build, ...]:
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
    builders = BUILDERS.get(cause.id, ())
    if longest:
        builders = tuple(build for build in builders if build is not r.pad_to_length)
    if cause.id in _OF_TOKENS and _asks_for_logits(case):
        builders = tuple(dict.fromkeys((r.fuse_loss, *builders)))
    return builders


def _asks_for_logits(case: Case) -> bool:
    return in_loss(case.symptom.frames) or case.as_large_as("logits") is not None


def _with_known_values(case: Case, remedy: Remedy) -> Remedy | None:
    """Without a config: keys with the log's own values in place of words; None where there is nothing to halve."""
    if case.run is not None:
        return remedy
    micro, steps = case.number("micro_batch_size"), case.number("gradient_accumulation_steps")
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
    """A line with the value that its words mean, where the log has what they speak of."""
    key, _, words = line.partition(": ")
    name = setting_of(key)
    after = instead.get((name, words), 0)
    if name == "eval_batch_size" and words.startswith(_VALUE_OF):
        after = case.number("micro_batch_size")
    if not after:
        return line
    before = case.number(name)
    return f"{key}: {after}" + (f"  # was {before}" if before and before != after else "")
