"""The page's wording for command-line terms: actions, and the names of its fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ACTIONS: Mapping[str, str] = {
    "choose a card": "choose a card",
    "say how many cards": "set Cards to how many there are",
    "several cards": "several (Cards)",
    "read the lengths": "set Sequence length to this under What if to make sure",
    "read how long": "set Sequence length to this under What if to make sure",
    "lengths": "the page does not read data",
    "prompt lengths": "the page does not read data",
    "name the model": "write a known model of the same shape into the config",
    "try a step": "the first steps of the run on that card",
    "simulate more": "the others are narrower",
    "allow": "ticking “{}”",
    "allow several": " and ",
    "allowed only": "needs a ticked box",
    "nothing to allow": "Ticking the other boxes was not found to make it fit",
    "search less": "untick boxes to leave fewer",
    "keep room": "see Variants below",
    "list the cards": "choose a card",
    "insist": "paste a training config",
    "name the call": "paste the script or notebook with the call that creates the trainer",
    "add a model": "add one to the config",
    "write a model": "write a model there",
    "name its origin": "Write the one it was made from into the config",
    "point to a model": "Write a known model of the same shape into the config",
    "looked for a model": "not in the catalogue",
    "fetch a model": "",
    "give the config": "paste the config of the run into the editor",
    "give the snapshot": "drop snapshot.pickle on the page",
    "say the trainer": "paste the config of the run to get its own keys",
}
# Changes to the training that a search may make, as labels of checkboxes.
ALLOWED: Mapping[str, str] = {
    "lora": "train LoRA adapters instead of all weights",
    "qlora": "load the base in 4 bits and train LoRA adapters",
    "8bit-optimizer": "keep optimizer states in 8 bits",
    "shorter-sequences": "halve the sequence length, repeatedly; long samples are dropped or cut",
    "lower-rank": "halve the LoRA rank, repeatedly, with alpha in proportion",
    "bf16-weights": "keep trained weights, their gradients and states in bf16, not fp32",
    "narrower-targets": "train LoRA adapters on attention alone",
    "no-evaluation": "do not evaluate during training",
    "compile": "compile the model with torch.compile, if rows have one width",
    "fp8": "multiply matrices in fp8 with torch.compile, on cards that support it",
    "packing": "pack several samples into each row, so a step sees more of them",
    "fsdp": "shard weights, gradients and states over several cards with FSDP2",
    "zero": "shard states, gradients or weights over several cards with DeepSpeed ZeRO",
}
# Options shown under the name of their field: in errors, and as the origin of a value.
_FIELDS = {
    "--gpus": "Cards",
    "--gpu": "Card",
    "--with": "Versions",
    "--torch": "Versions",
    "--alloc-conf": "Allocator",
}
_OPTION = re.compile(rf"({'|'.join(_FIELDS)})\b")


def with_fields(answer: Any) -> Any:
    """Return an answer with the page's names for options. Config text, chart data and HTML pages stay unchanged."""
    if isinstance(answer, str):
        return _OPTION.sub(lambda found: _FIELDS[found[1]], answer)
    if isinstance(answer, list):
        return [with_fields(one) for one in answer]
    if isinstance(answer, dict):
        return {name: one if name in ("text", "data", "html") else with_fields(one) for name, one in answer.items()}
    return answer
