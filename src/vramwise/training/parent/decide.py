"""Decides the allocator variable, dtypes, batch and shapes before the first step, with reasons. Pure.

The allocator variable is the one that this torch version reads, and never overrides the user's own. Dtypes follow from
the card's compute capability: emulated bf16 counts as none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vramwise.allocator.variables import prepared_variables, settings_in_force
from vramwise.errors import VramwiseError
from vramwise.training.plan import Decision
from vramwise.types import RunSpec, Target


def decide_allocator(target: Target, in_file: Mapping[str, str] | None = None) -> tuple[dict[str, str], str, Decision]:
    """Return the variables to set, the settings in force, and why.

    `in_file`: variables that the config itself sets, which override others.
    """
    target = replace(target, alloc_env={**target.alloc_env, **(in_file or {})})
    chosen = prepared_variables(target)
    settings, origin = settings_in_force(target, chosen, "vramwise train")
    if origin.kind == "environment":
        origin = replace(origin, why=f"your own {origin.why.partition(' ')[0]}")
    elif origin.kind == "derived":
        version = f"torch {target.torch[0]}.{target.torch[1]}"
        origin = replace(origin, why=f"{next(iter(chosen))}, which {version} reads")
    decision = Decision(name="allocator", value=settings or "torch's defaults", why=origin.why)
    return chosen, settings, decision


def decide_dtypes(run: RunSpec, *, decides: bool = True) -> tuple[RunSpec, Decision]:
    """Return the run with its dtypes on this machine. `decides`: the engine uses these dtypes."""
    gpu = run.target.gpu
    origin = run.origins["precision"]
    if gpu is None and origin.kind == "assumed" and decides:
        run = run.changed(precision="fp32", weights_dtype="fp32", autocast=False, fp32_embeddings=True)
        return run, Decision(name="dtype", value="fp32", why="bf16 auto, and no GPU here")
    if gpu is None and run.precision.compute == "fp16" and run.precision.autocast:
        raise VramwiseError("fp16 needs a GPU, and there is none here: use bf16 or fp32")
    value = f"{run.precision.compute}, weights {run.precision.weights_dtype}" + (
        ", autocast" if run.precision.autocast else ""
    )
    return run, Decision(name="dtype", value=value, why=origin.why)


def as_loaded(run: RunSpec, *, random_weights: bool) -> RunSpec:
    """Return the run with the way its weights are loaded: random ones are created on the card, unless quantised."""
    return run.changed(loads_through="made") if random_weights and run.loading.quantization is None else run


def decide_batch(run: RunSpec) -> Decision:
    """Return the batch arithmetic."""
    micro, accumulation, ranks = (
        run.batch.micro_batch_size,
        run.batch.gradient_accumulation_steps,
        run.batch.data_parallel,
    )
    value = f"micro {micro} × accumulation {accumulation} × ranks {ranks} = {run.batch.effective_batch_size}"
    return Decision(name="batch", value=value, why="stays at every restart; only micro against accumulation may change")


def decide_eval(run: RunSpec) -> Decision:
    """Return the batch of an evaluation."""
    if run.evaluation.eval_batch_size is None:
        return Decision(name="eval", value="none", why=run.origins["evaluates"].why)
    value = f"batch {run.evaluation.eval_batch_size}"
    if run.evaluation.eval_batch_size > run.batch.micro_batch_size:
        return Decision(name="eval", value=value, why=f"as written; larger than micro {run.batch.micro_batch_size}")
    return Decision(name="eval", value=value, why=run.origins["eval_batch_size"].why)


def decide_shapes(run: RunSpec) -> Decision:
    """Return whether every batch has the same shape."""
    if run.shapes.constant_shapes:
        kind = "packed rows" if run.shapes.sample_packing else "rows"
        length = run.keys.get("sequence_len", "sequence_len")
        return Decision(
            name="shapes", value=f"constant, {kind} of {run.shapes.pad_multiple}", why=f"padded to {length}"
        )
    key = "pad_to_sequence_len"
    off = f"{key} is off: " if run.keys.get(key, key) == key else ""  # a key that not every trainer has
    return Decision(name="shapes", value=f"vary, up to {run.shapes.sequence_len}", why=f"{off}widths follow the data")


def worker_environment(allocator: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the worker; the user's own stay, except the allocator's with --alloc-conf."""
    # Waiting threads must sleep: if other programs use the cores too, spinning takes several times as long.
    chosen = {"TOKENIZERS_PARALLELISM": "false", "OMP_WAIT_POLICY": "PASSIVE"}
    return {name: value for name, value in chosen.items() if name not in environ} | dict(allocator)
