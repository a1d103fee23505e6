"""Preference training through the log-softmax of all logits: what is held during the reference pass.

Follows LLaMA-Factory 0.9.5 (train/dpo, train/kto). The policy's logits, in fp32, are kept for logging until the loss is
computed; a reference's logits are freed after its pass.
"""

from __future__ import annotations

from vramwise.ghost.loops.preference import PreferenceRun, scored, shifted
from vramwise.ghost.loops.reference import Model
from vramwise.ghost.loops.state import Batch
from vramwise.ghost.ops.elementwise import to_float
from vramwise.ghost.ops.logprobs import whole_log_probs
from vramwise.ghost.tape import Tensor


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
