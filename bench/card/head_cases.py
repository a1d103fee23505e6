"""Heads for classes, encoders, T5, BART and Whisper on a card, beside what was predicted before.

    python bench/card/head_cases.py predict              # writes bench/results/heads_predicted.jsonl (no torch needed)
    python bench/card/head_cases.py run OUT [--only A,B] # on the card: appends to OUT/heads_measured.jsonl

Real widths, random weights; rows are full but for the last tokens of every other one. Each case is a script as people
write them; `run` makes its model first, in a process of its own, and runs it in another. The card needs torch,
transformers and PEFT; predictions are for the releases in VERSIONS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PREDICTED = HERE.parent / "results" / "heads_predicted.jsonl"
WORK = Path("/tmp/heads-card")
VERSIONS = {"transformers": "5.20.1", "peft": "0.21.2", "accelerate": "1.15.0"}
TORCH = "2.11.0"
MIB = 1 << 20

_TWO = {"encoder_attention_heads": 12, "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
_BERT = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen": {
        "model_type": "qwen2",
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
        "max_position_embeddings": 32768,
        "pad_token_id": 0,
        "dtype": "bfloat16",
    },
    "bert": {"model_type": "bert", **_BERT, "vocab_size": 30522, "intermediate_size": 3072},
    "deberta": {
        "model_type": "deberta-v2",
        **_BERT,
        "intermediate_size": 3072,
        "vocab_size": 128100,
        "relative_attention": True,
        "position_buckets": 256,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "modernbert": {"model_type": "modernbert", **_BERT, "num_hidden_layers": 22, "vocab_size": 50368},
    "t5": {
        "model_type": "t5",
        "vocab_size": 32128,
        "d_model": 768,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 12,
        "num_decoder_layers": 12,
        "num_heads": 12,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": True,
        "decoder_start_token_id": 0,
    },
    "bart": {
        "model_type": "bart",
        "vocab_size": 50265,
        "d_model": 768,
        "encoder_layers": 6,
        "decoder_layers": 6,
        **_TWO,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
    },
    "whisper": {
        "model_type": "whisper",
        "vocab_size": 51865,
        "num_mel_bins": 80,
        "d_model": 768,
        "encoder_layers": 12,
        "decoder_layers": 12,
        **_TWO,
        "max_source_positions": 1500,
        "max_target_positions": 448,
        "pad_token_id": 50257,
        "bos_token_id": 50257,
        "eos_token_id": 50257,
        "decoder_start_token_id": 50258,
    },
}
# The class that loads, its arguments, rows of a batch, their width, LoRA's targets, further training arguments.
_CLASSES, _TOKENS = "AutoModelForSequenceClassification", "AutoModelForTokenClassification"
_TEXT, _SPEECH = "AutoModelForSeq2SeqLM", "WhisperForConditionalGeneration"
_CHECKPOINT = "gradient_checkpointing=True"
CASES: dict[str, tuple[str, str, int, int, str, str]] = {
    "qwen_classes_full": ("qwen", _CLASSES, 4, 512, "", "bf16=True"),
    "qwen_classes_lora": ("qwen", _CLASSES, 8, 512, '["q_proj", "v_proj"]', f"bf16=True, {_CHECKPOINT}"),
    "bert_classes_full": ("bert", _CLASSES, 16, 512, "", "bf16=True"),
    "bert_classes_lora": ("bert", _CLASSES, 32, 256, '["query", "value"]', ""),
    "deberta_classes_full": ("deberta", _CLASSES, 8, 256, "", "bf16=True"),
    "modernbert_tokens_full": ("modernbert", _TOKENS, 8, 512, "", "bf16=True"),
    "t5_full": ("t5", _TEXT, 8, 256, "", "bf16=True"),
    "t5_lora": ("t5", _TEXT, 8, 512, '["q", "v"]', f"bf16=True, {_CHECKPOINT}"),
    "bart_full": ("bart", _TEXT, 8, 512, "", ""),
    "whisper_full": ("whisper", _SPEECH, 8, 128, "", f"fp16=True, {_CHECKPOINT}"),
    "whisper_lora": ("whisper", _SPEECH, 8, 128, '["q_proj", "v_proj"]', "fp16=True"),
}


def script(name: str) -> str:
    """A case as people write it."""
    shape, loads, rows, width, targets, more = CASES[name]
    labels = ", num_labels=3" if loads in (_CLASSES, _TOKENS) else ""
    lines = [
        f"from transformers import {loads}, Trainer, TrainingArguments",
        *(["from peft import LoraConfig, get_peft_model"] if targets else []),
        "from rows import Rows",
        "",
        f'model = {loads}.from_pretrained("{WORK}/{shape}"{labels})',
    ]
    if targets:
        task = {
            _CLASSES: ', task_type="SEQ_CLS"',
            _TOKENS: ', task_type="TOKEN_CLS"',
            _TEXT: ', task_type="SEQ_2_SEQ_LM"',
        }
        settings = f"r=16, lora_alpha=32, target_modules={targets}{task.get(loads, '')}"
        lines.append(f"model = get_peft_model(model, LoraConfig({settings}))")
        if _CHECKPOINT in more:
            lines.append("model.enable_input_require_grads()")
    lines += [
        f'args = TrainingArguments("out", per_device_train_batch_size={rows}, max_steps=5, learning_rate=2e-5,',
        f'    report_to="none", save_strategy="no"{", " if more else ""}{more})',
        f'Trainer(model=model, args=args, train_dataset=Rows("{name}", {width})).train()',
    ]
    return "\n".join(lines) + "\n"


class Rows:
    """Made-up rows: the last tokens of every other one are padding."""

    def __init__(self, name: str, width: int) -> None:
        self.loads, self.width = CASES[name][1], width

    def __len__(self) -> int:
        return 256

    def __getitem__(self, number: int) -> dict[str, Any]:
        import torch

        if self.loads == _SPEECH:
            labels = torch.randint(5, 1000, (self.width,))
            return {"input_features": torch.randn(80, 3000), "labels": labels}
        mask = torch.ones(self.width, dtype=torch.long)
        mask[self.width - 8 * (number % 2) :] = 0
        row = {"input_ids": torch.randint(5, 1000, (self.width,)), "attention_mask": mask}
        one = torch.tensor(number % 3)
        return {**row, "labels": one if self.loads == _CLASSES else torch.randint(0, 3, (self.width,))}


def predict() -> None:
    """Write what is predicted of every case. It refuses to write it again."""
    for name, config in SHAPES.items():
        (WORK / name).mkdir(parents=True, exist_ok=True)
        (WORK / name / "config.json").write_text(json.dumps(config))
    with PREDICTED.open("x") as file:
        for name, (_, _, _, width, _, _) in CASES.items():
            path = WORK / f"{name}.py"
            path.write_text(script(name))
            words = ["predict", str(path), "--gpu", "h200", "--torch", TORCH, "--set", f"max_length={width}"]
            words += [word for one in VERSIONS.items() for word in ("--with", "==".join(one))]
            command = [sys.executable, "-m", "vramwise", *words, "--offline", "--format", "json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            try:
                told = json.loads(done.stdout)
                row = {f"{kind}_mib": told[f"peak_{kind}_bytes"] / MIB for kind in ("allocated", "reserved")}
            except (ValueError, KeyError):
                row = {"error": (done.stderr or done.stdout)[-600:]}
            file.write(json.dumps({"name": name, **row}) + "\n")
            print(name, row, flush=True)


def make(shape: str) -> None:
    """Random weights of one shape, saved as a checkpoint of its base class."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModel, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq

    fields = dict(SHAPES[shape])
    config = CONFIG_MAPPING[fields.pop("model_type")](**fields)
    auto = {"whisper": AutoModelForSpeechSeq2Seq, "t5": AutoModelForSeq2SeqLM, "bart": AutoModelForSeq2SeqLM}
    dtype = torch.bfloat16 if SHAPES[shape].get("dtype") == "bfloat16" else torch.float32
    auto.get(shape, AutoModel).from_config(config).to(dtype).save_pretrained(WORK / shape)


