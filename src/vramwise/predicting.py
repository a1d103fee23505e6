"""Predict a run: model and config → ghost run → allocator → will it fit, what takes the memory, when.

The glue of `vramwise predict`. Reads nothing itself; the caller gives the model and the lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vramwise.allocator.repeats import unroll
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.batching import Lengths, eval_shapes, first_and_widest, lists_widths, train_shapes
from vramwise.facts.accuracy import ExpectedError, expected_error
from vramwise.facts.context import outside_bytes
from vramwise.ghost.hardware import taken_for_granted
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.sft import ghost_run
from vramwise.ghost.optimizers import is_measured
from vramwise.timeline import MemoryReport, Timeline
from vramwise.types import GpuSpec, ModelSpec, RunSpec

ENGINES = ("axolotl", "transformers")

# Loading has its own transients, and its cache is emptied before the first step: its peak is told apart from the run's.
LOADING = frozenset({"load"})

# Batches of --lengths to simulate unless told how many: enough for every width to come, and seconds at most.
_MOST_BATCHES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a run will need. `report`: the run on the card (or under the limit); `needs`: with memory to spare."""

    run: RunSpec
    model: ModelSpec
    engine: str
    short_timeline: Timeline
    needs: MemoryReport
    report: MemoryReport
    limit_bytes: int | None
    assumptions: Sequence[str]
    expected_error: ExpectedError

    @property
    def timeline(self) -> Timeline:
        """Every event of the run, one after the other; what repeats is written out."""
        return unroll(self.short_timeline)

    @property
    def gpu(self) -> GpuSpec | None:
        """The card it is meant for."""
        return self.run.target.gpu

    @property
    def capacity_bytes(self) -> int | None:
        """What the allocator may reserve: the card less what lies outside, or the limit if that is lower."""
        room = None if self.gpu is None else self.gpu.memory_bytes - self.report.outside_bytes
        bounds = [bound for bound in (room, self.limit_bytes) if bound is not None]
        return min(bounds, default=None)

    @property
    def fits(self) -> bool | None:
        """Whether it runs; None where no card and no limit is named."""
        if self.capacity_bytes is None:
            return None
        return self.report.out_of_memory is None


def predict_run(
    run: RunSpec,
    model: ModelSpec,
    *,
    engine: str = "axolotl",
    lengths: Lengths | None = None,
    eval_lengths: Lengths | None = None,
    steps: int | None = None,
    limit_bytes: int | None = None,
) -> Prediction:
    """Ghost run and allocator for one resolved config."""
    if engine == "transformers":
        run = as_transformers(run)
    gpu = run.target.gpu
    shapes, evals, shortened = _simulated(run, lengths, eval_lengths, steps)
    timeline, assumed = ghost_run(
        run,
        model,
        engine=engine,
        widths=shapes,
        eval_widths=evals,
        steps=steps or _steps(run, shapes, lengths),
        gpu=gpu,
    )
    settings = parse_settings(run.allocator, run.target.torch)
    outside = outside_bytes(run)
    needs = simulate(timeline, settings, torch=run.target.torch, outside_bytes=outside, apart=LOADING)
    prediction = Prediction(
        run=run,
        model=model,
        engine=engine,
        short_timeline=timeline,
        needs=needs,
        report=needs,
        limit_bytes=limit_bytes,
        assumptions=(*_assumptions(run, model, lengths, eval_lengths), *shortened, *assumed),
        expected_error=expected_error(),
    )
    return _within_capacity(prediction)


def _within_capacity(prediction: Prediction) -> Prediction:
    """Where it does not fit with all caches kept: see whether released caches and retries carry it through."""
    capacity = prediction.capacity_bytes
    if capacity is None or prediction.needs.highest_reserved_bytes <= capacity:
        return prediction
    run = prediction.run
    report = simulate(
        prediction.short_timeline,
        parse_settings(run.allocator, run.target.torch),
        torch=run.target.torch,
        total_bytes=None if prediction.gpu is None else prediction.gpu.memory_bytes,
        limit_bytes=prediction.limit_bytes,
        outside_bytes=prediction.needs.outside_bytes,
        apart=LOADING,
    )
    return replace(prediction, report=report)


