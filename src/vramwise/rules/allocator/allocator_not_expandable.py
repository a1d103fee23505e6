"""allocator-not-expandable"""

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
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity, Target
from vramwise.units import MIB
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
    topic="allocator",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\n",
    options="--torch 2.9",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\n",
    good_options="--torch 2.11",
    beyond_trainer=(
        "A trainer that sets the variable does not check whether torch uses it, or whether another variable overrides "
        "it."
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
        wins = f" and overrides what {run.trainer_title} sets" if target.launcher == "cli" else ""
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