def child(name: str, out: str) -> None:
    """One case in this process: the script as it is, and what the card held at most."""
    import types

    import torch
    import transformers

    sys.modules["rows"] = types.ModuleType("rows")
    sys.modules["rows"].__dict__["Rows"] = Rows
    exec(compile(script(name), name, "exec"), {"__name__": "__main__"})
    stats = torch.cuda.memory_stats()
    row = {
        "name": name,
        "allocated_mib": stats["allocated_bytes.all.peak"] / MIB,
        "reserved_mib": stats["reserved_bytes.all.peak"] / MIB,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
    }
    with Path(out).open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(row, flush=True)


def run(out: Path, only: str) -> None:
    """Every case in turn, each in a process of its own."""
    out.mkdir(parents=True, exist_ok=True)
    for name, (shape, *_) in CASES.items():
        if only and name not in only.split(","):
            continue
        began = time.time()
        steps = [["child", name, str(out / "heads_measured.jsonl")]]
        if not (WORK / shape / "model.safetensors").exists():
            (WORK / shape).mkdir(parents=True, exist_ok=True)
            steps.insert(0, ["make", shape])
        for words in steps:
            env = {**os.environ, "HF_HUB_OFFLINE": "1", "WANDB_DISABLED": "true"}
            done = subprocess.run(
                [sys.executable, str(HERE / "head_cases.py"), *words], env=env, cwd=out, check=False, timeout=300
            )
            if done.returncode:
                print(name, words[0], "ended with", done.returncode, flush=True)
                break
        print(name, round(time.time() - began, 1), "s", flush=True)


def main() -> None:
    """See the module's text."""
    words = sys.argv[1:]
    match words[:1]:
        case ["predict"]:
            predict()
        case ["make"]:
            make(words[1])
        case ["child"]:
            child(words[1], words[2])
        case ["run"]:
            run(Path(words[1]), words[3] if words[2:3] == ["--only"] else "")
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
