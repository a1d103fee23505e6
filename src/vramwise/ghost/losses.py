"""Losses: from the last hidden states to a scalar. The stock path holds the logits several times; the others avoid it.

Each takes the model's head and returns (loss, logits or None), and drops its locals as transformers' code does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from vramwise.ghost.dtypes import BOOL, INT64
from vramwise.ghost.model.liger import head_weight, plain_weight
from vramwise.ghost.model.linear import Projection
from vramwise.ghost.ops.elementwise import add_in_place, add_scalar, result_activation, scale, to_float
from vramwise.ghost.ops.liger import cut_loss, fused_linear_loss, in_place_loss
from vramwise.ghost.ops.logprobs import summed, tiled_log_probs
from vramwise.ghost.ops.loss import compiled_cross_entropy, log_softmax, nll_loss
from vramwise.ghost.ops.matmul import autocast_input
from vramwise.ghost.ops.reduce import sum_all
from vramwise.ghost.ops.shape import alias, contiguous, indexed, narrow, split_rows, view
from vramwise.ghost.ops.unsloth_losses import free_budget, unsloth_fused_loss, unsloth_row_loss
from vramwise.ghost.sharding.fsdp_units import LoneHead
from vramwise.ghost.tape import Tape, Tensor
from vramwise.ghost.trainer_losses import WEIGHTED, sliced_loss
from vramwise.models.families import block_of
from vramwise.types import ChunksInPlace, ModelSpec, RunSpec

Loss = Callable[[Tape, Tensor, Projection, Tensor], "tuple[Tensor, Tensor | None]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StockLoss:
    """transformers' ForCausalLMLoss: logits in the model's type, in fp32, and their log-softmax."""

    softcap: bool = False
    scaled: bool = False
    in_fp32: bool = False
    shifts: bool = False

    def __call__(self, t: Tape, hidden: Tensor, head: Projection, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the loss and the logits."""
        logits = self.logits(t, hidden, head)
        loss = cross_entropy(t, logits, labels, shifts=self.shifts)
        return loss, logits

    def logits(self, t: Tape, hidden: Tensor, head: Projection) -> Tensor:
        """Return the head's output, scaled and capped as the model does."""
        t.mark("logits", "logits")
        frame, t.frame = t.frame, None  # what the head saves is never sent elsewhere
        logits = head(t, hidden)
        t.frame = frame
        if self.in_fp32:
            logits = to_float(t, logits)
        if self.scaled:
            logits = scale(t, logits)
        if self.softcap:
            logits = scale(t, logits)
            logits = result_activation(t, logits)
            logits = scale(t, logits)
        return logits


