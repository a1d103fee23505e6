"""LLaMA-Factory's own rules about the file as a whole: what it refuses, and runs that train nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vramwise.rules.base import Hit, rule, unsafe
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.trainers.llamafactory.keys import release_of, since
from vramwise.trainers.llamafactory.refusals import refusals
from vramwise.trainers.spelling import placed
from vramwise.types import START, RunSpec, Severity


@rule(
    id="json-not-read",
    bad='{"model_name_or_path": "Qwen/Qwen3-4B", "stage": "sft", "do_train": true, "finetuning_type": "lora"}\n',
    good="model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\n",
)
def json_not_read(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """LLaMA-Factory 0.9.5 cannot read training files in JSON.

    `llamafactory-cli train file.json` of 0.9.5 passes the path itself to `json.load`, which expects an open file, and
    stops with `'PosixPath' object has no attribute 'read'`. 0.9.4 reads them. Save the same content as .yaml: JSON is
    valid YAML.
    """
    if run.config.document.path.endswith(".json") and since(run.target.stack, 0, 9, 5):
        message = f"LLaMA-Factory {release_of(run)} cannot read JSON files: save it as .yaml"
        yield Hit(place=START, message=message)


@rule(
    id="refused-by-llamafactory",
    bad=(
        "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: full\nquantization_bit: 4\n"
        "dataset: identity\ntemplate: qwen3\n"
    ),
    good=(
        "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\nquantization_bit: 4\n"
        "dataset: identity\ntemplate: qwen3\n"
    ),
)
def refused_by_llamafactory(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Keys that LLaMA-Factory rejects together, or one without the other.

    `llamafactory-cli train` checks its arguments before it loads anything and stops with a ValueError: a quantised base
    in a full fine-tune, GaLore with LoRA, an evaluation without data, `neat_packing` outside sft, conflicting ZeRO 3
    options, a duplicate key, and about fifty more. The message names the keys, and the reason if known. The list
    follows `get_train_args` of 0.9.4 and 0.9.5, and is compared with its answers on many files.
    """
    for found in run.config.document.duplicates:
        first, last = found.first.line, found.last.line
        message = f"duplicate key '{found.key}' on lines {first} and {last}: LLaMA-Factory rejects the file"
        yield Hit(place=found.last, message=message)
    for refused in refusals(run):
        yield replace(refused, message=f"{refused.message}: LLaMA-Factory rejects the file")


nothing_trained = row(
    id="nothing-trained",
    still_runs=True,
    text="""do_train is not on, so nothing is trained.

    `llamafactory-cli train` follows `do_train`, `do_eval` and `do_predict`; all three are off by default. Without
    `do_train` it prepares the data, loads the frozen model and ends. Files that only evaluate or predict (`do_eval`,
    `do_predict`) are intended that way and not reported.
    """,
    bad="model_name_or_path: Qwen/Qwen3-4B\nstage: sft\nfinetuning_type: lora\ndataset: identity\ntemplate: qwen3\n",
    good="model_name_or_path: Qwen/Qwen3-4B\nstage: sft\ndo_train: true\nfinetuning_type: lora\ndataset: identity\n"
    "template: qwen3\n",
    beyond_trainer="LLaMA-Factory loads the model, finds nothing to do and ends without an error.",
    when=lambda run: (
        not any(run.config.get(key) for key in ("do_train", "do_eval", "do_predict", "predict_with_generate"))
    ),
    key="do_train",
    message=lambda run: (
        f"do_train is {'off' if 'do_train' in run.config else 'not set'}: the model is loaded and nothing is trained"
    ),
    fix=lambda run: unsafe(
        "Set do_train: true",
        placed(run, "do_train", True, ("stage", "finetuning_type"), "model_name_or_path"),
    ),
)

_TEXT = (
    "model_name_or_path: Qwen/Qwen3-4B\nstage: dpo\ndo_train: true\nfinetuning_type: lora\ndataset: dpo_en_demo\n"
    "template: qwen3\n"
)

_TRL = "--with trl==0.24.0"


@rule(
    id="dpo-import-stops",
    also=(Severity.WARNING,),
    bad=_TEXT,
    good=_TEXT,
    options=f"--with transformers==5.6.0 {_TRL}",
    good_options=f"--with transformers==4.57.1 {_TRL}",
    beyond_trainer="LLaMA-Factory accepts the file, loads the model and stops when it imports TRL's trainer.",
)
def dpo_import_stops(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Stage dpo stops when TRL 0.24 is imported with transformers 5.

    TRL up to 0.24 asks transformers whether optional packages are installed. transformers 5 returns a pair, (False,
    None), which counts as true, so TRL imports mergekit. If that is not installed, stage dpo stops after the model is
    loaded, with `No module named 'mergekit'`. LLaMA-Factory 0.9.5 allows no newer TRL, and a fresh installation gets
    both. Seen with these versions on a CPU and in three runs on a card. kto and rm are not affected.

    Install a transformers below 5 that LLaMA-Factory supports (such as 4.57.1). If the versions are only assumed, the
    finding is a warning; set them with `--with transformers==…` or `--stack FILE`.
    """
    stack = run.target.stack
    if run.objective.rl != "dpo" or stack.parts("transformers") < (5,) or not () < stack.parts("trl") <= (0, 24, 0):
        return
    newer, old = stack.releases["transformers"], stack.releases["trl"]
    versions = f"TRL {old.version} and transformers {newer.version}"
    message = f"stage dpo with {versions} stops with No module named 'mergekit', unless that is installed"
    assumed = "assumed" in (newer.origin.kind, old.origin.kind)
    yield Hit(message, "stage", severity=Severity.WARNING if assumed else None)
