"""Other programs that train: how their commands, files and scripts are recognised, and the plain run they describe.

vramwise does not read them. If a command or file describes a plain fine-tune, its settings are read as arguments of
transformers' Trainer, so that a prediction can be made, and `predict_line` says the same as a command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vramwise.trainers.huggingface.recognise import IDENTITY

# The trainer whose keys describe a plain run.
PLAIN = IDENTITY.name
_MODEL = "model_name_or_path"
_BATCH, _STEPS, _LENGTH = "per_device_train_batch_size", "gradient_accumulation_steps", "max_length"
_RANKS = ("lora_rank", "lora_dim", "lora_dimension", "rank")
LORA_RANKS = frozenset({"lora_r", *_RANKS})
# Names of the same setting in scripts and tools → the name in TrainingArguments, or in a script's own classes.
_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("model", "base_model", "model_id_or_path", "model_id", "model_path", "pretrain"), _MODEL),
    **dict.fromkeys(("pretrained_model_name_or_path", "model_name", "model_type", "hf_model_path"), _MODEL),
    **dict.fromkeys(_RANKS, "lora_r"),
    **dict.fromkeys(("target_modules", "lora_target", "lora_targets"), "lora_target_modules"),
    **dict.fromkeys(("micro_batch_size", "micro_train_batch_size", "batch_size_training"), _BATCH),
    **dict.fromkeys(("model_max_length", "max_seq_length", "max_len", "cutoff_len", "block_size"), _LENGTH),
    **dict.fromkeys(("max_seq_len", "seq_len", "seq_length", "max_source_length"), _LENGTH),
    **dict.fromkeys(("torch_dtype", "dtype"), "dtype"),
    **dict.fromkeys(("attn_impl", "attn_implementation"), "attn_implementation"),
    **dict.fromkeys(("train_batch_size", "per_gpu_train_batch_size"), _BATCH),
    **dict.fromkeys(("accumulation_steps", "grad_accum", "grad_accum_steps", "gradient_accumulation"), _STEPS),
    **dict.fromkeys(("num_epochs", "epochs"), "num_train_epochs"),
    "lr": "learning_rate",
    "evaluation_strategy": "eval_strategy",
    **dict.fromkeys(("enable_activation_checkpointing", "use_gradient_checkpointing"), "gradient_checkpointing"),
}
_USES_LORA = ("use_lora", "lora_enable", "use_peft", "lora", "enable_lora", "lora_training", "use_lora_training")
_METHODS = (
    *("train_type", "tuner_type", "sft_type", "finetuning_type", "training_type", "fine_tune_type", "train_mode"),
    *("adapter_name", "adapter", "peft_type"),
)
_KINDS = frozenset({"lora", "qlora", "full", "freeze", "longlora", "adalora"})
_FOUR_BITS = ("load_in_4bit", "q_lora", "qlora", "use_qlora", "use_4bit", "load_4bit")
_BITS = ("quantization_bit", "quant_bits", "bits")
_TYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "half": "float16"}
_TYPES |= {one: one for one in ("bfloat16", "float16", "float32")}
_ALL = frozenset({"all", "all-linear", "all_linear"})
# A run is described if its model is named, and one of these.
_TELLING = frozenset({_BATCH, _STEPS, _LENGTH, "learning_rate", "num_train_epochs", "max_steps", "lora_r"})
_PEFT_RANK = 8
_STAGE = re.compile(r"(?:default-)?zero-?([0-3])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program that trains. `commands`: patterns of its commands; `packages`: what scripts for it import.

    `keys`: top-level keys of its YAML files, of which all must be there. `defaults`: what a plain run of it has unless
    its options say otherwise; None: its runs are not plain fine-tunes.
    """

    title: str
    commands: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    keys: tuple[frozenset[str], ...] = ()
    defaults: Mapping[str, Any] | None = field(default=None)


def _keys(*listed: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(one.split()) for one in listed)