@dataclass(frozen=True, slots=True)
class NoLoss:
    """The model without labels: whoever calls it makes the loss of the logits."""

    stock: StockLoss

    def __call__(self, t: Tape, hidden: Tensor, head: Projection, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """No loss yet (the logits take its place), and the logits."""
        logits = self.stock.logits(t, hidden, head)
        return logits, logits


@dataclass(frozen=True, slots=True)
class InPlaceLoss:
    """Liger's cross entropy without the head: the fp32 logits become their own gradient; or logits as they are."""

    stock: StockLoss
    casts: bool = True

    def __call__(self, t: Tape, hidden: Tensor, head: Projection, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the loss and the logits."""
        logits = self.stock.logits(t, hidden, head)
        loss = self._loss(t, logits, labels)
        return loss, logits

    def _loss(self, t: Tape, logits: Tensor, labels: Tensor) -> Tensor:
        if self.casts:
            t.mark("logits", "logits in fp32 for the loss")
            logits = to_float(t, logits)
        padded, shifted = shift(t, labels)
        loss = in_place_loss(t, logits)
        loss = scale(t, loss)
        del logits, padded, shifted
        return loss


@dataclass(slots=True, eq=False)
class _WithoutLogits:
    """A loss that reads the head's weight, and makes no logits; the stock loss if the head has an adapter."""

    stock: StockLoss
    label: ClassVar[str]
    # whether heads with a bias are read too
    biased: ClassVar[bool] = False

    def __call__(self, t: Tape, hidden: Tensor, head: Projection, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the loss alone."""
        weight = head_weight(head) if self.biased else plain_weight(head)
        if weight is None or not self._applies(t):
            return self.stock(t, hidden, head, labels)
        t.mark("logits", self.label)
        # a unit by itself, which is never called, is not gathered
        read = head.full_tensor(t) if self.biased and isinstance(head, LoneHead) else weight
        return self._loss(t, hidden, read, labels), None

    def _applies(self, t: Tape) -> bool:
        return True

    def _loss(self, t: Tape, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class FusedLinearLoss(_WithoutLogits):
    """Liger's fused linear cross entropy; evaluation takes the stock path."""

    label = "fused linear cross entropy"
    chunks_in_place: ChunksInPlace

    def _applies(self, t: Tape) -> bool:
        return t.training

    def _loss(self, t: Tape, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        batch, tokens = labels.shape
        padded, shifted = shift(t, labels)
        flat = view(t, hidden, (batch * tokens, hidden.shape[-1]))
        loss = fused_linear_loss(t, flat, weight, shifted, self.chunks_in_place)
        loss = scale(t, loss)
        del padded, shifted
        return loss


@dataclass(slots=True, eq=False)
class CutLoss(_WithoutLogits):
    """Cut cross entropy: neither logits nor their gradient are ever held; evaluation too."""

    label = "cut cross entropy"

    def _loss(self, t: Tape, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        padded, shifted = shift(t, labels)
        loss = scale(t, cut_loss(t, autocast_input(t, hidden), autocast_input(t, weight)))
        del padded, shifted
        return loss


@dataclass(slots=True, eq=False)
class TiledLoss(_WithoutLogits):
    """The head and its log-probabilities a tile at a time, in evaluation too: only a sum of them is left."""

    label = "the head, a tile at a time"
    biased = True

    def _loss(self, t: Tape, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        log_probs = tiled_log_probs(t, labelled(t, hidden), weight)
        return scale(t, summed(t, log_probs))


@dataclass(slots=True, eq=False)
class SlicedLoss(_WithoutLogits):
    """The head and its loss for 256 labelled tokens at a time, in evaluation too."""

    label = "the head, a slice of tokens at a time"
    biased = True
    in_fp32: bool

    def _loss(self, t: Tape, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        softcap, scaled = self.stock.softcap, self.stock.scaled
        return sliced_loss(t, hidden, weight, in_fp32=self.in_fp32, softcap=softcap, scaled=scaled)


@dataclass(slots=True, eq=False)
class UnslothLoss(_WithoutLogits):
    """Unsloth's head and loss, some rows at a time, in evaluation too.

    `by_free_memory`: as many rows as half of the free memory holds, which is read once ("capped" or, before Unsloth
    2026.10, "nearest"); "": as `unsloth_row_loss` decides, and only rows with a label.
    """

    label = "the head, some rows at a time"
    by_free_memory: Literal["", "capped", "nearest"]
    budget: int | None = None

    def _loss(self, t: Tape, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        shifted = t.new(labels.shape, INT64)
        rows, tokens, width = hidden.shape
        most = rows * tokens - max(rows, t.samples or 1)
        count = most if t.labelled is None else min(t.labelled, most)
        flat = view(t, hidden, (rows * tokens, width))
        if self.by_free_memory:
            self.budget = self.budget or free_budget(t, capped=self.by_free_memory == "capped")
            loss = unsloth_fused_loss(t, flat, weight, self.budget, nearest=self.by_free_memory == "nearest")
        else:
            loss = unsloth_row_loss(t, flat, weight, max(1, count))
        del shifted
        return loss


def labelled(t: Tape, hidden: Tensor) -> Tensor:
    """Return hidden states of the tokens that have a label, copied out: all but the last of each row, at most."""
    rows, tokens, width = hidden.shape
    mask = t.new((rows, tokens - 1), BOOL)
    most = rows * (tokens - 1)
    count = most if t.labelled is None else max(1, min(t.labelled, most))
    chosen = indexed(t, narrow(t, hidden, (rows, tokens - 1, width)), (count, width))
    del mask
    return chosen


@dataclass(frozen=True, slots=True)
class ChunkedLoss:
    """Cross entropy over slices of every row, in one compiled kernel each: no fp32 logits are ever held.

    Several rows: a slice of them all is not contiguous, so each is copied, all before the first is used.
    """

    stock: StockLoss
    chunks: int

    def __call__(self, t: Tape, hidden: Tensor, head: Projection, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the loss and the logits."""
        logits = self.stock.logits(t, hidden, head)
        loss = self._loss(t, logits, labels)
        return loss, logits

    def _loss(self, t: Tape, logits: Tensor, labels: Tensor) -> Tensor:
        t.mark("logits", "slices of the logits")
        padded, shifted = shift(t, labels)
        counted = sum_all(t, t.new(labels.shape, BOOL))
        targets = [_flat_copy(t, part) for part in split_rows(t, shifted, self.chunks)]
        slices = [_flat_copy(t, part) for part in split_rows(t, logits, self.chunks)]
        t.mark("logits", "cross entropy, a slice at a time")
        total: Tensor | None = None
        for part, target in zip(slices, targets, strict=True):
            loss = compiled_cross_entropy(t, part, target)
            total = add_scalar(t, loss) if total is None else add_in_place(t, total, loss)
        assert total is not None
        total = scale(t, total)
        del padded, shifted, counted
        return total


def _flat_copy(t: Tape, part: Tensor) -> Tensor:
    """`part.reshape(-1, …)` of a slice of rows: a copy, where there are several rows."""
    shape = (part.shape[0] * part.shape[1], *part.shape[2:])
    return view(t, contiguous(t, part) if part.shape[0] > 1 else part, shape)


# Families whose forward pass caps logits: unsloth_zoo's compiler rewrites it in a way that leaves out what else a batch
# holds. For all others the loss gets a flattened batch's lengths too, and takes its older way because of them.
_CAPPED = ("gemma2", "gemma3", "gemma3n", "gemma4")


def _by_free_memory(run: RunSpec, model: ModelSpec) -> Literal["", "capped", "nearest"]:
    if run.kernels.loss_kernel == "room":
        return "nearest"
    fast = model.model_type in run.kernels.fused_layers
    return "" if fast or model.family in _CAPPED or run.shapes.packing_rows == "none" else "capped"


def stock_loss(run: RunSpec, model: ModelSpec) -> StockLoss:
    """transformers' own loss, with the logits that the model makes in this run."""
    block = block_of(model)
    return StockLoss(
        softcap=model.final_logit_softcapping is not None,
        scaled=block.scaled_logits,
        in_fp32=run.kernels.head_in_fp32 or block.wide_logits,
        shifts=run.kernels.shifts_logits,
    )


def make_loss(run: RunSpec, model: ModelSpec) -> Loss:
    """Return the loss that the run's kernel gives."""
    stock = stock_loss(run, model)
    if run.kernels.loss_kernel == "liger_fused_linear":
        return FusedLinearLoss(stock, run.kernels.liger_chunks_in_place)
    if run.kernels.loss_kernel == "liger":
        return InPlaceLoss(stock)
    if run.kernels.loss_kernel == "cut":
        return CutLoss(stock)
    if run.kernels.loss_kernel == "tiled":
        return TiledLoss(stock)
    if run.kernels.loss_kernel in ("slices", "fp32_slices"):
        return SlicedLoss(stock, run.kernels.loss_kernel == "fp32_slices")
    if run.kernels.loss_kernel in ("rows", "room"):
        return UnslothLoss(stock, _by_free_memory(run, model))
    if run.kernels.loss_kernel == "in_place":
        return InPlaceLoss(stock, casts=False)
    if run.kernels.loss_kernel == "chunked":
        return ChunkedLoss(stock, run.kernels.loss_chunks)
    return NoLoss(stock) if run.kernels.loss_kernel in WEIGHTED else stock


def shift(t: Tape, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Labels padded by one on the right, and their view from the second on: a single row is contiguous as it is."""
    batch, tokens = labels.shape
    padded = t.new((batch, tokens + 1), INT64)
    shifted = t.new((batch, tokens), INT64) if batch > 1 else alias(padded, (batch, tokens))
    return padded, shifted


def cross_entropy(t: Tape, logits: Tensor, labels: Tensor, *, shifts: bool = False) -> Tensor:
    """fp32 logits, shifted labels, log-softmax, negative log-likelihood, divided by the number of labels.

    `shifts`: all logits but the last of each row are copied first.
    """
    t.mark("logits", "logits in fp32 for the loss")
    wide = logits = to_float(t, logits)
    if shifts:
        rows, tokens, words = wide.shape
        logits = contiguous(t, narrow(t, wide, (rows, tokens - 1, words)))
    padded, shifted = shift(t, labels)
    t.mark("logits", "log-softmax")
    loss = nll_loss(t, log_softmax(t, logits), shifted)
    loss = scale(t, loss)
    del wide, logits, padded, shifted
    return loss
