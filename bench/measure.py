"""Measure real fine-tuning runs on a GPU: peaks of allocated and reserved memory, and every allocator event.

Needs torch, transformers, accelerate and an NVIDIA card; peft for adapters, bitsandbytes for 4- and 8-bit,
liger-kernel for
`liger`. Models are built from their config with random weights, so nothing is downloaded. One JSON object a line in:

    {"name": "…", "model": {config.json fields}, "sequence_len": 1024, "micro_batch_size": 2, "adapter": "lora",
    "lora_r": 16, …}

and one a line out, in the form that `tests/measured/accuracy.py` reads, with the events in OUT/<name>.json.gz:

    python bench/measure.py cases.jsonl OUT [--jobs 4]
    python tests/measured/accuracy.py OUT/measured.jsonl
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from typing import Any

MIB = 1024**2
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def main() -> None:
    """Run all cases of a file, several at a time, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--one", type=int, default=None)
    arguments = parser.parse_args()
    found = [json.loads(line) for line in arguments.cases.read_text().splitlines() if line.strip()]
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.one is not None:
        case = found[arguments.one]
        (arguments.out / f"{case['name']}.json").write_text(json.dumps(measure(case, arguments.out)))
        return
    with ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = [pool.submit(_in_process, arguments, number, case) for number, case in enumerate(found)]
        for job in as_completed(jobs):
            print(job.result(), flush=True)
    with (arguments.out / "measured.jsonl").open("w") as file:
        for case in found:
            path = arguments.out / f"{case['name']}.json"
            if path.is_file():
                file.write(path.read_text() + "\n")


def _in_process(arguments: argparse.Namespace, number: int, case: dict[str, Any]) -> str:
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": case.get("alloc_conf", "")}
    if "cublas_workspace" in case:
        environment["CUBLAS_WORKSPACE_CONFIG"] = case["cublas_workspace"]
    started = time.monotonic()
    command = [sys.executable, __file__, str(arguments.cases), str(arguments.out), "--one", str(number)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    took = time.monotonic() - started
    if done.returncode:
        return f"{case['name']}: FAILED after {took:.0f} s: {done.stderr.strip()[-600:]}"
    return f"{case['name']}: {took:.0f} s"


def build(case: dict[str, Any]) -> Any:
    """The model on the device: weights made in place, tied, then adapters around it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = dict(case["model"])
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    attention = case.get("attn_implementation", "sdpa")
    if case.get("load_in_4bit") or case.get("load_in_8bit"):
        model = _quantised(config, attention, case)
    else:
        with torch.device("meta"):
            dtype = getattr(torch, _DTYPES[case.get("weights_dtype", "bf16")])
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
        model.to_empty(device="cuda")
        _recompute_buffers(model)
        model.tie_weights()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0.0, 0.02)
    model.config.use_cache = False
    if case.get("fp32_embeddings"):
        for name, module in model.named_modules():
            if "norm" in name.rpartition(".")[2] or name.rpartition(".")[2] in ("embed_tokens", "lm_head"):
                module.to(torch.float32)
    if case.get("liger"):
        from liger_kernel.transformers import _apply_liger_kernel_to_instance

        _apply_liger_kernel_to_instance(model=model)
    if case.get("adapter"):
        model = _adapted(model, case)
    return model


def _recompute_buffers(model: Any, device: str = "cuda") -> None:
    import torch

    for module in model.modules():
        if hasattr(module, "compute_default_rope_parameters") and hasattr(module, "inv_freq"):
            frequencies, _ = module.compute_default_rope_parameters(module.config, device=device)
            module.inv_freq = frequencies
            module.original_inv_freq = frequencies.clone()
        elif hasattr(module, "embed_scale") and isinstance(module.embed_scale, torch.Tensor):
            module.embed_scale.fill_(1.0)


def _quantised(config: Any, attention: str, case: dict[str, Any]) -> Any:
    """bitsandbytes layers, quantised as they are moved to the device."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    from transformers.integrations import replace_with_bnb_linear

    four = bool(case.get("load_in_4bit"))
    settings = BitsAndBytesConfig(
        load_in_4bit=four,
        load_in_8bit=not four,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
        bnb_4bit_quant_storage=torch.uint8,
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=attention)
    model.to_empty(device="cpu")
    _recompute_buffers(model, "cpu")
    model.tie_weights()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.01)
    plain = dict(model.named_parameters())
    replaced = replace_with_bnb_linear(model, modules_to_not_convert=["lm_head"], quantization_config=settings)
    model = replaced if replaced is not None else model
    import bitsandbytes

    for name, module in model.named_modules():
        if isinstance(module, (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)) and module.bias is not None:
            module.bias = plain[f"{name}.bias"]
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            module.weight = bitsandbytes.nn.Params4bit(
                plain[f"{name}.weight"].data, requires_grad=False, quant_type="nf4", compress_statistics=True
            )
        elif isinstance(module, bitsandbytes.nn.Linear8bitLt):
            module.weight = bitsandbytes.nn.Int8Params(plain[f"{name}.weight"].data, requires_grad=False)
    model.to("cuda")
    model.is_loaded_in_4bit, model.is_loaded_in_8bit = four, not four
    model.is_quantized = True
    model.quantization_method = "bitsandbytes"
    model.hf_quantizer = type("Quantizer", (), {"is_trainable": True, "is_qat_trainable": False})()
    return model