_SWIFT = {"bf16": True, "gradient_checkpointing": True, _BATCH: 1, "use_peft": True, "lora_r": 8, "dtype": "bfloat16"}
_SWIFT |= {"lora_target_modules": "all-linear", _LENGTH: 2048}
_HALF = {"bf16": True, "dtype": "bfloat16"}
TOOLS: tuple[Tool, ...] = (
    Tool(
        title="ms-swift",
        commands=(r"swift (?:sft|pt)\b", r".*\bswift/cli/(?:sft|pt)\.py", r".*\bllm_sft\.py"),
        packages=("swift",),
        keys=_keys("train_type model", "tuner_type model", "sft_type model_type"),
        defaults=_SWIFT,
    ),
    Tool(title="ms-swift", commands=(r"swift (?:rlhf|dpo|megatron)\b", r"megatron (?:sft|pt|rlhf)\b")),
    Tool(title="torchtune", commands=(r"tune run\b",), packages=("torchtune",), defaults=_HALF),
    Tool(
        title="verl",
        commands=(r"python\S* -m verl\.", r".*-m verl\."),
        packages=("verl",),
        keys=_keys("actor_rollout_ref", "data critic algorithm trainer"),
    ),
    Tool(
        title="OpenRLHF",
        commands=(r".*openrlhf[./]cli[./]train_sft\b", r".*openrlhf[./]train_sft\b"),
        packages=("openrlhf",),
        defaults={**_HALF, _BATCH: 8, _LENGTH: 2048},
    ),
    Tool(title="OpenRLHF", commands=(r".*openrlhf[./](?:cli[./])?train_",)),
    Tool(
        title="NeMo",
        commands=(r"nemo\b", r".*\bmegatron_(?:gpt|llama)\w*\.py", r".*-m nemo"),
        packages=("nemo", "nemo_run", "nemo_automodel"),
        keys=_keys("exp_manager trainer", "trainer model exp_manager"),
    ),
    Tool(
        title="Megatron",
        commands=(r".*\bpretrain_(?:gpt|llama|bert|t5|vlm|mamba)\w*\.py", r".*\bmegatron/training\b"),
        packages=("megatron",),
    ),
    Tool(
        title="MLX",
        commands=(r".*mlx_lm[._ ]lora\b", r".*mlx_lm\.(?:tuner|train)"),
        packages=("mlx", "mlx_lm", "mlx_vlm"),
        keys=_keys("model iters adapter_path", "model lora_parameters", "model lora_layers iters"),
    ),
    Tool(
        title="LitGPT",
        commands=(
            r"litgpt (?:finetune\w*|pretrain)\b",
            r".*\blitgpt/finetune\b",
            r".*\bfinetune/(?:lora|full)\.py",
        ),
        packages=("litgpt", "lit_gpt"),
        keys=_keys("checkpoint_dir out_dir precision", "checkpoint_dir train eval"),
    ),
    Tool(
        title="diffusers",
        commands=(r".*\btrain_(?:text_to_image|dreambooth|controlnet|unconditional|instruct_pix2pix)\w*\.py",),
        packages=("diffusers",),
    ),
    Tool(title="XTuner", commands=(r"xtuner train\b",), packages=("xtuner",)),
    Tool(title="AutoTrain", commands=(r"autotrain\b",), keys=_keys("task base_model project_name")),
    Tool(title="Colossal-AI", commands=(r"colossalai run\b",), packages=("colossalai",)),
    Tool(
        title="Lightning",
        packages=("lightning", "pytorch_lightning"),
        keys=_keys("trainer model data seed_everything"),
    ),
    Tool(title="Keras", packages=("keras", "keras_hub", "keras_nlp")),
)
_COMMANDS = [(re.compile(pattern), tool) for tool in TOOLS for pattern in tool.commands]
_PACKAGES = {package: tool for tool in reversed(TOOLS) for package in tool.packages}
_LONGEST = 2_000


def tool_of_command(words: Sequence[str]) -> Tool | None:
    """Return the tool whose training a command starts; None for a command of another kind."""
    line = " ".join(words[:40])[:_LONGEST]
    line = line.rpartition("/")[2] if " " not in line.partition("/")[0] and "/" in line.partition(" ")[0] else line
    return next((tool for pattern, tool in _COMMANDS if pattern.match(line)), None)


def tool_of_imports(modules: Iterable[str]) -> Tool | None:
    """Return the tool whose package a script imports, the first that is listed."""
    imported = {one.partition(".")[0] for one in modules}
    return next((tool for tool in TOOLS if imported & set(tool.packages)), None)


def tool_of_values(values: Mapping[Any, Any]) -> Tool | None:
    """Return the tool whose file has these values."""
    keys = {key for key in values if isinstance(key, str)}
    if any(
        isinstance(one, Mapping) and str(one.get("_component_", "")).startswith("torchtune.") for one in values.values()
    ):
        return next(tool for tool in TOOLS if tool.title == "torchtune")
    return next((tool for tool in TOOLS if any(one <= keys for one in tool.keys)), None)


def named_by(tool: Tool, *, runs: bool = True) -> str:
    """Return the sentence that names a tool."""
    return f"this {'command starts' if runs else 'is a file of'} {tool.title}, which vramwise does not read"


