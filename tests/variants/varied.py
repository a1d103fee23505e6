"""Configs that differ in what the axes of a search vary, and a walk over everything that may be chosen about one."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opened import make_target
from vramwise.documents.document import parse_document
from vramwise.documents.edit import apply_edits
from vramwise.opening.subject import Subject, on_target
from vramwise.trainers.registry import trainer_named
from vramwise.types import Change, Document, RunSpec, Severity
from vramwise.variants.axes import Axis, opened
from vramwise.verbs.check import Policy, check_subject

ROOT = Path(__file__).parent.parent.parent
CORPUS = ROOT.parent / "shared" / "corpus" / "axolotl"
LIGER = "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
LORA = "adapter: lora\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n"
SMALL = "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\nmicro_batch_size: 2\ngradient_accumulation_steps: 6\n"
MIXTURE = "base_model: Qwen/Qwen3-30B-A3B\nsequence_len: 1024\nmicro_batch_size: 1\ngradient_accumulation_steps: 4\n"
TEXTS = {
    "bare": "base_model: meta-llama/Llama-3.2-1B\n",
    "full": SMALL + "optimizer: adamw_torch\nbf16: auto\ngradient_checkpointing: true\nval_set_size: 0.1\neval_batch_size: 8\n",
    "packed": SMALL + "sample_packing: true\nattn_implementation: flash_attention_2\noptimizer: adamw_torch_fused\n",
    "eager lora": SMALL + LORA + "attn_implementation: eager\noptimizer: paged_adamw_8bit\npad_to_sequence_len: true # why\n",
    "old flags": SMALL + LORA + "flash_attention: true\ngradient_checkpointing: offload\noptimizer: adamw_8bit\n",
    "offloading": SMALL + "gradient_checkpointing: true\nactivation_offloading: legacy\n",
    "liger": SMALL + LIGER + "liger_rope: true\nliger_swiglu: true # kept\nliger_fused_linear_cross_entropy: true\n",
    "chunked": SMALL + LORA + "chunked_cross_entropy: true\nlora_mlp_kernel: true\nlora_qkv_kernel: false\n",
    "no kernels": SMALL + LORA + "lora_mlp_kernel: false # slow here\nlora_qkv_kernel: false\nlora_o_kernel: false\n",
    "qlora": SMALL + LORA.replace("lora\n", "qlora\n", 1) + "load_in_4bit: true\noptimizer: paged_adamw_32bit\n",
    "8-bit base": SMALL + LORA + "load_in_8bit: true\npad_to_sequence_len: false\n",
    "cut": SMALL + "plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n",
    "selective": SMALL + "gradient_checkpointing: true\nselective_checkpointing:\n  save: [attention]\n",
    "experts": MIXTURE + "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 12\nlora_target_modules: [q_proj, v_proj]\n",
    "whole experts": MIXTURE + "optimizer: adamw_bnb_8bit\n",
    "phi": SMALL.replace("meta-llama/Llama-3.2-1B", "microsoft/Phi-3.5-mini-instruct"),
    "gemma": SMALL.replace("meta-llama/Llama-3.2-1B", "google/gemma-2-2b") + LORA + "attn_implementation: eager\n",
    "dpo": SMALL + LORA + "rl: dpo\n",
    "reward": SMALL + "reward_model: true\n",
    "fsdp": SMALL + "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    "zero": SMALL + "deepspeed: configs/zero1.json\n",
    "batch size": SMALL.replace("gradient_accumulation_steps: 6", "batch_size: 12"),
    "fp16": SMALL + LORA + "fp16: true\nflex_attention: true\n",
}  # fmt: skip
VERSIONS = ("0.18.0", "0.19.0", "0.20.0", "0.21.0")


def subject(
    text: str, *, version: str = "0.21.0", gpu: str = "h100", gpus: int = 1, extra=(), trainer="axolotl"
) -> Subject:
    """A text as a subject on a card."""
    return subject_of(parse_document("config.yml", text.encode()), version, gpu, gpus, extra, trainer)


def subject_of(document: Document, version: str, gpu: str, gpus: int = 1, extra=(), trainer="axolotl") -> Subject:
    """A document as a subject on a card."""
    target = make_target(versions=(f"axolotl=={version}", *extra), gpu=gpu, gpus=gpus)
    return on_target(document, trainer_named(trainer), target)


def sample(count: int) -> list[Path]:
    """The examples, and so many files of the corpus of other people's configs, where that is here."""
    files = sorted(CORPUS.glob("*.y*ml"))
    return [*sorted((ROOT / "examples").glob("**/*.yml")), *files[:: max(1, len(files) // count)]]


@dataclass(frozen=True)
class Step:
    """One choice made: of which axis, and the subject with it."""

    axis: Axis
    change: Change
    after: Subject


def steps(before: Subject, allow=()) -> Iterator[Step]:
    """Every choice that the trainer has words for, made."""
    for axis in opened(allow):
        for change in axis.choices(before.run):
            after = made(before, change)
            if after is not None:
                yield Step(axis, change, after)


def made(before: Subject, change: Change) -> Subject | None:
    """The subject with a change; None where the trainer has no words for it."""
    spelling = before.trainer.spell(before.run, change)
    if spelling is None:
        return None
    after = before.with_document(apply_edits(before.document, spelling.edits)) if spelling.edits else before
    return after.with_run(after.run.changed(**change.fields)) if spelling.command else after


def errors(subject: Subject) -> set[str]:
    """The rules that call the file an error."""
    found = check_subject(subject, Policy()).findings
    return {finding.rule for finding in found if finding.severity is Severity.ERROR}


def held(run: RunSpec, fields) -> dict[str, object]:
    """What the run has in these fields, under one name for what is one thing."""
    return {name: plain(name, run.value(name)) for name in fields}


def plain(name: str, value: object) -> object:
    """One name for one thing: two names of an optimizer; the embeddings' kernel, which has nothing to do here."""
    if name == "fused_lora":
        return frozenset(value) - {"embedding"}
    if name == "liger":
        return frozenset(value)
    return "adamw_bnb_8bit" if value == "adamw_8bit" else value


def reach(subject: Subject, axis: Axis) -> set[frozenset]:
    """The values that an axis can give a run, its present one among them."""
    offered = [change.fields for change in axis.choices(subject.run) if subject.trainer.spell(subject.run, change)]
    names = AXIS_FIELDS[axis.name]
    now = held(subject.run, names)
    wanted = [{name: plain(name, value) for name, value in fields.items() if name in names} for fields in offered]
    return {frozenset(now.items()), *(frozenset((now | fields).items()) for fields in wanted)}


# What an axis decides; fields that only follow (alpha the rank, eval the micro-batch) are left out.
AXIS_FIELDS = {
    "method": ("adapter", "quantization"),
    "sharding": ("sharding",),
    "length": ("sequence_len",),
    "rank": ("lora_r",),
    "targets": ("lora_target_modules",),
    "packing": ("sample_packing",),
    "precision": ("precision",),
    "compile": ("torch_compile",),
    "weights": ("weights_dtype", "trains_in_fp32"),
    "experts": ("expert_quantization",),
    "optimizer": ("optimizer",),
    "batches": ("micro_batch_size", "gradient_accumulation_steps"),
    "evaluation": ("evaluates",),
    "eval-batch": (),
    "checkpointing": ("gradient_checkpointing", "activation_offloading"),
    "attention": ("attn_implementation",),
    "loss": ("loss_kernel",),
    "liger": ("liger",),
    "lora-kernels": ("fused_lora",),
    "padding": ("pad_to_sequence_len",),
    "allocator": ("allocator",),
}