def _adapted(model: Any, case: dict[str, Any]) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    if case.get("load_in_4bit") or case.get("load_in_8bit"):
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        torch.cuda.empty_cache()
        for name, module in model.named_modules():
            if "norm" in name.rpartition(".")[2] or name.rpartition(".")[2] in ("embed_tokens", "lm_head"):
                module.to(torch.bfloat16)
    return get_peft_model(
        model,
        LoraConfig(
            r=case["lora_r"],
            lora_alpha=32,
            lora_dropout=case.get("lora_dropout", 0.0),
            target_modules=case.get("lora_target_modules", "all-linear"),
            modules_to_save=case.get("lora_modules_to_save"),
            use_dora=case.get("peft_use_dora", False),
            task_type="CAUSAL_LM",
        ),
    )


def lengths_of(case: dict[str, Any], count: int, seed: int) -> list[int]:
    """Sample lengths: all full, or spread between an eighth and the whole."""
    longest = case["sequence_len"]
    if case.get("lengths") != "variable":
        return [longest] * count
    source = random.Random(seed)
    return [max(8, int(longest * source.uniform(0.1, 0.75))) for _ in range(count)]


class Samples:
    """Random tokens of given lengths."""

    def __init__(self, lengths: list[int], vocabulary: int) -> None:
        self.lengths = lengths
        self.vocabulary = vocabulary

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        source = random.Random(index)
        return {"input_ids": [source.randrange(10, min(self.vocabulary, 30000)) for _ in range(self.lengths[index])]}


