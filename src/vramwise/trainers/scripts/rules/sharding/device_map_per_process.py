"""device-map-per-process"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.scripts.rules.places import at_fact
from vramwise.types import RunSpec, Severity

_HEAD = (
    "import torch\nfrom transformers import AutoModelForCausalLM\nfrom trl import SFTConfig, SFTTrainer\n\n"
    "model = AutoModelForCausalLM.from_pretrained(\n"
)
_TAIL = ")\ntrainer = SFTTrainer(model, args=SFTConfig())\n"


@rule(
    id="device-map-per-process",
    severity=Severity.WARNING,
    topic="sharding",
    options="--gpus 2",
    bad=f'{_HEAD}    "Qwen/Qwen3-0.6B", dtype=torch.bfloat16, device_map="auto"\n{_TAIL}',
    good=f'{_HEAD}    "Qwen/Qwen3-0.6B", dtype=torch.bfloat16\n{_TAIL}',
    beyond_trainer="Loading works; what goes wrong depends on how the script is started.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`device_map="auto"` spreads the model over all cards, and every process does so.

    Under `torchrun` or `accelerate launch` each process is meant to hold the model on its own card. With
    `device_map="auto"` every process spreads a copy over all of them: card 0 holds parts of several copies, and
    accelerate stops with `You can't train a model that has been loaded in 8-bit or 4-bit precision on a different
    device` or, without quantisation, `can't train a model that has been loaded with device_map='auto' in any
    distributed mode`.

    Leave `device_map` out, or write `device_map={"": local_rank}`. It is right only for one process that uses several
    cards one after the other, which is slow.
    """
    # Seen in: hwang2006/finetuning-gpt-oss-on-hpc train_unsloth.py ("shard if torchrun").
    script = run.config.document.script
    if script is not None and "device_map spread" in script.facts and run.target.gpus > 1:
        yield Hit(
            place=at_fact(script, "device_map spread"),
            message=f'device_map="auto" in each of {run.target.gpus} processes: each spreads a model over all cards',
        )
