"""Training of a model with an encoder and a decoder: the decoder predicts the labels, each token from those before."""

from __future__ import annotations

from vramwise.ghost.dtypes import FP32, INT64
from vramwise.ghost.loops.batches import BatchShape
from vramwise.ghost.loops.sft import Run
from vramwise.ghost.loops.steps import Batch
from vramwise.ghost.model.encoder_decoder import EncoderDecoder
from vramwise.ghost.ops.elementwise import to_float
from vramwise.ghost.ops.loss import log_softmax, nll_loss
from vramwise.ghost.tape import Tensor


class Seq2SeqRun(Run):
    """Rows for the encoder and, shifted by one, labels for the decoder."""

    def batch(self, shape: BatchShape) -> Batch:
        """Return the encoder's rows and the labels. Spectra stand for the rows of a model of speech."""
        t, body = self.t, self.body
        t.mark("data", "batch")
        assert isinstance(body, EncoderDecoder)
        target = min(self.run.objective.target_len or shape.width, shape.width if body.speech_places else 2**31)
        made: Batch = {}
        if body.speech_places:
            made["input_ids"] = t.new((shape.rows, *body.speech_places), FP32)
        else:
            for key in ("input_ids", "attention_mask"):
                made[key] = t.new((shape.rows, shape.width), INT64)
        made["labels"] = t.new((shape.rows, target), INT64)
        return made

    def _model(self, batch: Batch, padded: bool) -> tuple[Tensor, Tensor | None]:
        t, body = self.t, self.body
        assert isinstance(body, EncoderDecoder)
        given = batch["input_ids"]
        hidden = body.both(t, given, batch.get("attention_mask", given), padded, batch["labels"])
        if t.training:
            t.phase("loss", self.step)
        t.mark("logits", "logits")
        logits = self.head(t, hidden)
        del hidden
        loss = nll_loss(t, log_softmax(t, to_float(t, logits)), batch["labels"])
        return loss, logits
