"""What preference trainers share: batches without labels, models under autocast, log-probabilities, references.

Written after TRL 1.9 and 1.14 (`DPOTrainer`, `KTOTrainer`, `GRPOTrainer` and the experimental ORPO and CPO trainers).
Tensors of a number a token, which these trainers make by the dozen, are left out: kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vramwise.ghost.dtypes import FP32, INT64
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.reference import (
    Model,
    adapters_in_bf16,
    built,
    load_model,
    with_adapter_copy,
    without_adapter,
)
from vramwise.ghost.loops.sft import Run
from vramwise.ghost.loops.steps import Batch
from vramwise.ghost.losses import labelled, stock_loss
from vramwise.ghost.model.liger import head_weight
from vramwise.ghost.ops.elementwise import gradient_as, to_float
from vramwise.ghost.ops.logprobs import (
    chunked_log_probs,
    copied_log_probs,
    fused_log_probs,
    selected_log_probs,
    tiled_log_probs,
)
from vramwise.ghost.ops.shape import narrow
from vramwise.ghost.sharding import Sharding
from vramwise.ghost.sharding.fsdp_units import Units
from vramwise.ghost.tape import Tape, Tensor
from vramwise.ghost.weights import Weights
from vramwise.types import ModelSpec, RunSpec


class PreferenceRun(Run):
    """A run whose loss is made of log-probabilities, its own and a reference's."""

    keys: tuple[str, ...] = ("input_ids", "attention_mask", "completion_mask")
    disables_dropout = True
    counts_labels = False  # a batch has none
    casts_adapters = True  # on a quantised base, to bf16

    def __init__(self, t: Tape, run: RunSpec, model: ModelSpec, sharding: Sharding) -> None:
        self.reference_weights: Weights | None = None
        t.without_dropout = self.disables_dropout
        super().__init__(t, run, model, sharding)
        self.policy = Model(self.body, self.head, self.units)
        self.reference = self._reference()
        self.without_logits = run.objective.log_probs in ("chunked", "tiled")
        self.stock = stock_loss(run, model)

    def _reference(self) -> Model:
        if self.reference_weights is None:
            return self.policy
        units = self.policy.units if self.run.objective.reference != "model" else None
        return built(self.reference_weights, units if isinstance(units, Units) else None)

    def load_first(self, model: ModelSpec, sharding: Sharding) -> None:
        """Load a reference that the trainer shards at once: the policy is on the host until training starts."""
        run = self.run
        if run.objective.reference == "model" and run.objective.reference_whole and sharding.fsdp is not None:
            self.reference_weights = load_model(self.t, run, model, sharding, run.objective.reference_dtype)
            self.t.empty_cache()

    def load_more(self, model: ModelSpec, sharding: Sharding) -> None:
        """Load the reference, and a model that is never used and goes before training starts."""
        t, run = self.t, self.run
        spare = load_model(t, run, model, sharding, run.precision.weights_dtype) if run.objective.spare_model else None
        if run.objective.reference == "adapter_copy":  # before the cast, which is for what is trained alone
            self.reference_weights = with_adapter_copy(t, self.weights)
        narrow_adapters = self.casts_adapters and not run.loading.trains_in_fp32
        if run.loading.quantization is not None and run.adapter.kind is not None and narrow_adapters:
            adapters_in_bf16(t, self.weights)
        if run.objective.reference == "model" and self.reference_weights is None:
            self.reference_weights = load_model(t, run, model, sharding, run.objective.reference_dtype)
        elif run.objective.reference == "adapter_off":
            self.reference_weights = without_adapter(self.weights)
        del spare
        t.empty_cache()  # the training loop begins by handing back what is idle

    def batch(self, shape: BatchShape) -> Batch:
        """Return rows as the collator makes them: no labels."""
        self.t.mark("data", "batch")
        others = shape.mismatched or shape.width
        widths = {key: others if key.startswith("KL_") else shape.width for key in self.keys}
        return {key: self.t.new((shape.rows, width), INT64) for key, width in widths.items()}

    def micro_step(self, batch: Batch, padded: bool, step: int, empties: bool = False) -> Tensor:
        """Return one micro-batch; some trainers hand the cache back after each."""
        loss = super().micro_step(batch, padded, step, empties)
        if self.run.objective.empties_cache_each_step:
            self.t.empty_cache()
        return loss

    def hidden(self, model: Model, ids: Tensor, mask: Tensor, padded: bool) -> Tensor:
        """Return the last hidden states of one of the models, within autocast, which the caller leaves."""
        t = self.t
        if model.units is not None:
            model.units.begin_forward(t)
        t.autocast = self.amp
        return model.body(t, ids, mask, padded)

    def leave(self, model: Model) -> None:
        """Autocast ends, and with it its copies of weights."""
        self.t.autocast = None
        if model.units is not None:
            model.units.end_forward()
        self.t.casts.clear()

    def logits(self, model: Model, batch: Batch, padded: bool, keep: int | None = None) -> Tensor:
        """Return the logits, or those of the last `keep` tokens, in fp32 as accelerate hands them out."""
        t = self.t
        hidden = self.hidden(model, batch["input_ids"], batch["attention_mask"], padded)
        if keep is not None:
            hidden = narrow(t, hidden, (hidden.shape[0], keep, hidden.shape[2]))
        self._enter_loss()
        logits = self.stock.logits(t, hidden, model.head)
        del hidden
        self.leave(model)
        if self.widens_outputs:
            t.mark("logits", "logits in fp32")
            logits = to_float(t, logits)
        return logits

    def log_probs(self, logits: Tensor) -> Tensor:
        """Return those of the tokens that follow, one a place."""
        t = self.t
        t.mark("logits", "log-probabilities")
        ways = {"copied": copied_log_probs, "selected": selected_log_probs}
        return ways.get(self.run.objective.log_probs, fused_log_probs)(t, logits)

    def chunked(self, model: Model, batch: Batch, padded: bool) -> Tensor:
        """Log-probabilities without logits, from the hidden states that count: all of them at most."""
        t = self.t
        hidden = self.hidden(model, batch["input_ids"], batch["attention_mask"], padded)
        self._enter_loss()
        t.mark("logits", "log-probabilities, a tile at a time")
        chosen = labelled(t, hidden)
        weight = head_weight(model.head)
        assert weight is not None
        log_probs = tiled_log_probs if self.run.objective.log_probs == "tiled" else chunked_log_probs
        out = log_probs(t, chosen, weight)
        del hidden, chosen
        self.leave(model)
        return out

    def _enter_loss(self) -> None:
        if self.t.training and self.t.grad_enabled:
            self.t.phase("loss", self.step)

    @contextmanager
    def referring(self) -> Iterator[None]:
        """Run what is inside without a graph."""
        t = self.t
        grad, t.grad_enabled = t.grad_enabled, False
        told = grad and t.training
        if told:
            t.phase("reference", self.step)
        yield
        t.grad_enabled = grad
        if told:
            t.phase("loss", self.step)


def shifted(t: Tape, logits: Tensor) -> Tensor:
    """Return all places but the last: a view."""
    rows, tokens, words = logits.shape
    return narrow(t, logits, (rows, tokens - 1, words))


def scored(t: Tape, log_probs: Tensor) -> Tensor:
    """Return a number from the log-probabilities: sums, ratios and a sigmoid, all a few bytes a row."""
    return t.record(t.new((), FP32), gradient_as, (log_probs,), (), (log_probs.shape, log_probs.dtype))


def rows_of(t: Tape, logits: Tensor, rows: int) -> Tensor:
    """Return the first so many rows: a view."""
    return narrow(t, logits, (rows, *logits.shape[1:]))


def mean_of_chosen(t: Tape, logits: Tensor, rows: int) -> None:
    """`logits[mask].mean(-1).sum()` over rows that count whole: the tokens in question are copied out first."""
    t.mark("logits", "logits of completions for the log")
    tokens = rows * logits.shape[1]
    picked = t.new((tokens, logits.shape[2]), logits.dtype)
    means = t.new((tokens,), logits.dtype)
    del means
    del picked
