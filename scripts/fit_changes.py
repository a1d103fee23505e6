"""Write docs/fit-changes.md: what a search may change, from the axes. `--check` only says whether it is current."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from vramwise.files import write_new
from vramwise.variants.axes import ALLOW, AXES, Axis

PAGE = Path(__file__).parent.parent / "docs" / "fit-changes.md"
_EFFECTS = {"same": "same result", "rounding": "same mathematics, other kernels", "changes": "changes the training"}
_HEAD = """# What `fit` may change

Generated from the changes themselves by `make docs`: each says once what it does to the training, and why; every verb
that offers it says the same.

- **Same result**: the same samples in each optimizer step, the same numbers.
- **Same mathematics, other kernels**: the same functions of the same inputs; sums run in another order, so the last
  bits differ, as they do between two cards.
- **Changes the training**: other weights come out. Opened by a word of `--allow` alone, but for the experts of a base
  that the file itself wants quantised.

The effective batch (micro-batch × accumulation × GPUs), the length of rows, the method and the precision are the
file's, unless a word opens them."""
_WITHHELD = """## What is not offered

A choice is withheld where the trainer would refuse the file or stop, and where more would change than it says:

- Another attention in a full fine-tune on one card: Axolotl keeps embeddings, head and norms in fp32 under sdpa and
  eager, and in bf16 under FlashAttention. Nor where rows are packed, nor one that leaves out the model's soft cap
  (Gemma 2 under sdpa).
- FlashAttention 2 where nothing says that it is installed: neither the file nor the versions at hand.
- bitsandbytes' paged 32-bit AdamW for weights in bf16: its states are fp32, torch's are as wide as the weights.
- Liger's kernels where Liger has none for the model; the fused LoRA kernels where they cannot read the base (8 bit) or
  the model's attention.
- Offloading of activations under FSDP, ZeRO, torch.compile and preference training.
- Rows trimmed to their batch under torch.compile, which would compile anew for each width.

LoRA in place of a full fine-tune is written with rank 16, alpha 32 and every linear layer (with experts: attention's);
the learning rate stays as it is, and LoRA usually wants a larger one. A lower rank takes alpha down with it, so that
alpha / rank stays. Axolotl's own DeepSpeed files are named as `axolotl fetch deepspeed_configs` puts them."""


def page() -> str:
    """The whole page."""
    by_default = [axis for axis in AXES if not axis.allow]
    by_word = [(word, axis) for word in ALLOW for axis in AXES if axis.allow == word]
    parts = [_HEAD, "## By default", _table("axis", [(axis.name, axis) for axis in by_default])]
    parts += ["## With `--allow`", _table("word", [(f"`{word}`", axis) for word, axis in by_word]), _WITHHELD]
    return "\n\n".join(parts) + "\n"


def _table(first: str, axes: list[tuple[str, Axis]]) -> str:
    return "\n".join([f"| {first} | change | training | why |", "|---|---|---|---|", *_rows(axes)])


def _rows(axes: list[tuple[str, Axis]]) -> Iterator[str]:
    for shown, axis in axes:
        for kind in axis.kinds:
            yield f"| {shown} | {kind.what} (`{kind.id}`) | {_EFFECTS[kind.effect]} | {kind.why} |"


def main() -> int:
    """Write the page, or with --check compare it."""
    there = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    if "--check" in sys.argv:
        if there != page():
            print("docs/fit-changes.md is not current: run `make docs`")
        return int(there != page())
    write_new(PAGE, page().encode("utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
