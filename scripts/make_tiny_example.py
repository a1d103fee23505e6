"""Makes examples/tiny: a model's config, a tokenizer and a dataset, all small, all from this script.

    python scripts/make_tiny_example.py        (needs `pip install 'vramwise[train]'`)

The dataset is arithmetic in words and word order: something a tiny model can learn in a minute.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from vramwise.whole_files import write_new

FOLDER = Path(__file__).parent.parent / "examples" / "tiny"
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
THINGS = ("apple", "boat", "cloud", "drum", "engine", "forest", "garden", "harbour", "island", "jacket", "kettle")
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 192,
    "initializer_range": 0.02,
    "intermediate_size": 512,
    "max_position_embeddings": 512,
    "model_type": "llama",
    "num_attention_heads": 6,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "vocab_size": 1024,
}


def samples(count: int) -> list[dict[str, str]]:
    """Small tasks with one right answer each."""
    chance = random.Random(7)
    rows = []
    for number in range(count):
        first, second = chance.randrange(7), chance.randrange(6)
        words = chance.sample(THINGS, chance.randrange(2, 7))
        kinds = (
            ("Add the two numbers.", f"{NUMBERS[first]} and {NUMBERS[second]}", NUMBERS[first + second]),
            ("Repeat the words backwards.", " ".join(words), " ".join(reversed(words))),
            ("Say which word comes first.", " ".join(words), words[0]),
            (f"Count from {NUMBERS[first]} to {NUMBERS[first + 4]}.", "", " ".join(NUMBERS[first : first + 5])),
        )
        instruction, given, answer = kinds[number % len(kinds)]
        rows.append({"instruction": instruction, "input": given, "output": answer})
    return rows


def prompt(row: dict[str, str]) -> str:
    """A sample as the alpaca format shows it to the model, so that the format itself takes few tokens."""
    from vramwise.training.worker.prompts import alpaca_prompt

    return alpaca_prompt(row["instruction"], row["input"]) + row["output"]


def tokenizer(texts: list[str]) -> Tokenizer:
    """A byte-level BPE tokenizer of 1024 tokens, trained on the samples."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"],
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return made


def main() -> None:
    """Write the files."""
    rows = samples(400)
    model = FOLDER / "model"
    model.mkdir(parents=True, exist_ok=True)
    write_new(model / "config.json", (json.dumps(CONFIG, indent=2) + "\n").encode("utf-8"))
    tokenizer([prompt(row) for row in rows]).save(str(model / "tokenizer.json"), pretty=False)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "model_max_length": CONFIG["max_position_embeddings"],
    }
    write_new(model / "tokenizer_config.json", (json.dumps(settings, indent=2) + "\n").encode("utf-8"))
    lines = [json.dumps(row) for row in rows]
    write_new(FOLDER / "samples.jsonl", ("\n".join(lines) + "\n").encode("utf-8"))


if __name__ == "__main__":
    main()
