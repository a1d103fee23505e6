"""What LLaMA-Factory itself makes of config files: its `get_train_args` on each, on a machine without a GPU.

    python scripts/llamafactory_verdicts.py FOLDER|CASES.json OUTPUT.json [--torchrun]    (with llamafactory installed)

CASES.json maps names to values of a file. What belongs to the machine is put out of the way: bf16 counts as there,
optional packages as installed. LLaMA-Factory refuses some files by how it is started: with --torchrun they are parsed
as torchrun's processes do. Written for each: the refusal, or the values that decide memory.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

TRAINING = (
    *("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "bf16", "fp16"),
    *("optim", "max_grad_norm", "eval_strategy", "eval_steps", "do_train", "do_eval", "gradient_checkpointing"),
    *("torch_compile", "torch_empty_cache_steps", "group_by_length", "eval_on_start", "eval_accumulation_steps"),
    *("deepspeed", "fp8", "use_liger_kernel"),
)
MODEL = (
    *("model_name_or_path", "disable_gradient_checkpointing", "use_reentrant_gc", "use_unsloth_gc", "flash_attn"),
    *("enable_liger_kernel", "upcast_layernorm", "quantization_bit", "quantization_method", "double_quantization"),
    *("block_diag_attn", "use_unsloth", "use_kt", "mixture_of_depths", "shift_attn", "compute_dtype"),
)
DATA = ("cutoff_len", "packing", "neat_packing", "val_size", "dataset", "eval_dataset", "streaming")
TUNING = (
    *("stage", "finetuning_type", "lora_rank", "lora_alpha", "lora_target", "lora_dropout", "additional_target"),
    *("use_dora", "use_rslora", "pure_bf16", "use_galore", "use_apollo", "use_badam", "use_muon", "use_adam_mini"),
    *("use_ref_model", "freeze_trainable_layers", "freeze_trainable_modules", "pref_loss"),
    *("use_dft_loss", "use_eaft_loss", "use_asft_loss"),
)


def plain(value: Any) -> Any:
    """The value in JSON's shapes."""
    value = getattr(value, "value", value)
    return value if isinstance(value, int | float | str | list | type(None)) else str(value)


def verdict(path: Path, values: dict[str, Any] | None = None) -> dict[str, Any]:
    """What get_train_args says."""
    from llamafactory.hparams.parser import get_train_args
    from omegaconf import OmegaConf

    try:
        values = OmegaConf.to_container(OmegaConf.load(path)) if values is None else values
        model, data, training, tuning, _ = get_train_args(dict(values) | {"output_dir": "/tmp/not-there"})
    except Exception as error:  # whatever it is, it stops the run
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
    found: dict[str, Any] = {}
    for held, names in ((training, TRAINING), (model, MODEL), (data, DATA), (tuning, TUNING)):
        found |= {name: plain(getattr(held, name, None)) for name in names}
    return {"values": found}


def put_machine_aside() -> None:
    """What the machine lacks is not the file's fault."""
    import transformers.training_args as arguments
    import transformers.utils as utils
    from llamafactory.hparams import parser

    for module in (arguments, utils, parser):
        module.is_torch_bf16_gpu_available = lambda *_: True
    parser.check_version = lambda *_, **__: None


def main() -> None:
    """Parse every file of the folder."""
    folder, output = Path(sys.argv[1]), Path(sys.argv[2])
    if "--torchrun" in sys.argv:
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
    put_machine_aside()
    if folder.suffix == ".json":
        found = {name: verdict(folder, values) for name, values in json.loads(folder.read_text()).items()}
    else:
        found = {path.name: verdict(path) for path in sorted(folder.iterdir()) if path.suffix in (".yaml", ".yml")}
    output.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for name, one in found.items():
        print(name, one.get("error", "ok"))


if __name__ == "__main__":
    main()
