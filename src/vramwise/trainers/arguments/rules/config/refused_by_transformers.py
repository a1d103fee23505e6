"""refused-by-transformers"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.arguments.refusals import Held, argument_refusals
from vramwise.trainers.arguments.trainer import trainer_of
from vramwise.types import RunSpec, Severity

_BASE = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\n"


@rule(
    id="refused-by-transformers",
    severity=Severity.ERROR,
    topic="config",
    bad=f"{_BASE}fp16: true\nbf16: true\n",
    good=f"{_BASE}bf16: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Arguments that transformers' TrainingArguments rejects.

    TRL's configs and LLaMA-Factory's training arguments extend TrainingArguments and run its checks before anything is
    loaded: two precisions at once, `load_best_model_at_end` without an evaluation at every save, fractions of steps,
    unknown `fsdp` options. Each finding says what is expected.
    """
    trainer = trainer_of(run)
    if trainer is None:
        return
    for key, sentence in argument_refusals(Held(run, trainer.vocabulary_of(run))):
        yield Hit(key=key, message=f"{sentence}: transformers rejects the arguments")
