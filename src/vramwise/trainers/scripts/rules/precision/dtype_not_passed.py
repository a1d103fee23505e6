"""dtype-not-passed"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.scripts.rules.places import at_fact
from vramwise.types import RunSpec, Severity
from vramwise.variants import changes

_HEAD = (
    "import torch\nfrom peft import LoraConfig, get_peft_model\n"
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\n"
)
_TAIL = (
    'model = get_peft_model(model, LoraConfig(target_modules="all-linear"))\n'
    'trainer = Trainer(model, TrainingArguments("out", bf16=True))\n'
)


@rule(
    id="dtype-not-passed",
    severity=Severity.WARNING,
    also=(Severity.INFO,),
    costs_memory=True,
    topic="precision",
    options="--with transformers==4.57.1",
    bad=f'{_HEAD}model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")\n{_TAIL}',
    good=f'{_HEAD}model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", dtype=torch.bfloat16)\n{_TAIL}',
    beyond_trainer="A default of transformers 4: weights are loaded in fp32 whatever the checkpoint holds.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`from_pretrained` gets no dtype, so transformers 4 loads the weights in fp32.

    Before transformers 5 a model is loaded in fp32 unless `dtype` (before 4.56: `torch_dtype`) says otherwise, also
    where the checkpoint is bf16. `bf16=True` of the arguments is autocast and does not change that: a frozen base takes
    4 bytes a parameter instead of 2.

    With an adapter pass `dtype=torch.bfloat16`. A full fine-tune keeps fp32 weights as its masters this way, which is
    what many want: there the finding only informs.
    """
    # Seen in: huggingface/peft examples/alora_finetuning, tatsu-lab/stanford_alpaca train.py (full).
    script = run.config.document.script
    if script is None or script.kind or "no dtype" not in script.facts:  # of other trainers: fp32-base
        return
    if run.precision.weights_dtype == "fp32" and run.loading.quantization is None:
        yield Hit(
            place=at_fact(script, "no dtype"),
            message="no dtype is passed to from_pretrained: transformers 4 loads 4 bytes a parameter",
            change=changes.load_in_bf16(run),
            severity=None if run.adapter.kind else Severity.INFO,
        )
