"""Batches of packed samples as a trainer itself makes them on a CPU: what `variants/packing.py` is held against.

    python scripts/packed_widths.py trl > tests/data/packed-trl-1.16.0.json              (where TRL is installed)
    python scripts/packed_widths.py llamafactory > tests/data/packed-llamafactory-0.9.5.json

Sample lengths by chance, with fixed seeds; of each batch its shape and, of TRL's, how many tokens have a label.
"""

from __future__ import annotations

import json
import random
import sys
from types import SimpleNamespace
from typing import Any

# Samples, longest row, rows a batch, seed of the order; and the way of packing, or how many samples are looked at.
TRL = ((200, 128, 2, 42, "bfd"), (1150, 100, 4, 7, "bfd"), (180, 64, 3, 11, "bfd_split"), (1100, 64, 4, 1, "wrapped"))
LLAMAFACTORY = ((200, 128, 1, 42, 1000), (1150, 100, 1, 7, 1000), (300, 64, 1, 11, 120))


def samples(count: int, seed: int) -> tuple[list[int], list[int]]:
    """Lengths as data has them, many short and few long, and how many tokens of each are trained on."""
    rng = random.Random(seed)
    lengths = [min(400, max(2, int(rng.lognormvariate(3.6, 0.8)))) for _ in range(count)]
    return lengths, [rng.randint(1, length) for length in lengths]


def labels(length: int, labelled: int) -> list[int]:
    """The last ones have a label."""
    return [-100] * (length - labelled) + [5] * labelled


def trl_batches(count: int, longest: int, rows: int, seed: int, strategy: str) -> dict[str, Any]:
    """An epoch and an evaluation of SFTTrainer's own data loaders."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    words = Tokenizer(models.WordLevel({f"t{number}": number for number in range(8)}, unk_token="t0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="t1", eos_token="t2", unk_token="t0")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    lengths, labelled = samples(count, seed)
    tagged = [labels(*pair) for pair in zip(lengths, labelled, strict=True)]
    data = Dataset.from_dict({"input_ids": [[5] * length for length in lengths], "labels": tagged})
    options = {"packing": True, "packing_strategy": strategy, "max_length": longest, "seed": seed, "use_cpu": True}
    options |= {"per_device_train_batch_size": rows, "per_device_eval_batch_size": rows, "bf16": False}
    trainer = SFTTrainer(
        model=LlamaForCausalLM(LlamaConfig(vocab_size=8, num_key_value_heads=2, **sizes)),
        args=SFTConfig(output_dir="out", report_to=[], gradient_checkpointing=False, eval_strategy="steps", **options),
        train_dataset=data,
        eval_dataset=data,
        processing_class=tokenizer,
    )
    case = {"lengths": lengths, "labelled": labelled, "longest": longest, "rows": rows, "seed": seed}
    loaders = {"train": trainer.get_train_dataloader(), "eval": trainer.get_eval_dataloader()}
    return case | {"strategy": strategy} | {name: [_counted(batch) for batch in one] for name, one in loaders.items()}


def _counted(batch: dict[str, Any]) -> list[int]:
    """Rows, width, and labels less those that are foretold by nobody."""
    return [*batch["input_ids"].shape, int((batch["labels"][:, 1:] != -100).sum())]


def llamafactory_batches(count: int, cutoff: int, rows: int, seed: int, together: int) -> dict[str, Any]:
    """An epoch of `neat_packing` under flash attention: rows as its processor packs and its collator trims them."""
    import torch
    from datasets import Dataset
    from llamafactory.data.collator import SFTDataCollatorWith4DAttentionMask
    from llamafactory.data.processor.supervised import PackedSupervisedDatasetProcessor

    lengths, labelled = samples(count, seed)
    arguments = SimpleNamespace(cutoff_len=cutoff - 1, neat_packing=True)  # as get_train_args shortens it

    class Made(PackedSupervisedDatasetProcessor):
        def _encode_data_example(self, prompt: Any, **rest: Any) -> tuple[list[int], list[int]]:
            number = int(prompt[0]["content"])
            length = min(lengths[number], arguments.cutoff_len)
            return [5] * length, labels(lengths[number], labelled[number])[:length]

    processor = Made(template=None, tokenizer=SimpleNamespace(pad_token_id=0), processor=None, data_args=arguments)
    blank = {f"_{name}": [None] * count for name in ("system", "tools", "images", "videos", "audios")}
    prompts = [[{"role": "user", "content": str(number)}] for number in range(count)]
    data = Dataset.from_dict({"_prompt": prompts, "_response": [[{"content": ""}]] * count, **blank})
    kept = ("input_ids", "attention_mask")
    packed = data.map(
        lambda some: {key: found[key] for found in [processor.preprocess_dataset(some)] for key in kept},
        batched=True,
        batch_size=together,
        remove_columns=data.column_names,
    )
    order = torch.randperm(len(packed), generator=torch.Generator().manual_seed(seed)).tolist()
    found = []
    for number in order:
        row = {key: torch.tensor([packed[number][key]]) for key in kept}
        SFTDataCollatorWith4DAttentionMask._unpad_packed_features(row)
        found.append(list(row["input_ids"].shape))
    case = {"lengths": lengths, "labelled": labelled, "longest": cutoff, "rows": rows, "seed": seed}
    return case | {"together": together, "train": found}


def main() -> None:
    """Write the cases of a trainer."""
    made = {"trl": (trl_batches, TRL), "llamafactory": (llamafactory_batches, LLAMAFACTORY)}
    batches, cases = made[sys.argv[1]]
    print("[" + ",\n".join(json.dumps(batches(*case), separators=(",", ":")) for case in cases) + "]")


if __name__ == "__main__":
    main()
