"""DPO and similar losses, ORPO and CPO, and KTO.

- DPO (IPO and TRL's others): pairs in one batch, the reference's pass after the policy's. Both models' logits live
  until the loss is computed, because the trainer logs their means.
- ORPO and CPO (SimPO): pairs, no reference; a cross entropy over the chosen rows besides the log-probabilities.
- KTO: single rows with a label; two passes over mismatched completions for the KL term, then policy and reference. For
  logging, the logits of each label's rows are copied, and those of completions once more. A batch with only one label
  copies the most, which is common for small batches; completions are assumed to fill their rows.
- Both through the log-softmax of all logits, as LLaMA-Factory 0.9.5 does (train/dpo, train/kto): the policy's logits,
  in fp32, are kept for logging until the loss is computed; a reference's logits are freed after its pass.
"""

from __future__ import annotations

from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.preference import PreferenceRun, mean_of_chosen, rows_of, scored, shifted
from vramwise.ghost.loops.reference import Model
from vramwise.ghost.loops.steps import Batch, Plan
from vramwise.ghost.ops.elementwise import add, to_float
from vramwise.ghost.ops.logprobs import whole_log_probs
from vramwise.ghost.ops.loss import log_softmax, nll_loss
from vramwise.ghost.ops.shape import contiguous, indexed, view
from vramwise.ghost.tape import Tensor


