"""The phases of a run: load, then steps of forward, loss, backward, clip, optimizer; evaluations in between.

Written after transformers' `Trainer` (5.17) and accelerate (1.15): what is a local variable there is one here, because
that decides when the last batch, the last loss and the last gradient norm go.

Nothing here knows what makes it fast: `shortcuts` wraps the steps and the micro-steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from vramwise.errors import VramwiseError
from vramwise.ghost.build import Builder
from vramwise.ghost.compiled import CompiledModel
from vramwise.ghost.dtypes import BOOL, BY_NAME, FP32, INT64, DType
from vramwise.ghost.engine import backward
from vramwise.ghost.hardware import Hardware, hardware_of
from vramwise.ghost.loading import load
from vramwise.ghost.loading.casts import widen_trained
from vramwise.ghost.loops.assumptions import assumptions
from vramwise.ghost.loops.batches import BatchShape, Widths, labels_in
from vramwise.ghost.loops.reference import adapters_in_bf16
from vramwise.ghost.loops.steps import Batch, LoopState, MicroStep, Plan, Step, make_plan
from vramwise.ghost.losses import Loss, make_loss
from vramwise.ghost.offload import inputs_offload_of, offload_of, unsloth_input_offload_of
from vramwise.ghost.ops.elementwise import scale, scale_in_place, to_float, without_node
from vramwise.ghost.ops.reduce import sum_all
from vramwise.ghost.optimizers import make_optimizer
from vramwise.ghost.optimizers.block import BlockAdam
from vramwise.ghost.sharding import Sharding
from vramwise.ghost.sharding.ddp import rebuild_buckets, wrap
from vramwise.ghost.shortcuts import Plainly
from vramwise.ghost.tape import Parameter, Storage, Tape, Tensor
from vramwise.ghost.trainer_losses import WEIGHTED
from vramwise.ghost.weights import freeze_blocks, freeze_except
from vramwise.ghost.work_optimizers import list_clipping, list_update
from vramwise.limits.garbage_collection import uncollected
from vramwise.models.compiled import compiled_program
from vramwise.timeline import Timeline
from vramwise.types import GpuSpec, ModelSpec, RunSpec

# elements per block of a multi-tensor kernel
_CHUNK = 65536


def clip_grad_norm(t: Tape, parameters: list[Parameter]) -> Tensor | None:
    """`clip_grad_norm_`: returns the total norm, which the trainer keeps until the next step."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not grads:
        return None
    by_dtype: dict[DType, list[Tensor]] = {}
    for grad in grads:
        by_dtype.setdefault(grad.dtype, []).append(grad)
    norms: list[Tensor] = []
    # half precision first: the order in which torch's grouping by type yields them
    for dtype, group in sorted(by_dtype.items(), key=lambda item: item[0].size):
        chunks = max([-(-grad.numel // _CHUNK) for grad in group])
        partial = Storage(t, len(group) * chunks * 4)
        norms += [t.new((), dtype) for _ in group]
        if t.work is not None:
            t.work.no_kernel(*norms)
        del partial
    widest = max([norm.dtype for norm in norms], key=lambda dtype: dtype.size)
    stacked = t.new((len(norms),), widest)
    total = t.new((), widest)
    del stacked
    while norms:
        norms.pop()
    if t.work is not None:
        list_clipping(t.work, parameters)
    with_epsilon = t.like(total)
    inverse = t.like(total)
    factor = t.like(total)
    del inverse
    del with_epsilon
    clamped = t.like(total)
    del factor
    del clamped
    return total


# Of a list that matches nothing so many are named.
_NAMED = 20


def ghost_run(
    run: RunSpec,
    model: ModelSpec,
    *,
    widths: Widths | None = None,
    eval_widths: Widths | None = None,
    steps: int | None = None,
    gpu: GpuSpec | None = None,
    hardware: Hardware | None = None,
    capacity_bytes: int | None = None,
    plainly: bool = False,
) -> tuple[Timeline, tuple[str, ...]]:
    """Return the allocations of a run, and what had to be assumed.

    `widths`, `eval_widths`: one a micro-step, one an evaluation batch, as numbers or `BatchShape`; without them the
    largest that the settings allow. They are gone through again if there are more steps. `steps`: optimizer steps;
    without it enough to reach the steady state. `hardware`: the card's figures where they are not those of `gpu`.
    `capacity_bytes`: what the allocator may reserve, which some trainers go by.
    `plainly`: every step and micro-step by itself; for tests, slow.
    """
    plan = make_plan(run, widths, eval_widths, steps, model.num_hidden_layers)
    with uncollected():
        from vramwise.ghost.loops.kinds import begin  # the kinds of loops build on this one

        card = hardware or hardware_of(gpu, run.target.torch)
        t = Tape(replace(card, capacity_bytes=capacity_bytes))
        under_way = begin(t, run, model, plainly=plainly)
        under_way.train(plan)
        # what the end of this function frees is no part of the run
        timeline = t.timeline()
    return timeline, (*assumptions(run, model, widths, eval_widths), *under_way.weights.said, *plan.said)


class Run:
    """A run under way."""

    shortcuts = Plainly()
    counts_labels = True

    def __init__(self, t: Tape, run: RunSpec, model: ModelSpec, sharding: Sharding) -> None:
        self.t = t
        self.run = run
        self.step = 0
        self.first_pass = True  # no backward pass has begun
        t.phase("load", 0)
        self.load_first(model, sharding)
        self.weights = load(t, model, run, sharding)
        if run.adapter.unfrozen:
            freeze_except(self.weights, run.adapter.unfrozen)
        if run.adapter.trained_blocks is not None:
            freeze_blocks(self.weights, run.adapter.trained_blocks)
        if run.loading.trains_in_fp32:
            widen_trained(t, self.weights)
        self.load_more(model, sharding)
        builder = Builder(self.weights)
        self.units = builder.gathering.exchange
        self.body = builder.body()
        self.head = builder.head()
        self.loss: Loss = make_loss(run, model)
        program = compiled_program(run, model)
        self.compiled = None if program is None else CompiledModel(program, self.weights)
        self.trainable = self.trained()
        if not self.trainable:
            named = run.adapter.unfrozen or (*run.adapter.lora_target_modules, *run.adapter.lora_modules_to_save)
            more = f" and {len(named) - _NAMED:,} more" if len(named) > _NAMED else ""
            wanted = f"{', '.join(named[:_NAMED])}{more}" if named else "lora_target_modules"
            raise VramwiseError(f"nothing would be trained: {model.name} has no module named {wanted}")
        self.buckets = wrap(t, self.weights, self.trainable)
        self.engine = builder.gathering.zero
        if self.engine is not None:
            self.engine.prepare(t, self.trainable)
        self.optimizer = self.engine or make_optimizer(run, self.trainable, self.weights.sharding)
        if isinstance(self.optimizer, BlockAdam):
            self.optimizer.prepare(t)
        # DeepSpeed's engine has cast the model instead
        half = run.precision.half if self.engine is None else None
        amp = half is not None
        self.amp = None if half is None else BY_NAME[half]
        # accelerate wraps the forward pass of a model that it prepares itself; FSDP 2 it leaves to torch
        self.widens_outputs = amp and run.sharding.kind != "fsdp2"
        self.compute = self.amp or BY_NAME[run.precision.weights_dtype]
        t.mark("temporary", "logging")
        self.total_loss = t.new((), FP32)

    def load_first(self, model: ModelSpec, sharding: Sharding) -> None:
        """Load what is on the card before the model."""

    def load_more(self, model: ModelSpec, sharding: Sharding) -> None:
        """Load what follows the model; other kinds of training load more."""
        if self.run.adapter.half_adapters:
            adapters_in_bf16(self.t, self.weights)
            self.t.empty_cache()  # the training loop begins by handing back what is idle

    def trained(self) -> list[Parameter]:
        """Return what the optimizer gets."""
        return self.weights.trainable()

    def train(self, plan: Plan) -> None:
        """Run the epoch loop: steps, and the evaluations after some of them."""
        t, state = self.t, LoopState()
        if 0 in plan.evals:
            self.evaluate(plan.evals[0], 0)
        number = 0
        while number < plan.count:
            number += 1
            if plan.emptying.before_step(number):
                t.empty_cache()
            number = self.shortcuts.step(plan, number, state, partial(self.train_step, plan, number, state))
            if plan.emptying.after_step(number):
                t.empty_cache()
            if number in plan.evals:
                self.evaluate(plan.evals[number], number)
        state.close()

    def train_step(self, plan: Plan, number: int, state: LoopState) -> None:
        """Run one step: forward and backward of its micro-batches, clip, optimizer, zero grad."""
        t = self.t
        t.bound()
        self.step = number
        t.phase("forward", number)
        step = plan.step(number)
        state.samples, state.items = self.samples(step)
        for micro in step.micro_steps():
            state.inputs = state.samples[micro.sample]
            if self.units is not None:
                self.units.exchanging = self.run.sharding.sync_each_batch or micro.last
            empties = plan.emptying.before_backward(number)
            self.shortcuts.micro_step(micro, state, partial(self.train_micro_step, micro, state, empties))
        t.phase("clip", number)
        t.mark("temporary", "gradient norm")
        state.grad_norm = None
        if self.run.optimizer.max_grad_norm > 0 and self.engine is None:
            state.grad_norm = clip_grad_norm(t, self.trainable)
        self.update(number)
        t.bound()

    def train_micro_step(self, micro: MicroStep, state: LoopState, empties: bool) -> None:
        """Run one micro-batch: its loss replaces the last one's, and is checked."""
        assert state.inputs is not None
        self.t.bound()
        self.note(micro.shape)
        state.loss = self.micro_step(state.inputs, micro.shape.padded, self.step, empties)
        self._filter(state.loss)
        self.t.bound()

    def update(self, step: int) -> None:
        """Run the optimizer's step, and free the gradients."""
        t = self.t
        t.phase("optimizer", step)
        self.optimizer.step(t)
        if t.work is not None:
            list_update(t.work, self.run, self.trainable)
        for parameter in self.trainable:
            parameter.grad = None
        if step == 1 and self.weights.sharding.buckets:
            rebuild_buckets(t, self.buckets, self.trainable)
        t.mark("temporary", "logging")
        t.new((), FP32)

    def batch(self, shape: BatchShape) -> Batch:
        """Return a micro-batch as the collator makes it; some make the mask of packed rows too."""
        self.t.mark("data", "batch")
        names = ("input_ids", "attention_mask", "labels")
        made: Batch = {key: self.t.new((shape.rows, shape.width), INT64) for key in names}
        packed = self.run.shapes.packing_rows == "micro" if self.t.training else self.run.evaluation.eval_sample_packing
        if packed and self.run.shapes.packed_mask == "batch":
            made["attention_mask"] = self.t.new((shape.rows, 1, shape.width, shape.width), self.compute)
        return made

    def count(self, batches: list[Batch]) -> Tensor | None:
        """Return how many labels count in all micro-batches of a step; None if they are not counted."""
        if not self.counts_labels:
            return None
        t = self.t
        t.mark("data", "number of labels")
        total: Tensor | None = None
        for batch in batches:
            rows, width = batch["labels"].shape
            counted = sum_all(t, t.new((rows, width - 1), BOOL))
            total = t.like(counted)  # 0 + first, then total + next
            del counted
        assert total is not None
        return total

    def samples(self, step: Step) -> tuple[list[Batch], Tensor | None]:
        """Return micro-batches of a step: all are fetched before the first one runs; those held together come first."""
        batches = [self.batch(shape) for shape in step.held]
        items = self.count(batches)
        self.t.mark("data", "batch")
        rest: list[Batch] = [{"rest": self.t.new((size,), BOOL)} for size in step.rest_pieces()]
        return [*rest, *batches], items

    def note(self, shape: BatchShape) -> None:
        """Note what the next batch is like, beyond its width."""
        self.t.real_tokens, self.t.labelled, self.t.samples = shape.tokens, labels_in(shape), shape.samples

    def forward(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        """Return loss and logits of the model under autocast, in fp32 as accelerate hands them out."""
        t = self.t
        if self.units is not None:
            self.units.begin_forward(t)
        t.autocast = self.amp
        loss, logits = self._model(batch, padded)
        t.autocast = None
        if self.units is not None:
            self.units.end_forward()
        if not t.grad_enabled:
            t.graph_holds.clear()
        t.casts.clear()
        if self.widens_outputs and logits is not None:
            t.mark("logits", "logits in fp32")
            logits = to_float(t, logits)
        weighted = WEIGHTED.get(self.run.kernels.loss_kernel)
        if weighted is not None and logits is not None:
            loss = logits
            t.mark("logits", "the trainer's own loss of the logits")
            loss = weighted(t, logits, batch["labels"])
        return loss, logits

    def _model(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        t = self.t
        if self.compiled is not None and t.training:
            return self.compiled(t, batch["input_ids"])
        hidden = self.body(t, batch["input_ids"], batch["attention_mask"], padded)
        if t.training:
            t.phase("loss", self.step)
        return self.loss(t, hidden, self.head, batch["labels"])

    def micro_step(self, batch: Batch, padded: bool, step: int, empties: bool = False) -> Tensor:
        """Forward and backward of one micro-batch; returns the loss without its graph."""
        t = self.t
        self.step = step
        t.phase("forward", step)
        t.checkpoint_frame = inputs_offload_of(t, self.run) or unsloth_input_offload_of(
            t, self.run, first=self.first_pass
        )
        t.frame = offload = offload_of(t, self.run)
        if offload is not None:
            t.empty_cache()  # entering it does
        loss = scale_in_place(t, self.forward(batch, padded)[0])
        if empties:
            t.empty_cache()
        t.phase("backward", step)
        t.mark("temporary", "backward")
        scaled = scale(t, loss)
        root = t.new((), FP32)
        root.holders = 1  # this function
        t.in_backward = True
        t.grad_enabled = False
        if scaled.node is None:
            raise VramwiseError("no parameter is trained: the loss has no gradient, and the first step fails")
        if self.units is not None:
            self.units.begin_backward(t)
        self.first_pass = False
        backward(t, scaled.node, root)
        if self.units is not None:
            self.units.end_backward(t)
        if offload is not None:
            offload.close()
        t.frame = t.checkpoint_frame = None
        t.grad_enabled = True
        t.in_backward = False
        del root
        del scaled
        t.graph_holds.clear()
        return without_node(loss)

    def _filter(self, loss: Tensor) -> None:
        """Check for infinite losses."""
        t = self.t
        t.new((), BOOL)
        absolute = t.like(loss)
        flag = t.new((), BOOL)
        if t.work is not None:
            t.work.sync()
        del absolute
        del flag

    def evaluate(self, shapes: Sequence[BatchShape], step: int) -> None:
        """Run the evaluation loop: losses only, no graph; the losses pile up on the device."""
        t = self.t
        t.phase("eval", step)
        t.grad_enabled = t.training = False
        losses: Tensor | None = None
        found: Tensor | None = None
        inputs: Batch | None = None
        fetched: Batch | None = None
        for number, shape in enumerate(shapes, 1):
            fetched = inputs = self.batch(shape)
            self.note(shape)
            mean = self.predict(inputs, shape)
            found = t.new((shape.rows,), FP32)  # the mean, once for every row
            del mean
            losses = found if losses is None else t.new((losses.numel + found.numel,), FP32)
            if self.run.evaluation.eval_empties_every and number % self.run.evaluation.eval_empties_every == 0:
                losses = found = inputs = None  # the data loader still holds the batch
                t.empty_cache()
                fetched = None
        t.grad_enabled = t.training = True
        if self.units is not None:
            self.units.end_evaluation()
        t.new((losses.numel if losses is not None else 1,), FP32)
        del losses, inputs, fetched, found

    def predict(self, batch: Batch, shape: BatchShape) -> Tensor:
        """Return the mean loss of one evaluation batch."""
        t = self.t
        items = self.count([batch])
        loss, logits = self.forward(batch, shape.padded)
        mean = t.like(loss)
        del items
        del loss
        del logits
        return mean
