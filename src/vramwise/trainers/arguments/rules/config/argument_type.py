"""argument-type"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, safe, set_key
from vramwise.timeline import MemoryReport
from vramwise.trainers.arguments.trainer import trainer_of
from vramwise.types import Fix, RunSpec, Severity, join_key

_STRATEGIES = ("eval_strategy", "save_strategy", "logging_strategy")


@rule(
    id="argument-type",
    severity=Severity.ERROR,
    unusable=True,
    topic="config",
    bad="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\neval_strategy: no\n",
    good="model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: trl-lib/tldr\nmax_steps: 100\neval_strategy: 'no'\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A value of a type that its argument does not accept.

    Dataclasses do not check values, but their parsers, enumerations and first checks do: an unknown strategy, text
    that is not a number, a missing value in a comparison. The run stops before anything is loaded. Values that still
    work are not reported: quoted numbers that the parser converts, a single name instead of a list.

    In YAML 1.1 an unquoted `no` is false, so `eval_strategy: no` is rejected; write `eval_strategy: "no"`.
    """
    trainer = trainer_of(run)
    errors = trainer.vocabulary_of(run).type_errors(run.config.document.values) if trainer is not None else ()
    for key, sentence in errors:
        yield Hit(key=join_key((key,)), message=f"{sentence}: the run stops", fix=_fix(run, key))


def _fix(run: RunSpec, key: str) -> Fix | None:
    if key in _STRATEGIES and run.config.document.values[key] is False:
        return safe('Quote "no"', set_key(key, "no"))
    return None