def as_transformers(run: RunSpec) -> RunSpec:
    """The same run under transformers' plain Trainer: all weights in the resolved dtype, no kernels of Axolotl's."""
    return replace(run, fp32_embeddings=run.weights_dtype == "fp32", lora_kernels=False, eval_on_start=False)


def _simulated(
    run: RunSpec, lengths: Lengths | None, eval_lengths: Lengths | None, steps: int | None
) -> tuple[list[BatchShape], list[BatchShape], list[str]]:
    """The batches of training and of an evaluation; of long lists the first and the widest, and a word about it."""
    said = []
    train, evals = train_shapes(run, lengths), eval_shapes(run, eval_lengths)
    if steps is None:
        known = len(train)
        train = first_and_widest(train, run.gradient_accumulation_steps, _MOST_BATCHES)
        if len(train) < known:
            said.append(
                f"{len(train)} of {known:,} micro-batches are simulated, the first and the widest: --steps N takes more"
            )
    known = len(evals)
    evals = first_and_widest(evals, 1, _MOST_BATCHES)
    if len(evals) < known:
        said.append(f"{len(evals)} of {known:,} evaluation batches are simulated, the first and the widest")
    return train, evals, said


def _steps(run: RunSpec, shapes: Sequence[object], lengths: Lengths | None) -> int:
    """Enough to reach the steady peak; with lengths, one pass over them."""
    if lengths is None:
        return 3
    return max(3, len(shapes) // run.gradient_accumulation_steps)


def _assumptions(run: RunSpec, model: ModelSpec, lengths: Lengths | None, eval_lengths: Lengths | None) -> list[str]:
    notes = [f"model: {model.name} ({model.source})"]
    notes.append(f"torch {run.target.torch[0]}.{run.target.torch[1]} ({run.target.torch_origin.why})")
    notes.extend(taken_for_granted(run.target.gpu))
    precision = run.origins.get("precision")
    if precision is not None and precision.kind == "assumed":
        notes.append(precision.why)
    if lengths is None and not run.sample_packing:
        notes.append("no --lengths: every row at full sequence_len; shorter rows would add a mask under sdpa")
    if lengths is None and not run.constant_shapes:
        notes.append("widths follow the data: varying ones may reserve more than this, see --lengths")
    for given in (lengths, eval_lengths):
        if given is None:
            continue
        notes.extend(given.assumptions)
        if lists_widths(given.tokens, run.pad_multiple):
            notes.append("the lengths are all rounded: taken for widths of batches, with shorter rows in them")
    unmeasured = ", ".join(_unmeasured(run))
    if unmeasured:
        notes.append(f"outside the expected error, because no recorded run had it: {unmeasured}")
    return notes


def _unmeasured(run: RunSpec) -> Iterator[str]:
    """Parts of this run that follow the libraries' sources alone."""
    if run.gpus > 1:
        yield f"{run.gpus} GPUs ({run.sharding})"
    if run.target.gpu is not None and run.target.gpu.vendor != "nvidia":
        yield run.target.gpu.name
    if run.offload_params or run.offload_optimizer or run.layer_offloading:
        yield "offloading to the host"
    if run.activation_offloading != "off":
        yield "activation_offloading"
    if run.expert_quantization is not None:
        yield "quantize_moe_experts"
    if run.loss_kernel in ("cut", "chunked"):
        yield f"{run.loss_kernel} cross entropy"
    if run.attn_implementation.startswith("flash"):
        yield run.attn_implementation
    if not is_measured(run.optimizer):
        yield run.optimizer


def on_card(prediction: Prediction, gpu: GpuSpec) -> Prediction:
    """The same run on another card: the same requests (card-dependent workspaces aside), another capacity."""
    run = replace(prediction.run, target=replace(prediction.run.target, gpu=gpu))
    moved = replace(prediction, run=run, report=prediction.needs)
    return _within_capacity(moved)
