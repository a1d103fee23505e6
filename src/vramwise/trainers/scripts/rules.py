"""Rules for Python scripts: how they load a model, and arguments that their library no longer takes."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule
from vramwise.timeline import MemoryReport
from vramwise.trainers.scripts.calls import UNKNOWN_FLAG
from vramwise.types import Place, RunSpec, Script, Severity
from vramwise.variants import changes

_ARGUMENT = "trainer argument "
_TRL = "from trl import SFTConfig, SFTTrainer\n\n"
# The release that removed them; before, they were deprecated (TRL 0.9 to 0.12).
_GONE = "0.13"


@rule(
    id="moved-argument",
    also=(Severity.WARNING,),
    topic="config",
    options="--with trl==1.16.0",
    bad=f'{_TRL}trainer = SFTTrainer("Qwen/Qwen3-0.6B", args=SFTConfig(), max_seq_length=2048, packing=True)\n',
    good=f'{_TRL}trainer = SFTTrainer("Qwen/Qwen3-0.6B", args=SFTConfig(max_length=2048, packing=True))\n',
)
def moved_argument(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An argument is passed to the trainer that belongs into its config since TRL 0.13.

    Up to TRL 0.12 the trainers took `max_seq_length`, `packing`, `dataset_text_field`, `beta`, `max_length` and their
    kin themselves. Since 0.13 the call stops with `TypeError: … got an unexpected keyword argument`.

    Pass them to `SFTConfig`, `DPOConfig`…, where `max_seq_length` is called `max_length` since TRL 0.20. A script that
    needs an old release should pin it: vramwise reads `pip install trl==0.12.2` in notebooks, the
    requirements, `pyproject.toml` and lock files of the repository, and `--with`.
    """
    # Seen in: vitali87/llm-shell train_ms_swift.py (SFTTrainer), mzbac/llama2-fine-tune dpo_trainer.py (DPOTrainer).
    script = run.config.document.script
    if script is None or "unsloth" in script.facts:  # Unsloth's trainers still accept them
        return
    release = run.target.stack.releases.get("trl")
    if release is None:
        return
    assumed, dated = release.origin.kind == "assumed", run.target.stack.older_than("trl", _GONE)
    if dated and not assumed:
        return
    for fact in script.facts:
        if fact.startswith(_ARGUMENT):
            name = fact.removeprefix(_ARGUMENT)
            end = f"; TRL {release.version} is assumed, no version is pinned" if assumed and not dated else ""
            yield Hit(
                place=_at_fact(script, fact),
                message=f"{name} is passed to the trainer: TRL 0.13 and later stop with a TypeError{end}",
                severity=Severity.WARNING if assumed else None,
            )


_FLAGS = (
    "import argparse\nfrom trl import SFTConfig, SFTTrainer\n\nparser = argparse.ArgumentParser()\n"
    'parser.add_argument("--batch-size", type=int, default=8)\nargs = parser.parse_args(["--BATCH", "1"])\n'
    'trainer = SFTTrainer("Qwen/Qwen3-0.6B", args=SFTConfig(per_device_train_batch_size=args.batch_size))\n'
)


@rule(
    id="unknown-flag",
    topic="config",
    bad=_FLAGS.replace("BATCH", "batchsize"),
    good=_FLAGS.replace("BATCH", "batch-size"),
)
def unknown_flag(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """A command passes a flag that the script does not have, so argparse stops it.

    The flags of a script are those that its `add_argument` calls add. argparse takes a shortened flag if only one flag
    begins with it, and stops at any other: `error: unrecognized arguments`.

    Nothing is reported if the script has another parser, or passes its parser to a function of another package.
    """
    script = run.config.document.script
    for fact in script.facts if script is not None else ():
        if fact.startswith(UNKNOWN_FLAG) and script is not None:
            name = fact.removeprefix(UNKNOWN_FLAG)
            yield Hit(place=_at_fact(script, fact), message=f"the script has no flag {name}")


_LOADED = (
    "import torch\nfrom peft import LoraConfig, get_peft_model\n"
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\n"
)
_TRAINED = (
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
    bad=f'{_LOADED}model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")\n{_TRAINED}',
    good=f'{_LOADED}model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", dtype=torch.bfloat16)\n{_TRAINED}',
    beyond_trainer="A default of transformers 4: weights are loaded in fp32 whatever the checkpoint holds.",
)
def dtype_not_passed(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
            place=_at_fact(script, "no dtype"),
            message="no dtype is passed to from_pretrained: transformers 4 loads 4 bytes a parameter",
            change=changes.load_in_bf16(run),
            severity=None if run.adapter.kind else Severity.INFO,
        )


_DPO = (
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
        f"{_DPO}reference = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)\n"
        "trainer = DPOTrainer(model, reference, args=DPOConfig())\n"
    ),
    good=f"{_DPO}trainer = DPOTrainer(model, args=DPOConfig())\n",
    beyond_trainer="TRL takes a reference model beside an adapter, although it needs none.",
)
def reference_beside_adapter(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
            place=_at_fact(script, "reference model"),
            message="a reference model is loaded beside an adapter: the base weights are held twice",
        )


_FOUR_BITS = (
    "import torch\nfrom transformers import AutoModelForCausalLM\nfrom trl import SFTConfig, SFTTrainer\n\n"
    "model = AutoModelForCausalLM.from_pretrained(\n"
)
_TRAINER = ")\ntrainer = SFTTrainer(model, args=SFTConfig())\n"


@rule(
    id="device-map-per-process",
    severity=Severity.WARNING,
    topic="sharding",
    options="--gpus 2",
    bad=f'{_FOUR_BITS}    "Qwen/Qwen3-0.6B", dtype=torch.bfloat16, device_map="auto"\n{_TRAINER}',
    good=f'{_FOUR_BITS}    "Qwen/Qwen3-0.6B", dtype=torch.bfloat16\n{_TRAINER}',
    beyond_trainer="Loading works; what goes wrong depends on how the script is started.",
)
def device_map_per_process(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
            place=_at_fact(script, "device_map spread"),
            message=f'device_map="auto" in each of {run.target.gpus} processes: each spreads a model over all cards',
        )


def _at_fact(script: Script, fact: str) -> Place:
    """Return the line of a fact as a place; that of the trainer's call if it has none."""
    line = script.facts.get(fact, script.line)
    return Place(line=line, column=1, end_line=line, end_column=1)
