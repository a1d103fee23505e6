"""ORPO and CPO (SimPO): pairs, no reference; a cross entropy over the chosen rows besides the log-probabilities."""

from __future__ import annotations

from vramwise.ghost.loops.preference import PreferenceRun, rows_of, scored, shifted
from vramwise.ghost.loops.state import Batch
from vramwise.ghost.ops.elementwise import add
from vramwise.ghost.ops.loss import log_softmax, nll_loss
from vramwise.ghost.ops.shape import contiguous, view
from vramwise.ghost.tape import Tensor


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
