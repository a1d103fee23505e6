"""Write trainers/arguments/schema/words.json: trainers' keys, and the field of a run that each decides.

    python scripts/other_words.py            # writes the file
    python scripts/other_words.py --check    # only says whether it is current

Whoever comes from another trainer writes its words: with this a key that is unknown here is told by the name that it
has here. Taken from what each trainer makes of a file that says nothing.
"""

from __future__ import annotations

import json
import sys

from generated import ROOT, write_or_check
from vramwise.documents.document import parse_document
from vramwise.facts.gpus import find_gpu
from vramwise.lookup.keys import known_keys
from vramwise.opening.stacks import make_stack
from vramwise.trainers.registry import trainer_named
from vramwise.trainers.trl.keys import GONE
from vramwise.types import Target

TARGET = ROOT / "src/vramwise/trainers/arguments/schema/words.json"
# What people set by hand, and would look for under another name.
FIELDS = (
    *("base_model", "micro_batch_size", "eval_batch_size", "gradient_accumulation_steps", "sequence_len"),
    *("sample_packing", "adapter", "quantization", "nested_scales", "lora_r", "lora_alpha", "lora_dropout"),
    *("lora_target_modules", "lora_modules_to_save", "use_dora", "use_rslora", "attn_implementation", "optimizer"),
    *("weights_dtype", "precision", "gradient_checkpointing", "liger", "evaluates", "group_by_length"),
    *("completion_len", "rows_per_prompt"),
)
TRAINERS = ("axolotl", "llamafactory", "trl", "trl:grpo")


def keys_of(name: str) -> dict[str, str]:
    """Field → key, of a file that says nothing."""
    trainer = trainer_named(name)
    stack = make_stack(trainer.package, trainer.releases(), look_around=False)
    target = Target(gpu=find_gpu("h100"), gpus=1, stack=stack, alloc_env={})
    return dict(trainer.resolve(parse_document("<text>", b"{}"), target, {}).keys)


def words() -> dict[str, str]:
    """Key → field: real keys alone, each with the first field that it decides."""
    found: dict[str, str] = {}
    for name in TRAINERS:
        keys, known = keys_of(name), known_keys(trainer_named(name))
        for field in FIELDS:
            if keys.get(field) in known:
                found.setdefault(keys[field], field)
    renamed = {old: found[now] for old, now in GONE.items() if now in found and old not in found}
    return dict(sorted((found | renamed).items()))


def main() -> int:
    """Write the file, or with --check compare it."""
    return write_or_check({TARGET: json.dumps(words(), indent=1) + "\n"})


if __name__ == "__main__":
    sys.exit(main())
