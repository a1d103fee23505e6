"""Write docs/fit-changes.md: what a search may change, from the axes. `--check` only says whether it is current."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from generated import ROOT, write_or_check
from vramwise.variants.axes import ALLOW, AXES, Axis

PAGE = ROOT / "docs" / "fit-changes.md"
_EFFECTS = {"same": "same result", "rounding": "same mathematics, other kernels", "changes": "changes the training"}
_HEAD = """# What `fit` may change

This page is generated from the code by `make generate`. It lists every change that `fit` and the other commands can
offer, its effect on the training, and the reason.

- **Same result**: the same samples in each optimizer step, and the same numbers.
- **Same mathematics, other kernels**: the same functions of the same inputs. Sums run in another order, so the last
  bits differ, as they do between two cards.
- **Changes the training**: the resulting weights differ. These changes need a word of `--allow`. The one exception is
  quantising the experts of a base that the file already asks to quantise.

`fit` never changes the effective batch (micro-batch × accumulation × GPUs), row length, method or precision, unless you
allow it."""
_WITHHELD = """## What is not offered

`fit` does not offer a change if the trainer would refuse the file or stop, or if the change would have side effects:

- **Another attention implementation** in a full fine-tune on one card: Axolotl keeps embeddings, head and norms in fp32
  with sdpa and eager, and in bf16 with FlashAttention. It is also not offered for packed rows, or if the new attention
  ignores the model's soft cap (Gemma 2 with sdpa).
- **FlashAttention 2**, unless the file or the given versions show that it is installed.
- **bitsandbytes' paged 32-bit AdamW** for bf16 weights: its states are fp32, while torch's have the type of the
  weights.
- **Liger's kernels** if Liger has none for the model, and the fused LoRA kernels if they do not support the base
  (8-bit) or the model's attention.
- **Offloading activations** under FSDP, ZeRO, torch.compile or preference training.
- **Trimming rows to their batch** under torch.compile, which would recompile for each width.

## What a change writes

- LoRA instead of a full fine-tune: rank 16, alpha 32, every linear layer (in a mixture of experts: the attention
  layers). The learning rate does not change; LoRA usually needs a larger one.
- A lower rank also lowers alpha, so that alpha / rank stays the same.
- Axolotl's own DeepSpeed files are named as `axolotl fetch deepspeed_configs` stores them."""


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
    return write_or_check({PAGE: page()})


if __name__ == "__main__":
    sys.exit(main())
