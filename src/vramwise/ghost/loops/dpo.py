"""DPO and its kin (IPO and TRL's other losses): pairs in one batch, the reference's pass after the policy's.

Both models' logits live until the loss is there, because the trainer's log wants their means.
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
    """Chosen rows first, rejected ones after them."""

    def train(self, plan: Plan) -> None:
        """The reference's log-probabilities come first where they are wanted beforehand."""
        if self.run.objective.reference_precomputed:
            self._precompute(plan)
        super().train(plan)

    def forward(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        """The loss; the logits go with this call."""
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
        """Over the completions of the chosen rows, which are copied out; taken to be all of the row."""
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
        """One pass over all batches, evaluation's too, before the optimizer has anything: the widest stand for all."""
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
