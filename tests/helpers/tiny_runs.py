"""Real training runs small enough for a test: a two-layer model, the example's tokenizer, samples of uneven length."""

import json
import random
from pathlib import Path

import yaml

from vramwise.opening.subject import Options
from vramwise.training.parent.prepare import TrainOptions, prepare

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "tiny"
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 256,
    "model_type": "llama",
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "vocab_size": 1024,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
CONFIG = {
    "base_model": "model",
    "datasets": [{"path": "samples.jsonl", "type": "completion"}],
    "sequence_len": 64,
    "micro_batch_size": 4,
    "gradient_accumulation_steps": 1,
    "num_epochs": 1,
    "learning_rate": 0.01,
    "lr_scheduler": "constant",
    "optimizer": "adamw_torch",
    "gradient_checkpointing": False,
    "attn_implementation": "sdpa",
    "save_strategy": "no",
    "logging_steps": 1,
}


def make_folder(folder: Path, samples: int = 40, seed: int = 3) -> Path:
    """A model folder and a dataset."""
    model = folder / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps(MODEL))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).write_bytes((EXAMPLE / "model" / name).read_bytes())
    chance = random.Random(seed)
    words = ("zero", "one", "two", "three", "four", "five", "six", "seven", "apple", "boat", "cloud", "drum")
    rows = [{"text": " ".join(chance.choices(words, k=chance.randrange(3, 12)))} for _ in range(samples)]
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def write_config(folder: Path, name: str = "config.yml", **changes) -> Path:
    """A config in the folder; `None` removes a key."""
    values = {"output_dir": str(folder / "out"), **CONFIG, **changes}
    path = folder / name
    path.write_text(yaml.safe_dump({key: value for key, value in values.items() if value is not None}))
    return path


def prepared(path: Path, **options):
    target = Options(torch="2.13", **options.pop("target", {}))
    return prepare(str(path), TrainOptions(target=target, **{"random_weights": True, **options}))


def losses(trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def train_here(path: Path, *, callbacks=(), plan=None, **options):
    """Train in this process; the trainer when done."""
    import torch

    from vramwise.training.worker.engine_transformers import train
    from vramwise.training.worker.main import run_of
    from vramwise.training.worker.progress import Progress

    torch.set_num_threads(1)
    plan = plan or prepared(path, **options).plan
    return train(run_of(plan), plan, progress=Progress(), callbacks=callbacks)
