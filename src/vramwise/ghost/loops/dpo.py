"""DPO and similar losses (IPO and TRL's others): pairs in one batch, the reference's pass after the policy's.

Both models' logits live until the loss is computed, because the trainer logs their means.
"""

from __future__ import annotations

from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.preference import PreferenceRun, mean_of_chosen, rows_of, scored, shifted
from vramwise.ghost.loops.reference import Model
from vramwise.ghost.loops.state import Batch
from vramwise.ghost.loops.steps import Plan
from vramwise.ghost.ops.elementwise import add
from vramwise.ghost.ops.loss import log_softmax, nll_loss
from vramwise.ghost.ops.shape import indexed
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