def plain_values(given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a plain fine-tune as a script for transformers' Trainer has it; {} if the settings do not describe one."""
    found: dict[str, Any] = dict(defaults or {})
    own = {key: value for key, value in given.items() if key not in _NAMES or key == _NAMES[key]}
    for name, key in _NAMES.items():
        if name in given:
            own.setdefault(key, given[name])
    method = next((word for key in _METHODS if (word := str(given.get(key)).lower()) in _KINDS), "")
    switch = next((given[key] for key in _USES_LORA if key in given), None)
    four = any(_is_true(given.get(key)) for key in _FOUR_BITS) or any(str(given.get(key)) == "4" for key in _BITS)
    if method:
        found["use_peft"] = "lora" in method
    elif switch is not None:
        found["use_peft"] = _is_true(switch)
    elif four or "lora_r" in own:
        found["use_peft"] = True
    found |= {key: value for key, value in own.items() if key not in (*_USES_LORA, *_METHODS, *_FOUR_BITS, *_BITS)}
    if four or "qlora" in method:
        found["load_in_4bit"] = True
    if _is_true(given.get("load_in_8bit")) or any(str(given.get(key)) == "8" for key in _BITS):
        found["load_in_8bit"] = True
    if "batch_size" in given and _BATCH not in own:
        found[_BATCH] = given["batch_size"]
    elif isinstance(given.get("batch_size"), int) and isinstance(own.get(_BATCH), int) and _STEPS not in own:
        found[_STEPS] = max(1, given["batch_size"] // own[_BATCH])
    if isinstance(found.get("dtype"), str):
        found["dtype"] = _TYPES.get(found["dtype"].lower())
    if str(found.get("lora_target_modules", "")).lower() in _ALL:
        found["lora_target_modules"] = "all-linear"
    if isinstance(found.get("lora_target_modules"), str) and "," in found["lora_target_modules"]:
        found["lora_target_modules"] = re.findall(r"[\w.-]+", found["lora_target_modules"])
    stage = _STAGE.fullmatch(str(found.get("deepspeed", "")).lower())
    if _is_true(found.get("deepspeed")):  # the switch of DeepSpeed's own launcher, which names no file
        stage = re.fullmatch("([0-3])", str(found.pop("deepspeed") and given.get("zero_stage")))
    if stage is not None:
        found["deepspeed"] = {"zero_optimization": {"stage": int(stage[1])}}
    if _is_true(given.get("enable_fsdp")):
        found["fsdp"] = "full_shard auto_wrap"
    if _is_true(given.get("pure_bf16")):
        found |= {"bf16": True, "dtype": "bfloat16"}
    if _is_true(given.get("fp16")) and not _is_true(given.get("bf16")):
        found |= {"bf16": False, "dtype": own.get("dtype") and found["dtype"]}
    if found.get("use_peft"):
        found.setdefault("lora_r", _PEFT_RANK)
    else:
        found = {key: value for key, value in found.items() if not key.startswith("lora_")}
    tells = bool(_TELLING & own.keys()) or bool(method) or switch is not None
    if not isinstance(found.get(_MODEL), str) or not tells:
        return {}
    return {key: value for key, value in found.items() if value is not None}


def plain_file(tool: Tool, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain fine-tune that a tool's YAML file describes; {} if it describes none."""
    if tool.defaults is None:
        return {}
    model = values.get("model")
    if tool.title != "torchtune" or not isinstance(model, Mapping):
        return plain_values({str(key): value for key, value in values.items()}, tool.defaults)
    checkpointer, tokenizer = (values.get(key) for key in ("checkpointer", "tokenizer"))
    folder = checkpointer.get("checkpoint_dir") if isinstance(checkpointer, Mapping) else None
    name = str(folder or "").rstrip("/").rpartition("/")[2]
    component = str(model.get("_component_", ""))
    targets = [str(one).replace("output_proj", "o_proj") for one in model.get("lora_attn_modules") or ()]
    targets += ["gate_proj", "up_proj", "down_proj"] if model.get("apply_lora_to_mlp") else []
    given = {
        **{key: values.get(key) for key in (_STEPS, "batch_size", "dtype", "enable_activation_checkpointing")},
        "model": name,
        _LENGTH: tokenizer.get("max_seq_len") if isinstance(tokenizer, Mapping) else None,
        "use_lora": "lora" in component,
        "q_lora": "qlora" in component or bool(model.get("quantize_base")),
        "lora_rank": model.get("lora_rank"),
        "lora_target_modules": targets,
    }
    return plain_values({key: value for key, value in given.items() if value is not None}, tool.defaults)


def predict_line(values: Mapping[str, Any]) -> str:
    """Return the command that predicts a plain fine-tune."""
    words = ["vramwise", "predict", "--model", str(values[_MODEL])]
    if values.get("use_peft"):
        words += ["--adapter", "qlora" if values.get("load_in_4bit") else "lora"]
    options = {"lora_r": "--rank", _LENGTH: "--sequence-len", _BATCH: "--micro-batch", _STEPS: "--accumulation"}
    for key, option in options.items():
        if type(values.get(key)) is int and (key != "lora_r" or values.get("use_peft")):
            words += [option, str(values[key])]
    words += ["--checkpointing"] if _is_true(values.get("gradient_checkpointing")) else []
    return shlex.join(words)


def _is_true(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "yes", "on")
