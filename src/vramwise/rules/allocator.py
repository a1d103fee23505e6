"""Rules for every trainer about memory as a whole: does the run fit, and is the allocator set up well."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.allocator.settings import (
    CUDA_VARIABLE,
    GENERIC_VARIABLE,
    NO_SPLIT_LIMIT,
    effective_settings,
    parse_settings,
)
from vramwise.allocator.variables import EXPANDABLE, export_line
from vramwise.errors import VramwiseError
from vramwise.rules.base import Hit, rule
from vramwise.rules.room import is_tight
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity, Target
from vramwise.units import MIB, gib, mib, readable
from vramwise.variants import changes

_OFF = "expandable segments are off and cached blocks fragment"


@rule(
    id="allocator-not-expandable",
    explains={"after-save", "fragmentation"},
    severity=Severity.WARNING,
    costs_memory=True,
    figured="yes",
    remedied={"allocator": EXPANDABLE},
    moot_when_embedded=True,
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\n",
    options="--torch 2.9",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\n",
    good_options="--torch 2.11",
    beyond_trainer=(
        "A trainer that sets the variable does not check whether torch uses it, or whether another variable overrides "
        "it."
    ),
)
def allocator_not_expandable(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The CUDA allocator will run without expandable segments.

    torch's default allocator reserves memory in fixed segments. When shapes change between steps, or between training
    and evaluation, freed blocks do not fit the new sizes and more segments are reserved. Expandable segments grow and
    are reused instead. Measured on one H200, Llama-3.2-1B shape, LoRA: batches of varying length reserve 52.7 GiB by
    default and 32.4 GiB with expandable segments, for 29.8 GiB allocated; an eval at batch 16 after training at batch
    4 reserves 36.3 GiB, or 25.3 GiB with expandable segments.

    A trainer's command may turn them on with an environment variable. This can fail in several ways. torch 2.9 parses
    `PYTORCH_ALLOC_CONF` but its CUDA allocator ignores it. Your own variable overrides it. `python -m` and `accelerate
    launch -m` bypass the command that sets it. `max_split_size_mb` next to it lets reserved memory grow without bound.
    `backend:cudaMallocAsync` is a different allocator. The finding names the case and the `export` line that fixes it.
    On Windows and WSL1 torch has no expandable segments.
    """
    message = _verdict(run)
    if message is not None:
        yield Hit(message=f"{message}; run: {_line(run)}", change=changes.expandable_segments(run))


def _verdict(run: RunSpec) -> str | None:
    """Return what keeps expandable segments from working; None if they work."""
    target = run.target
    try:
        settings = parse_settings(run.allocator.settings, target.torch)
    except VramwiseError as error:
        return f"torch {_version(target)} refuses the allocator settings from {_source(run)}: {error}"
    if settings.backend != "native":
        return (
            f"{_source(run)} chooses backend:{settings.backend}: torch's caching allocator and its expandable segments "
            "are not used"
        )
    if not settings.expandable_segments:
        return f"{_reason(run)}: {_OFF}"
    if settings.max_split_bytes != NO_SPLIT_LIMIT:
        size = settings.max_split_bytes // MIB
        return (
            f"{_source(run)} sets max_split_size_mb:{size} with expandable_segments: reserved memory can grow without "
            "bound"
        )
    return None


def _reason(run: RunSpec) -> str:
    target, kind = run.target, run.origins["allocator"].kind
    if kind == "option":
        return f"--alloc-conf '{run.allocator.settings}' does not turn expandable segments on"
    variable = _variable(run)
    if variable is not None:
        wins = f" and overrides what {run.trainer_title} sets" if target.launcher != "module" else ""
        return f"{variable}='{run.allocator.settings}' in the environment does not turn expandable segments on{wins}"
    if GENERIC_VARIABLE in _environment(run):
        whose = "is set" if GENERIC_VARIABLE in target.alloc_env else f"{run.trainer_title} sets for it"
        return f"torch {_version(target)} ignores {GENERIC_VARIABLE} for CUDA, the only variable that {whose}"
    if target.launcher == "module":
        return f"the launcher bypasses the {run.trainer_title} command, and nothing else sets the allocator variable"
    return f"{run.trainer_title} sets no allocator variable for torch {_version(target)}"


def _source(run: RunSpec) -> str:
    return "--alloc-conf" if run.origins["allocator"].kind == "option" else _variable(run) or "the environment"


def _line(run: RunSpec) -> str:
    """Return the shell line that works.

    torch reads the CUDA variable first, so it overrides one that is already set.
    """
    if run.origins["allocator"].kind == "environment" and _variable(run) != GENERIC_VARIABLE:
        return f"export {CUDA_VARIABLE}={EXPANDABLE}"
    return export_line(run.target.torch)


def _environment(run: RunSpec) -> dict[str, str]:
    """Return the allocator variables inside the training process."""
    return {**run.added_variables, **run.target.alloc_env}


