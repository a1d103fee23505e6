"""Configs whose numbers make a prediction or a search grow: each must stay within the bounds of docs/security.md.

`CASES` is plain data for a runner: a name, the words of the command (`{config}` is the first file) and the files.

    python bench/bounds_configs.py [NAME ...]     # runs them one after the other: CPU seconds, peak MiB, exit code
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# CPU seconds that a command may take, whatever its config says.
MOST_SECONDS = {"fit": 20.0}
MOST_SECONDS_OF_OTHERS = 10.0
MOST_MIB = 1024


class Case(NamedTuple):
    """One command. `argv`: its words, `{config}` for the first file; `files`: what lies in its folder."""

    name: str
    argv: tuple[str, ...]
    files: Mapping[str, bytes]


VERBS = (
    ("predict", "{config}", "--gpu", "rtx-4090"),
    ("check", "{config}", "--gpu", "rtx-4090"),
    ("fix", "{config}", "--gpu", "rtx-4090", "--diff"),
    ("fit", "{config}", "--gpu", "rtx-4090"),
)

_AXOLOTL: Mapping[str, Any] = {
    "base_model": "Qwen/Qwen2.5-7B",
    "adapter": "lora",
    "lora_r": 16,
    "lora_alpha": 32,
    "lora_target_linear": True,
    "sequence_len": 2048,
    "micro_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "num_epochs": 1,
    "optimizer": "adamw_torch",
    "learning_rate": 0.0002,
    "bf16": True,
    "datasets": [{"path": "tatsu-lab/alpaca", "type": "alpaca"}],
}
_TRL: Mapping[str, Any] = {
    "model_name_or_path": "Qwen/Qwen2.5-7B",
    "dataset_name": "trl-lib/Capybara",
    "learning_rate": 0.0002,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "max_length": 2048,
    "use_peft": True,
    "lora_r": 16,
    "bf16": True,
    "output_dir": "out",
}
_FACTORY: Mapping[str, Any] = {
    "model_name_or_path": "Qwen/Qwen2.5-7B",
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "lora",
    "lora_target": "all",
    "dataset": "identity",
    "template": "qwen",
    "cutoff_len": 2048,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "bf16": True,
    "output_dir": "out",
}
_LLAMA: Mapping[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
_EXPERTS: Mapping[str, Any] = {
    **_LLAMA,
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "head_dim": 64,
    "moe_intermediate_size": 256,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
}


def _text(base: Mapping[str, Any], changes: Mapping[str, Any]) -> bytes:
    """A config as JSON, which is YAML too; None takes a key out."""
    return json.dumps({key: value for key, value in {**base, **changes}.items() if value is not None}).encode()


def _configs() -> Iterator[tuple[str, Mapping[str, bytes]]]:
    """Every config by name; the first file of each is the config."""
    for name, changes in _AXOLOTL_CHANGES.items():
        yield f"axolotl {name}", {"config.yml": _text(_AXOLOTL, changes)}
    for name, changes in _TRL_CHANGES.items():
        yield f"trl {name}", {"config.yaml": _text(_TRL, changes)}
    for name, changes in _FACTORY_CHANGES.items():
        yield f"llamafactory {name}", {"config.yaml": _text(_FACTORY, changes)}
    for name, (model, changes) in _MODELS.items():
        config = _text(_AXOLOTL, {"base_model": "./model", **changes})
        yield f"model {name}", {"config.yml": config, "model/config.json": json.dumps(model).encode()}
    rows = b"".join(b'{"text": "%s"}\n' % (b"word " * (1 + n * 7919 % 40)) for n in range(300_000))
    packed = {"datasets": [{"path": "data.jsonl", "type": "completion"}], "sample_packing": True}
    yield "data 300,000 packed rows", {"config.yml": _text(_AXOLOTL, packed), "data.jsonl": rows}


_AXOLOTL_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "accumulation 10^6": {"micro_batch_size": 1, "gradient_accumulation_steps": 1_000_000},
    "accumulation 720720 of 8": {"micro_batch_size": 8, "gradient_accumulation_steps": 720_720},
    "accumulation prime": {"micro_batch_size": 1, "gradient_accumulation_steps": 999_983},
    "accumulation 2^30": {"micro_batch_size": 1, "gradient_accumulation_steps": 2**30},
    "accumulation 1023": {"micro_batch_size": 2, "gradient_accumulation_steps": 1023},
    "accumulation 10^6, dpo": {"gradient_accumulation_steps": 1_000_000, "rl": "dpo"},
    "micro-batch 10^6": {"micro_batch_size": 1_000_000},
    "micro-batch 10^6, small model": {"micro_batch_size": 1_000_000, "sequence_len": 8, "base_model": "gpt2"},
    "sequence 2^30": {"sequence_len": 2**30},
    "sequence 2^30, packed": {"sequence_len": 2**30, "sample_packing": True, "flash_attention": True},
    "epochs 10^9": {"num_epochs": 10**9},
    "max_steps 10^9": {"max_steps": 10**9, "eval_steps": 1, "save_steps": 1, "val_set_size": 0.1},
    "rank 10^6": {"lora_r": 1_000_000},
    "19,000 target modules": {
        "lora_target_linear": None,
        "lora_target_modules": [f"layer_{n}.q_proj" for n in range(19_000)] + ["q_proj"],
    },
    "10,000 target patterns": {
        "lora_target_linear": None,
        "lora_target_modules": ["q_proj", *(f"(.*a)+{n}" for n in range(10_000))],
    },
    "19,000 unfrozen": {"adapter": None, "unfrozen_parameters": [f"layers.{n}.*" for n in range(19_000)]},
    "4,000 datasets": {"datasets": [{"path": f"tatsu-lab/alpaca{n}", "type": "alpaca"} for n in range(4_000)]},
    "context parallel 2^20": {"context_parallel_size": 2**20, "flash_attention": True},
    "grpo, 10^6 generations": {"rl": "grpo", "trl": {"num_generations": 1_000_000, "max_completion_length": 2048}},
    "grpo, 10^6 tokens": {"rl": "grpo", "trl": {"num_generations": 8, "max_completion_length": 1_000_000}},
    "kto, accumulation 10^6": {"gradient_accumulation_steps": 1_000_000, "rl": "kto"},
    "zero3, accumulation 10^6": {"gradient_accumulation_steps": 1_000_000, "deepspeed": "deepspeed_configs/zero3.json"},
    "fsdp, 70B": {
        "base_model": "meta-llama/Llama-3.3-70B-Instruct",
        "fsdp_version": 2,
        "fsdp_config": {"offload_params": False, "reshard_after_forward": True},
        "adapter": None,
    },
    "full 405B": {"base_model": "meta-llama/Llama-3.1-405B", "adapter": None},
    "deepseek": {"base_model": "deepseek-ai/DeepSeek-V3"},
    "vision 128B": {"base_model": "axolotl-ai-co/Mistral-Medium-3.5-128B-BF16", "load_in_4bit": True},
    "evaluation of 10^6": {"val_set_size": 0.1, "eval_batch_size": 1_000_000, "evals_per_epoch": 10**6},
}
_TRL_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "accumulation 10^6": {"gradient_accumulation_steps": 1_000_000},
    "batch 10^6": {"per_device_train_batch_size": 1_000_000},
    "length 2^30": {"max_length": 2**30},
    "19,000 target modules": {"lora_target_modules": [f"m{n}" for n in range(19_000)] + ["q_proj"]},
    "max_steps 10^9": {"max_steps": 10**9, "eval_strategy": "steps", "eval_steps": 1, "save_steps": 1},
}
_FACTORY_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "accumulation 10^6": {"gradient_accumulation_steps": 1_000_000},
    "batch 10^6, dpo": {"per_device_train_batch_size": 1_000_000, "stage": "dpo"},
    "length 2^30": {"cutoff_len": 2**30},
    "accumulation 10^6, dpo": {"gradient_accumulation_steps": 1_000_000, "stage": "dpo"},
    "100,000 targets": {"lora_target": ",".join(f"m{n}" for n in range(100_000)) + ",q_proj"},
}
_MODELS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "320 layers": ({**_LLAMA, "num_hidden_layers": 320}, {}),
    "320 layers, full, accumulation 10^6": (
        {**_LLAMA, "num_hidden_layers": 320},
        {"adapter": None, "gradient_accumulation_steps": 1_000_000},
    ),
    "10,000 layers": ({**_LLAMA, "num_hidden_layers": 10_000}, {}),
    "vocabulary 10^9": ({**_LLAMA, "vocab_size": 10**9}, {}),
    "512 experts × 128 layers": ({**_EXPERTS, "num_hidden_layers": 128, "num_experts": 512}, {}),
    "8,192 experts × 320 layers": ({**_EXPERTS, "num_hidden_layers": 320, "num_experts": 8192}, {}),
    "4,096 experts, full": ({**_EXPERTS, "num_experts": 4096}, {"adapter": None}),
    "every layer of another type": (
        {
            **_LLAMA,
            "model_type": "gemma3_text",
            "head_dim": 64,
            "num_hidden_layers": 320,
            "layer_types": [("full_attention", "sliding_attention")[n * n * 7 % 13 % 2] for n in range(320)],
        },
        {},
    ),
    "images of 2^20": (
        {
            "model_type": "llava",
            "architectures": ["LlavaForConditionalGeneration"],
            "text_config": dict(_LLAMA),
            "vision_config": {
                "model_type": "clip_vision_model",
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 320,
                "num_attention_heads": 16,
                "image_size": 2**20,
                "patch_size": 1,
            },
        },
        {"processor_type": "AutoProcessor"},
    ),
}

CASES: tuple[Case, ...] = tuple(
    [Case(f"{name}: {argv[0]}", argv, files) for name, files in _configs() for argv in VERBS]
    + [
        Case("4,096 cards: fit", (*VERBS[3], "--gpus", "4096"), {"config.yml": _text(_AXOLOTL, {})}),
        Case("2^31 - 1 cards: check", (*VERBS[1], "--gpus", str(2**31 - 1)), {"config.yml": _text(_AXOLOTL, {})}),
        Case(
            "4,096 cards, fsdp: fit",
            (*VERBS[3], "--gpus", "4096", "--allow", "fsdp", "--allow", "zero", "--allow", "qlora"),
            {"config.yml": _text(_AXOLOTL, {"adapter": None})},
        ),
        Case(
            "the largest batch: fit",
            (*VERBS[3], "--max", "micro_batch_size"),
            {"config.yml": _text(_AXOLOTL, {"gradient_accumulation_steps": 1_000_000})},
        ),
    ]
)


def run(case: Case, folder: Path) -> tuple[float, float, int, bytes]:
    """CPU seconds, peak MiB, exit code and output of a case in a child process."""
    for name, data in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    words = [word.replace("{config}", next(iter(case.files))) for word in case.argv]
    command = [sys.executable, "-m", "vramwise", *words]
    with (folder / "output").open("w+b") as output:
        child = subprocess.Popen(
            command,
            cwd=folder,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 60)),
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, child.returncode, output.read()


def main() -> None:
    """Run the cases whose names hold one of the words given, all without; exit code 1 where one is out of bounds."""
    beyond = 0
    for case in CASES:
        if sys.argv[1:] and not any(word in case.name for word in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            seconds, mib, code, output = run(case, Path(folder))
        most = MOST_SECONDS.get(case.argv[0], MOST_SECONDS_OF_OTHERS)
        out = seconds > most or mib > MOST_MIB or code not in (0, 1, 2) or b"Traceback" in output
        beyond += out
        last = output.decode("utf-8", "replace").strip().splitlines()[-1:] if code not in (0, 1) else []
        words = f"{seconds:5.1f} s {mib:5.0f} MiB exit {code} {time.monotonic() - started:5.1f} s wall"
        print(f"{'BEYOND' if out else 'ok    '} {words}  {case.name}  {' '.join(last)[:160]}", flush=True)
    sys.exit(1 if beyond else 0)


if __name__ == "__main__":
    main()
