"""LLaMA-Factory's own rules about several cards."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.types import RunSpec, Severity

_TEXT = (
    "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"
    "deepspeed: examples/deepspeed/ds_z3_config.json\n"
)


@rule(
    id="deepspeed-without-torchrun",
    severity=Severity.WARNING,
    bad=_TEXT,
    good=_TEXT,
    good_options="--gpus 2",
)
def deepspeed_without_torchrun(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """DeepSpeed on one card needs FORCE_TORCHRUN=1.

    `llamafactory-cli train` starts torchrun by itself where it sees several cards. On one it runs in its own process,
    and a file with `deepspeed` is refused: `Please use FORCE_TORCHRUN=1 to launch DeepSpeed training`. Run
    `FORCE_TORCHRUN=1 llamafactory-cli train file.yaml`; under torchrun the command also switches expandable segments
    on.
    """
    if run.config.get("deepspeed") and run.batch.gpus == 1 and run.target.launcher == "cli":
        message = (
            "deepspeed on one card is rejected unless torchrun starts the run: FORCE_TORCHRUN=1 llamafactory-cli "
            "train …"
        )
        yield Hit(message, "deepspeed")