def _variable(run: RunSpec) -> str | None:
    """Return the variable that the CUDA allocator reads its settings from."""
    return effective_settings(run.target.torch, _environment(run))[1]


def _version(target: Target) -> str:
    return f"{target.torch[0]}.{target.torch[1]}"


@rule(
    id="does-not-fit",
    also=(Severity.WARNING,),
    misfit=True,
    needs={"memory"},
    bad=(
        "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\npad_to_sequence_len: true\nmicro_batch_size: 1\n"
        "bf16: true\ngradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\npad_to_sequence_len: true\nmicro_batch_size: 1\n"
        "bf16: true\ngradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
        "adapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
    ),
    options="--gpu rtx-4090",
    beyond_trainer="The trainer does not check memory; vramwise simulates the run, and it runs out of memory.",
)
def does_not_fit(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The run is predicted to run out of memory on this card.

    Every allocation of the run is simulated with its allocator settings. The finding appears when a request fails even
    after all cached blocks are released. The message names the step and phase.

    If row lengths depend on the data and are unknown, the run is simulated with full rows and, where they nearly fill
    the card, with drawn sequences of mixed ones, which may reserve more: blocks cached for short rows do not hold
    longer ones. If shorter rows would fit, the finding is a warning that names the longest row that fits; use `--data`
    to read the lengths.

    `vramwise predict` shows what uses the memory and, with `--what-if`, the effect of a change. These changes keep the
    training result: a smaller micro-batch with more accumulation, gradient checkpointing, a loss kernel that does not
    hold the logits (Liger's fused linear cross entropy, cut cross entropy), evaluation at the micro-batch, expandable
    segments. These change it: an adapter, a quantised base, an 8-bit optimizer, a shorter sequence.
    """
    failure = memory.out_of_memory if memory else None
    if memory is None or run.target.gpu is None:
        return
    if failure is None:
        yield from _mixed(run, memory, run.target.gpu.name)
        return
    where = f"step {failure.step}, {failure.phase}" if failure.step else failure.phase
    yield Hit(
        field="base_model",
        message=(
            f"predicted out of memory on {run.target.gpu.name} in {where}: {gib(failure.allocated_bytes)} allocated "
            f"and {gib(failure.reserved_bytes)} reserved of {gib(memory.capacity_bytes or 0)} when "
            f"{readable(failure.requested_bytes)} more are requested ({failure.label})"
        ),
    )


def _mixed(run: RunSpec, memory: MemoryReport, card: str) -> Iterator[Hit]:
    """Yield a warning if full rows fit, but mixed ones may not."""
    if memory.mixed_rows_bytes > (memory.capacity_bytes or 0) > 0:
        most = f"{gib(memory.mixed_rows_bytes)} of {gib(memory.capacity_bytes or 0)} on {card}"
        yield Hit(
            field="sequence_len",
            severity=Severity.WARNING,
            message=f"rows of mixed lengths up to {run.shapes.sequence_len} tokens are predicted to reserve {most}",
        )


@rule(
    id="tight-fit",
    severity=Severity.WARNING,
    lighter_at_full_rows=True,
    needs={"memory"},
    bad=(
        "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\npad_to_sequence_len: true\nmicro_batch_size: 3\n"
        "bf16: true\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
        "lora_mlp_kernel: false\nattn_implementation: flash_attention_2\n"
    ),
    good=(
        "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\npad_to_sequence_len: true\nmicro_batch_size: 1\n"
        "bf16: true\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
        "attn_implementation: flash_attention_2\n"
    ),
    options="--gpu 26GB",
    beyond_trainer="The trainer does not check memory.",
)
def tight_fit(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The run is predicted to fit, with almost nothing to spare.

    Less than 5 % of the card is free at the peak, or the run fits only because the allocator releases cached blocks
    and retries, which costs time. A desktop, another process or a longer sample can use that much, and the prediction
    itself has an error. Lower the micro-batch and raise accumulation, or save memory elsewhere.

    If row lengths depend on the data and are unknown, every row is assumed to be full. With expandable segments the
    run fits even then, and shorter rows leave more room, so the finding is only a note. Use `--data` to read the
    lengths. Rows with images have no such bound, so they get a warning.
    """
    if memory is None or not is_tight(memory) or not memory.capacity_bytes:
        return
    if memory.mixed_rows_bytes > memory.capacity_bytes:  # which is worse, and has its own finding
        return
    spare = memory.capacity_bytes - memory.highest_reserved_bytes
    if memory.retries:
        yield Hit(
            field="micro_batch_size",
            message=(
                f"predicted to fit in {gib(memory.capacity_bytes)} only by releasing cached blocks ({memory.retries} "
                "retries): each costs time, and with slightly more memory the run fails"
            ),
        )
    else:
        yield Hit(
            field="micro_batch_size",
            message=(
                f"predicted to reserve {gib(memory.highest_reserved_bytes)} of {gib(memory.capacity_bytes)}: "
                f"{mib(spare)} to spare, which another process or a longer sample can use up"
            ),
        )
