"""The model and tokenizer of a run: full, LoRA or QLoRA; loaded weights, or random ones if requested.

Knows transformers and peft. bitsandbytes is imported (by transformers) only for a config that quantises.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from vramwise.errors import VramwiseError
from vramwise.models.known import local_config
from vramwise.training.plan import TrainPlan
from vramwise.types import RunSpec

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def model_path(name: str, config_path: str) -> str:
    """Return a folder (relative to the working folder, else to the config's), or the hub id unchanged."""
    found = local_config(name, Path(config_path).parent)
    return name if found is None else str(found.parent)


def _tokenizer_path(run: RunSpec, plan: TrainPlan) -> str:
    """Return the model's folder, or the tokenizer folder that the config names, which needs no config.json."""
    name = run.config.get("tokenizer_config")
    if not name:
        return model_path(str(run.base_model), plan.config_path)
    folders = (folder / Path(str(name)).expanduser() for folder in (Path(), Path(plan.config_path).parent))
    return next((str(folder) for folder in folders if folder.is_dir()), str(name))


def load_tokenizer(run: RunSpec, plan: TrainPlan) -> Any:
    """Return the tokenizer with the tokens that the config adds; raises VramwiseError if it cannot be loaded."""
    from transformers import AutoTokenizer

    config = run.config
    name = _tokenizer_path(run, plan)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=plan.trust_remote_code)
    except (OSError, ValueError) as error:
        raise VramwiseError(f"the tokenizer of {name} cannot be loaded: {_first_line(error)}") from error
    special = config.get("special_tokens", {})
    if special:
        tokenizer.add_special_tokens({key: value for key, value in special.items() if value is not None})
    if config.get("tokens"):
        tokenizer.add_tokens(list(config.get("tokens")))
    return tokenizer


def pad_id(tokenizer: Any) -> int:
    """Return the padding token. Padding is masked and has no target, so any token works if none is defined."""
    for found in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if found is not None:
            return int(found)
    return 0


def load_model(run: RunSpec, plan: TrainPlan, tokenizer: Any) -> Any:
    """Return the model to train, including the adapter."""
    name = model_path(str(run.base_model), plan.config_path)
    model = _random_model(name, run, plan) if plan.random_weights else _pretrained(name, run, plan)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.config.use_cache = False
    if run.adapter.kind is None:
        return model
    if run.savings.recompute and run.savings.checkpointing_reentrant:
        # Reentrant checkpointing passes no gradient on if no input of a block requires one.
        model.enable_input_require_grads()
    return _with_adapter(model, run)


def _load_options(run: RunSpec, plan: TrainPlan) -> dict[str, Any]:
    as_stored = run.config.get("weights") == "auto" and not plan.random_weights
    return {
        "dtype": "auto" if as_stored else DTYPES[plan.weights_dtype],
        "attn_implementation": run.kernels.attn_implementation,
        "trust_remote_code": plan.trust_remote_code,
    }


def _model_config(name: str, run: RunSpec, plan: TrainPlan) -> Any:
    from transformers import AutoConfig

    config = run.config
    overrides = config.get("overrides_of_model_config", {})
    options: dict[str, Any] = {"trust_remote_code": plan.trust_remote_code}
    if config.get("revision_of_model"):
        options["revision"] = config.get("revision_of_model")
    return AutoConfig.from_pretrained(name, **{**overrides, **options})  # these options are not overridden


def _pretrained(name: str, run: RunSpec, plan: TrainPlan) -> Any:
    from transformers import AutoModelForCausalLM

    folder = Path(name)
    if folder.is_dir() and not any(list(folder.glob(pattern)) for pattern in _WEIGHTS):
        raise VramwiseError(f"{name} holds no weights: --random-weights trains from random values, to try things out")
    options = _load_options(run, plan) | _quantization(run, plan)
    if run.config.get("revision_of_model"):
        options["revision"] = run.config.get("revision_of_model")
    try:
        return AutoModelForCausalLM.from_pretrained(name, config=_model_config(name, run, plan), **options)
    except OSError as error:
        raise VramwiseError(f"{name} cannot be loaded: {_first_line(error)}") from error


def _random_model(name: str, run: RunSpec, plan: TrainPlan) -> Any:
    """Return random weights from the seed. If quantised, they are saved and loaded again: only loading quantises."""
    from transformers import AutoModelForCausalLM

    config = _model_config(name, run, plan)
    torch.manual_seed(plan.seed)
    if run.loading.quantization is None:
        with torch.device("cuda" if torch.cuda.is_available() and run.sharding.kind in ("none", "ddp") else "cpu"):
            return AutoModelForCausalLM.from_config(config, **_load_options(run, plan))
    with TemporaryDirectory(dir=plan.output_dir, prefix=".random-weights-") as folder:
        AutoModelForCausalLM.from_config(config, **_load_options(run, plan)).save_pretrained(folder)
        return AutoModelForCausalLM.from_pretrained(folder, **_load_options(run, plan), **_quantization(run, plan))


def _quantization(run: RunSpec, plan: TrainPlan) -> dict[str, Any]:
    if run.loading.quantization is None:
        return {}
    from transformers import BitsAndBytesConfig

    written: Mapping[str, Any] = run.config.get("bnb_config_kwargs", {})
    if run.loading.quantization == "8bit":
        settings: dict[str, Any] = {"load_in_8bit": True}
    else:
        settings = {
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_compute_dtype": DTYPES[plan.precision],
            "bnb_4bit_quant_storage": DTYPES[plan.weights_dtype],
        }
    device = {"": torch.cuda.current_device()} if torch.cuda.is_available() else None
    return {"quantization_config": BitsAndBytesConfig(**{**settings, **written}), "device_map": device}


def _with_adapter(model: Any, run: RunSpec) -> Any:
    from peft import LoraConfig, get_peft_model

    config = run.config
    targets: Any = list(run.adapter.lora_target_modules) or None
    if isinstance(config.get("lora_target_modules"), str):  # a single text is PEFT's regular expression over full names
        targets = config.get("lora_target_modules")
    if run.adapter.lora_target_linear:
        targets = "all-linear"
    optional = {
        "layers_to_transform": config.get("peft_layers_to_transform"),
        "rank_pattern": config.get("lora_rank_pattern"),
        "alpha_pattern": config.get("lora_alpha_pattern"),
        "init_lora_weights": config.get("peft_init_lora_weights"),
        "modules_to_save": list(run.adapter.lora_modules_to_save) or None,
    }
    lora = LoraConfig(
        task_type="CAUSAL_LM",
        r=run.adapter.lora_r or 8,
        lora_alpha=run.adapter.lora_alpha or 16,
        lora_dropout=run.adapter.lora_dropout,
        target_modules=targets,
        fan_in_fan_out=bool(config.get("lora_fan_in_fan_out", False)),
        use_dora=run.adapter.use_dora,
        use_rslora=run.adapter.use_rslora,
        **{name: value for name, value in optional.items() if value is not None},
    )
    return get_peft_model(model, lora, autocast_adapter_dtype=bool(config.get("peft_autocast_adapter_dtype", True)))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