def collator(case: dict[str, Any], widths: list[int]) -> Any:
    """Pad to the longest row, rounded up to 64, or to the full length; notes the widths."""
    import torch

    def collate(rows: list[dict[str, list[int]]]) -> dict[str, Any]:
        longest = max(len(row["input_ids"]) for row in rows)
        multiple = case.get("pad_multiple", 64)
        width = -(-longest // multiple) * multiple if case.get("lengths") == "variable" else case["sequence_len"]
        widths.append(width)
        ids, mask, labels = [], [], []
        for row in rows:
            tokens = row["input_ids"]
            rest = width - len(tokens)
            ids.append(tokens + [0] * rest)
            mask.append([1] * len(tokens) + [0] * rest)
            labels.append(tokens + [-100] * rest)
        return {
            key: torch.tensor(value)
            for key, value in (("input_ids", ids), ("attention_mask", mask), ("labels", labels))
        }

    return collate


def choose_attention(backend: str) -> None:
    """Leave `scaled_dot_product_attention` the named kernel and those that come after it, as older cards do."""
    import torch

    if backend in ("flash", "mem_efficient"):
        torch.backends.cuda.enable_cudnn_sdp(False)
    if backend == "mem_efficient":
        torch.backends.cuda.enable_flash_sdp(False)


def measure(case: dict[str, Any], out: Path) -> dict[str, Any]:
    """One run; its figures in MiB and its events in a file."""
    import torch
    import transformers
    from transformers import Trainer, TrainerCallback, TrainingArguments

    torch.zeros(1, device="cuda")
    choose_attention(case.get("sdp_backend", "cudnn"))
    torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None, stacks="python")
    model = build(case)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    loaded = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    steps = case.get("steps", 3)
    rows = case["micro_batch_size"] * case.get("gradient_accumulation_steps", 1) * steps
    widths: dict[str, list[int]] = {"train": [], "eval": []}
    vocabulary = model.config.get_text_config().vocab_size
    per_step: list[list[float]] = []

    class Note(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            per_step.append(
                [
                    torch.cuda.max_memory_allocated() / MIB,
                    torch.cuda.memory_reserved() / MIB,
                    torch.cuda.max_memory_reserved() / MIB,
                ]
            )

    arguments = TrainingArguments(
        output_dir=str(out / "trainer"),
        per_device_train_batch_size=case["micro_batch_size"],
        per_device_eval_batch_size=case.get("eval_batch_size", case["micro_batch_size"]),
        gradient_accumulation_steps=case.get("gradient_accumulation_steps", 1),
        gradient_checkpointing=case.get("gradient_checkpointing", False),
        gradient_checkpointing_kwargs=case.get("gradient_checkpointing_kwargs", {"use_reentrant": True}),
        max_steps=steps,
        optim=case.get("optimizer", "adamw_torch_fused"),
        bf16=case.get("autocast", "bf16") == "bf16",
        fp16=case.get("autocast", "bf16") == "fp16",
        max_grad_norm=case.get("max_grad_norm", 1.0),
        lr_scheduler_type="constant",
        save_strategy="no",
        report_to=[],
        logging_steps=1,
        eval_strategy="steps" if "eval_steps" in case else "no",
        eval_steps=case.get("eval_steps"),
        prediction_loss_only=True,
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Samples(lengths_of(case, rows, 1), vocabulary),
        eval_dataset=Samples(lengths_of(case, 4 * case.get("eval_batch_size", 1), 2), vocabulary),
        data_collator=collator(case, widths["train"]),
        callbacks=[Note()],
    )
    if "eval_steps" in case:
        plain = trainer.get_eval_dataloader

        def noted(*args: Any, **kwargs: Any) -> Any:
            before, trainer.data_collator = trainer.data_collator, collator(case, widths["eval"])
            try:
                return plain(*args, **kwargs)
            finally:
                trainer.data_collator = before

        trainer.get_eval_dataloader = noted
    trainer.train()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    with gzip.open(out / f"{case['name']}.json.gz", "wt") as file:
        json.dump({"events": [[e["action"], e["addr"], e["size"], 0] for e in events]}, file)
    return {
        "name": case["name"],
        "case": {**case, "steps": steps},
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        **({"liger_kernel": version("liger-kernel")} if case.get("liger") else {}),
        "load_allocated_mib": loaded / MIB,
        "peak_allocated_mib": torch.cuda.max_memory_allocated() / MIB,
        "peak_reserved_mib": torch.cuda.max_memory_reserved() / MIB,
        "per_step_mib": per_step,
        "batch_widths": {key: value[: len(value)] for key, value in widths.items()} if "lengths" in case else None,
        "trace": f"{case['name']}.json.gz",
    }


if __name__ == "__main__":
    main()
