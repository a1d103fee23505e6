"""Record what TRL itself makes of configs: the values its dataclasses hold, what it does not know, and its verdict.

    pip install torch==2.13.0 trl==1.16.0 peft
    python scripts/trl_values.py FOLDER tests/data/trl tests/data/trl-1.16.0-values.json

For each training file the parser of its command is run, on any machine (a card with bf16 is taken for granted); then
`accelerate launch`'s parser on what is left over, as the command does. Tests compare our resolving with the record.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

KINDS = ("orpo", "sft", "dpo", "kto", "reward", "grpo", "rloo")
KEPT = (
    *("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "bf16", "fp16"),
    *(
        "gradient_checkpointing",
        "gradient_checkpointing_kwargs",
        "optim",
        "max_grad_norm",
        "eval_strategy",
        "eval_steps",
    ),
    *("max_length", "packing", "packing_strategy", "padding_free", "pad_to_multiple_of", "use_liger_kernel", "beta"),
    *("torch_empty_cache_steps", "torch_compile", "model_name_or_path", "dtype", "attn_implementation", "use_peft"),
    *("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save", "load_in_4bit"),
    *("load_in_8bit", "use_bnb_nested_quant", "num_generations", "max_completion_length", "generation_batch_size"),
    *("steps_per_generation", "use_vllm", "vllm_mode", "vllm_gpu_memory_utilization", "train_sampling_strategy"),
)


def kind_by_path(name: str) -> str | None:
    """The command a file is for, by the folder or name that it has in its project; None for other files."""
    if "accelerate_configs" in name or "dataset_filtering" in name:
        return None
    words = name.replace(".", "_").lower().split("_")
    return next((kind for kind in KINDS if kind in words), None)


def parser_of(kind: str) -> Any:
    """The parser of `trl <kind>`; ORPO has none, and is given what the others are made of."""
    import importlib

    if kind == "orpo":
        from trl import ModelConfig, ScriptArguments, TrlParser
        from trl.experimental.orpo import ORPOConfig

        return TrlParser((ScriptArguments, ORPOConfig, ModelConfig))
    return importlib.import_module(f"trl.scripts.{kind}").make_parser()


def record(path: Path, kind: str) -> dict[str, Any]:
    """What TRL got of one file."""
    found: dict[str, Any] = {"kind": kind}
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            *classes, left, _ = parser_of(kind).parse_args_and_config(
                ["--config", str(path)], return_remaining_strings=True, separate_remaining_strings=True
            )
    except (Exception, SystemExit) as error:
        return found | {"refused": type(error).__name__, "says": (said.getvalue() or str(error)).strip()[-200:]}
    values = {name: value for one in classes for name, value in vars(one).items()}
    found["unknown"] = [word[2:] for word in left[::2]]
    found["launches"] = launches(left)
    found["values"] = {name: _plain(values[name]) for name in KEPT if name in values}
    return found


def launches(left: list[str]) -> bool:
    """Whether `accelerate launch` takes what the command hands on to it."""
    from accelerate.commands.launch import launch_command_parser

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            launch_command_parser().parse_args([*left, "script.py"])
    except SystemExit:
        return False
    return True


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value)
    return value if isinstance(value, bool | int | float | str | None | list | dict) else str(value)


def main() -> None:
    """Every file of the folder."""
    import transformers.training_args

    transformers.training_args.is_torch_bf16_gpu_available = lambda: True
    *folders, target = [Path(name).resolve() for name in sys.argv[1:]]
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for path in sorted((path for folder in folders for path in folder.iterdir()), key=lambda path: path.name):
            kind = kind_by_path(path.name)
            found[path.name] = record(path, kind) if kind else {"kind": None}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in found.items())
    target.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
