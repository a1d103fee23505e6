"""KTO: single rows with a label; two passes over mismatched completions for the KL term, then policy and reference.

For logging, the logits of each label's rows are copied, and those of completions once more. A batch with only one label
copies the most, which is common for small batches; completions are assumed to fill their rows.
"""

from __future__ import annotations

from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.preference import PreferenceRun, mean_of_chosen, scored, shifted
from vramwise.ghost.loops.reference import Model
from vramwise.ghost.loops.state import Batch
from vramwise.ghost.tape import Tensor


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
