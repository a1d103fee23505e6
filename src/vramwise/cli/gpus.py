"""`vramwise gpus`: the cards that --gpu knows."""

from __future__ import annotations

import click

from vramwise.cli.writing import say_all
from vramwise.facts.gpus import all_gpus
from vramwise.types import GpuSpec
from vramwise.units import gib


@click.command("gpus")
def command() -> None:
    """List the cards vramwise knows: memory, compute capability, bf16, fp8."""
    cards = all_gpus()
    width = max(len(card.name) for card in cards)
    say_all(f"{card.name.ljust(width)}  {gib(card.memory_bytes).rjust(9)}  {_capability(card)}" for card in cards)


def _capability(card: GpuSpec) -> str:
    arch = "AMD" if card.capability is None else f"sm_{card.capability[0]}{card.capability[1]}"
    dtypes = [name for name, has in (("bf16", card.bf16), ("fp8", card.fp8)) if has]
    return f"{arch.ljust(6)}  {' '.join(dtypes)}".rstrip()
