"""json-not-read"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.llamafactory.keys import release_of, since
from vramwise.types import START, RunSpec, Severity


@rule(
    id="json-not-read",
    severity=Severity.ERROR,
    topic="config",
    bad='{"model_name_or_path": "Qwen/Qwen3-4B", "stage": "sft", "do_train": true, "finetuning_type": "lora"}\n',
    good="model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """LLaMA-Factory 0.9.5 cannot read training files in JSON.

    `llamafactory-cli train file.json` of 0.9.5 passes the path itself to `json.load`, which expects an open file, and
    stops with `'PosixPath' object has no attribute 'read'`. 0.9.4 reads them. Save the same content as .yaml: JSON is
    valid YAML.
    """
    if run.config.document.path.endswith(".json") and since(run.target.stack, 0, 9, 5):
        message = f"LLaMA-Factory {release_of(run)} cannot read JSON files: save it as .yaml"
        yield Hit(place=START, message=message)