class DpoRun(PreferenceRun):
    """Pairs: chosen rows first, then rejected ones."""

    def train(self, plan: Plan) -> None:
        """Train; precomputed log-probabilities of the reference come first."""
        if self.run.objective.reference_precomputed:
            self._precompute(plan)
        super().train(plan)

    def forward(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        """Return the loss; the logits are freed at the end of this call."""
        if self.without_logits:
            return self._without_logits(batch, padded), None
        t = self.t
        logits = self.logits(self.policy, batch, padded)
        following = shifted(t, logits)
        loss = scored(t, self.log_probs(following))
        reference: Tensor | None = None
        if not self.run.objective.reference_precomputed:
            with self.referring():
                reference = self.logits(self.reference, batch, padded)
            self._score_reference(reference)
        half = following.shape[0] // 2
        if half and self.run.objective.chosen_cross_entropy:
            loss = add(t, loss, self._cross_entropy(rows_of(t, following, half), batch))
        if half:
            mean_of_chosen(t, rows_of(t, following, half), half)
            mean_of_chosen(t, rows_of(t, following, half), half)
        del logits, following, reference
        return loss, None

    def _cross_entropy(self, chosen: Tensor, batch: Batch) -> Tensor:
        """Return the cross entropy of the chosen rows' completions, which are copied and assumed to fill the row."""
        t = self.t
        t.mark("logits", "log-softmax of the chosen rows")
        rows, tokens, words = chosen.shape
        picked = indexed(t, chosen, (rows * tokens, words))
        return nll_loss(t, log_softmax(t, picked), batch["input_ids"])

    def _without_logits(self, batch: Batch, padded: bool) -> Tensor:
        loss = scored(self.t, self.chunked(self.policy, batch, padded))
        if not self.run.objective.reference_precomputed:
            with self.referring():
                scored(self.t, self.chunked(self.reference, batch, padded))
        return loss

    def _score_reference(self, logits: Tensor) -> None:
        scored(self.t, self.log_probs(shifted(self.t, logits)))

    def _precompute(self, plan: Plan) -> None:
        """Run the reference before the optimizer exists; the widest batch represents all, also of evaluations."""
        evals = [shapes for shapes in plan.evals.values() if shapes]
        self.t.phase("reference", 0)
        self.t.grad_enabled = False
        for shapes in (plan.step(1).held, *evals[:1]):
            widest = max(shapes, key=lambda shape: shape.rows * shape.width)
            self._precompute_batch(widest)
        self.t.grad_enabled = True

    def _precompute_batch(self, shape: BatchShape) -> None:
        model: Model = self.reference
        batch = self.batch(shape)
        if self.without_logits:
            scored(self.t, self.chunked(model, batch, shape.padded))
        else:
            self._score_reference(self.logits(model, batch, shape.padded))


class OddsRun(PreferenceRun):
    """Pairs: chosen rows first, then rejected ones."""

    keys = ("input_ids", "attention_mask", "labels")
    casts_adapters = False

    def forward(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        """Return the loss; the logits are freed at the end of this call."""
        t = self.t
        logits = self.logits(self.policy, batch, padded)
        chosen_loss: Tensor | None = None
        if self.run.objective.chosen_cross_entropy:
            chosen_loss = self._cross_entropy(rows_of(t, logits, max(1, logits.shape[0] // 2)), batch)
        loss = scored(t, self.log_probs(shifted(t, logits)))
        if chosen_loss is not None:
            loss = add(t, loss, chosen_loss)
        del logits, chosen_loss
        return loss, None

    def _cross_entropy(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the cross entropy of all tokens of the chosen rows; several rows are made contiguous."""
        t = self.t
        t.mark("logits", "log-softmax of the chosen rows")
        logits = shifted(t, logits)
        rows, tokens, words = logits.shape
        if rows > 1:
            logits = contiguous(t, logits)
        flat = view(t, logits, (rows * tokens, words))
        del logits
        loss = nll_loss(t, log_softmax(t, flat), batch["labels"])
        del flat
        return loss


class KtoRun(PreferenceRun):
    """Mismatched completions are assumed to be as long as the others."""

    keys = (
        *("input_ids", "attention_mask", "completion_mask"),
        *("KL_input_ids", "KL_attention_mask", "KL_completion_mask"),
    )

    def note(self, shape: BatchShape) -> None:
        """Note the shape; mismatched rows have their own number of labels."""
        super().note(shape)
        self.mismatched_labelled = shape.mismatched_labelled

    def forward(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        """Return the loss; the logits are freed at the end of this call."""
        t = self.t
        with self.referring():
            self._mismatched(self.policy, batch, padded)
        if self.without_logits:
            return self._without_logits(batch, padded), None
        logits = self.logits(self.policy, batch, padded)
        following = shifted(t, logits)
        loss = scored(t, self.log_probs(following))
        with self.referring():
            self._mismatched(self.reference, batch, padded)
            reference = self.logits(self.reference, batch, padded)
        scored(t, self.log_probs(shifted(t, reference)))
        t.mark("logits", "logits by label for the log")
        chosen = t.new(following.shape, following.dtype)
        mean_of_chosen(t, chosen, chosen.shape[0])
        del logits, following, reference, chosen
        return loss, None

    def _without_logits(self, batch: Batch, padded: bool) -> Tensor:
        loss = scored(self.t, self.chunked(self.policy, batch, padded))
        if not self.run.objective.reference_precomputed:
            with self.referring():
                self._mismatched(self.reference, batch, padded)
                scored(self.t, self.chunked(self.reference, batch, padded))
        return loss

    def _mismatched(self, model: Model, batch: Batch, padded: bool) -> None:
        kl = {key: batch[f"KL_{key}"] for key in ("input_ids", "attention_mask")}
        if self.without_logits:
            own, self.t.labelled = self.t.labelled, self.mismatched_labelled
            scored(self.t, self.chunked(model, kl, padded))
            self.t.labelled = own
            return
        logits = self.logits(model, kl, padded)
        scored(self.t, self.log_probs(shifted(self.t, logits)))


class _WholeRun(PreferenceRun):
    """Logits in fp32, with or without autocast, and their log-probabilities."""

    keys: tuple[str, ...] = ("input_ids", "attention_mask", "labels")

    def _scored(self, model: Model, batch: Batch, padded: bool) -> tuple[Tensor, Tensor]:
        """Return the logits, and a scalar from their log-probabilities."""
        t = self.t
        logits = self.logits(model, batch, padded)
        if not self.widens_outputs:
            logits = to_float(t, logits)
        t.mark("logits", "log-softmax of all logits")
        return logits, scored(t, whole_log_probs(t, shifted(t, logits)))


class WholeDpoRun(_WholeRun):
    """Pairs: chosen rows first, then rejected ones; one pass for both."""

    def forward(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        """Return the loss; the policy's logits are freed at the end of this call."""
        logits, loss = self._scored(self.policy, batch, padded)
        if self.run.objective.reference != "none":
            with self.referring():
                self._scored(self.reference, batch, padded)
        del logits
        return loss, None


class WholeKtoRun(_WholeRun):
    """Single rows, and a second pass over mismatched ones, for both policy and reference.

    The logits are copied by label: one block if the whole batch has one label, as in many small batches, which needs
    more from the allocator than two that share the rows.
    """

    keys = (*_WholeRun.keys, "KL_input_ids", "KL_attention_mask", "KL_labels")

    def forward(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        """Return the loss; the copies of the policy's logits are freed at the end of this call."""
        by_label, loss = self._both(self.policy, batch, padded)
        with self.referring():
            self._both(self.reference, batch, padded)
        del by_label
        return loss, None

    def _both(self, model: Model, batch: Batch, padded: bool) -> tuple[Tensor, Tensor]:
        t = self.t
        logits, loss = self._scored(model, batch, padded)
        mismatched = {key: batch[f"KL_{key}"] for key in _WholeRun.keys}
        grad, t.grad_enabled = t.grad_enabled, False
        self._scored(model, mismatched, padded)
        t.grad_enabled = grad
        t.mark("logits", "logits by label for the log")
        by_label = t.new(logits.shape, logits.dtype)
        del logits
        return by_label, loss
