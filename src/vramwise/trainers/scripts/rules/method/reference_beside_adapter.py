"""reference-beside-adapter"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.scripts.rules.places import at_fact
from vramwise.types import RunSpec, Severity

_HEAD = (
    "import torch\nfrom peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM\n"
    "from trl import DPOConfig, DPOTrainer\n\n"
    'name = "Qwen/Qwen3-0.6B"\nmodel = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)\n'
    'model = get_peft_model(model, LoraConfig(target_modules="all-linear"))\n'
)


@rule(
    id="reference-beside-adapter",
    severity=Severity.WARNING,
    costs_memory=True,
    topic="method",
    figured="yes",
    remedied={"reference": "adapter_off"},
    bad=(
        f"{_HEAD}reference = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)\n"
        "trainer = DPOTrainer(model, reference, args=DPOConfig())\n"
    ),
    good=f"{_HEAD}trainer = DPOTrainer(model, args=DPOConfig())\n",
    beyond_trainer="TRL takes a reference model beside an adapter, although it needs none.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A second full model is loaded as the reference of a model with an adapter.

    DPO and KTO compare the policy with the model before training. With an adapter that is the same model with the
    adapter switched off, which TRL does by itself where no reference is passed. A reference of its own is a second copy
    of all base weights.

    Leave `ref_model` out, or pass `None`. The loss is the same as long as the adapter is a fresh one.
    """
    # Seen in: mzbac/llama2-fine-tune dpo_trainer.py.
    script = run.config.document.script
    if script is not None and run.objective.reference == "model" and run.adapter.kind is not None:
        yield Hit(
            place=at_fact(script, "reference model"),
            message="a reference model is loaded beside an adapter: the base weights are held twice",
        )
