"""Tiny runs of TRL's and LLaMA-Factory's files: written here, trained by the real trainers once and by our engine."""

import json
import random
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "tiny" / "model"
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "apple", "boat", "cloud", "drum"]
SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}
SHAPE |= {"num_key_value_heads": 2, "max_position_embeddings": 256, "tie_word_embeddings": True, "vocab_size": 1024}
SHAPE |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
COMMON = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "num_train_epochs": 1,
    "learning_rate": 0.01,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "bf16": False,
    "optim": "adamw_torch",
}
_LLAMAFACTORY = {"stage": "sft", "do_train": True, "finetuning_type": "full", "dataset_dir": ".", "cutoff_len": 40}
_LLAMAFACTORY |= {"overwrite_output_dir": True, "preprocessing_num_workers": 1}
CASES = {
    # samples that are cut, an evaluation set of its own
    "trl_text": {"dataset_name": "plain", "max_length": 24, "eval_strategy": "steps", "eval_steps": 3},
    # the prompt is not learnt; a schedule; the end is kept
    "trl_completion": {
        "datasets": [{"path": "json", "data_files": "completions.jsonl"}],
        "max_length": 30,
        "truncation_mode": "keep_end",
        "lr_scheduler_type": "cosine",
        "warmup_steps": 2,
        "gradient_checkpointing": False,
    },
    "trl_chat": {"dataset_name": "chat", "max_length": 40, "per_device_train_batch_size": 1, "weight_decay": 0.1},
    "llamafactory_alpaca": {**_LLAMAFACTORY, "dataset": "alpaca", "template": "default", "val_size": 0.2},
    # several turns, the last alone is learnt; rows as they come; a schedule
    "llamafactory_turns": {
        **_LLAMAFACTORY,
        "dataset": "turns",
        "template": "chatml",
        "default_system": "one two",
        "mask_history": True,
        "disable_shuffling": True,
        "lr_scheduler_type": "cosine",
        "warmup_ratio": 0.4,
    },
    # two datasets of which the first rows count; a template that closes samples by itself
    "llamafactory_both": {**_LLAMAFACTORY, "dataset": "alpaca,turns", "template": "falcon", "max_samples": 10},
}


def trainer_of(name: str) -> str:
    """Whose file it is."""
    return name.partition("_")[0]


def make(folder: Path) -> None:
    """The model (weights by a formula, so that nobody's random numbers count), data and configs."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    with torch.no_grad():
        for number, (name, weight) in enumerate(model.named_parameters()):
            steps = torch.arange(weight.numel(), dtype=torch.float64).reshape(weight.shape)
            weight.copy_(torch.ones_like(weight) if "norm" in name else torch.sin(steps * 1.7 + number) * 0.05)
    model.save_pretrained(folder / "model")
    (folder / "model" / "tokenizer.json").write_bytes((EXAMPLE / "tokenizer.json").read_bytes())
    settings = json.loads((EXAMPLE / "tokenizer_config.json").read_text())
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": TEMPLATE}))
    _write_data(folder)
    for name, keys in CASES.items():
        config = {"model_name_or_path": "model", **COMMON, **keys, "output_dir": f"out/{name}"}
        (folder / f"{name}.yml").write_text(json.dumps(config))


def _write_data(folder: Path) -> None:
    chance = random.Random(3)

    def text(fewest: int, most: int) -> str:
        return " ".join(chance.choices(WORDS, k=chance.randrange(fewest, most)))

    def write(name: str, rows: list[dict[str, object]]) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("plain/train.jsonl", [{"text": text(3, 30)} for _ in range(21)])
    write("plain/test.jsonl", [{"text": text(3, 12)} for _ in range(5)])
    write("completions.jsonl", [{"prompt": text(3, 30) + " ", "completion": text(3, 20)} for _ in range(21)])
    pairs = [[("user", text(2, 6)), ("assistant", text(2, 6))] for _ in range(21)]
    write("chat/train.jsonl", [{"messages": [{"role": r, "content": c} for r, c in pair]} for pair in pairs])
    rows = [{"instruction": text(3, 30), "input": text(0, 3), "output": text(3, 20)} for _ in range(21)]
    write("alpaca.jsonl", rows)
    roles = ("human", "gpt", "human", "gpt")
    turns = [[{"from": role, "value": text(2, 12)} for role in roles] for _ in range(21)]
    write("turns.jsonl", [{"conversations": one} for one in turns])
    info = {"alpaca": {"file_name": "alpaca.jsonl"}, "turns": {"file_name": "turns.jsonl", "formatting": "sharegpt"}}
    (folder / "dataset_info.json").write_text(json.dumps(info))
