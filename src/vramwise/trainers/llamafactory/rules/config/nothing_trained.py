"""nothing-trained"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_KEY = "do_train"


@rule(
    id="nothing-trained",
    severity=Severity.ERROR,
    still_runs=True,
    topic="config",
    bad="model_name_or_path: Qwen/Qwen3-4B\nstage: sft\nfinetuning_type: lora\ndataset: identity\ntemplate: qwen3\n",
    good=(
        "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"
        "template: qwen3\n"
    ),
    beyond_trainer="LLaMA-Factory loads the model, finds nothing to do and ends without an error.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """do_train is not on, so nothing is trained.

    `llamafactory-cli train` does what `do_train`, `do_eval` and `do_predict` say, and all three are off unless they are
    written. Without the first it prepares the data, loads the model frozen and ends. Files that only evaluate or
    predict (`do_eval`, `do_predict`) are meant so and not reported.
    """
    if run.config.get(_KEY) or any(run.config.get(key) for key in ("do_eval", "do_predict", "predict_with_generate")):
        return
    written = _KEY in run.config
    edit = set_key(_KEY, True) if written else insert_key(_KEY, True, beside=_beside(run))
    yield Hit(
        key=_KEY,
        message=f"{_KEY} is {'off' if written else 'not written'}: the model is loaded and nothing is trained",
        fix=unsafe("Write do_train: true", edit),
    )


def _beside(run: RunSpec) -> str:
    return next((key for key in ("stage", "finetuning_type") if key in run.config), "model_name_or_path")
