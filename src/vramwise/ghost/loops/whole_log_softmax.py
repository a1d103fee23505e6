"""Preference training through the log-softmax of all logits: what is held while the reference is asked.

Written after LLaMA-Factory 0.9.5 (train/dpo, train/kto). The policy's logits, in fp32, are kept for the log until the
loss is there; a reference's go with its pass.
"""

from __future__ import annotations

from vramwise.ghost.loops.preference import PreferenceRun, scored, shifted
from vramwise.ghost.loops.reference import Model
from vramwise.ghost.loops.state import Batch
from vramwise.ghost.ops.elementwise import to_float
from vramwise.ghost.ops.logprobs import whole_log_probs
from vramwise.ghost.tape import Tensor


class _WholeRun(PreferenceRun):
    """Logits in fp32, autocast or not, and what is made of them."""

    keys: tuple[str, ...] = ("input_ids", "attention_mask", "labels")

    def _scored(self, model: Model, batch: Batch, padded: bool) -> tuple[Tensor, Tensor]:
        """The logits, and a number of their log-probabilities."""
        t = self.t
        logits = self.logits(model, batch, padded)
        if not self.widens_outputs:
            logits = to_float(t, logits)
        t.mark("logits", "log-softmax of all logits")
        return logits, scored(t, whole_log_probs(t, shifted(t, logits)))


class WholeDpoRun(_WholeRun):
    """Pairs: chosen rows first, rejected ones after them; one pass for both."""

    def forward(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        """The loss; the policy's logits go with this call."""
        logits, loss = self._scored(self.policy, batch, padded)
        if self.run.objective.reference != "none":
            with self.referring():
                self._scored(self.reference, batch, padded)
        del logits
        return loss, None


class WholeKtoRun(_WholeRun):
    """Single rows, and a second pass over mismatched ones, for policy and reference alike.

    The logits are copied out by label: one block where a whole batch has one, as small batches often have, which asks
    more of the allocator than two that share the rows.
    """

    keys = (*_WholeRun.keys, "KL_input_ids", "KL_attention_mask", "KL_labels")

    def forward(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        """The loss; the copies of the policy's logits go with this call."""
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
