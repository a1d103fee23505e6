"""`vramwise gpus`: lists the cards that --gpu knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from vramwise.cli.options import completed
from vramwise.cli.writing import say_all
from vramwise.facts.context import usable_bytes
from vramwise.facts.gpus import all_gpus, matching_gpus
from vramwise.render.json_text import json_text
from vramwise.render.knowledge import gpu_json
from vramwise.render.outward import style
from vramwise.types import GpuSpec
from vramwise.units import gib

_HEADER = ("card", "memory", "usable", "arch", "computes in")


@click.command("gpus")
@click.argument("words", nargs=-1, metavar="[WORD]...", shell_complete=completed("complete_cards"))
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(words: tuple[str, ...], output_format: str) -> None:
    """List the known cards with total and usable memory, compute capability, bf16 and fp8 support.

    Usable memory is what the driver reports, minus the CUDA context of one process.

    Each WORD filters the list: part of a name (4090, h100), an architecture (sm_90, amd), a dtype (fp8), or a minimum
    size (40GB).
    """
    cards = matching_gpus(words) if words else all_gpus()
    if output_format == "json":
        say_all(
            json_text({"version": 1, "gpus": [gpu_json(card, usable_bytes(card)) for card in cards]}, indent=2).split(
                "\n"
            )
        )
    elif cards:
        say_all(_table(cards))
    else:
        say_all([f"no card matches {' '.join(words)}: `vramwise gpus` lists them all"], err=True)


def _table(cards: Sequence[GpuSpec]) -> Iterator[str]:
    rows = [
        (card.name, gib(card.memory_bytes), gib(usable_bytes(card)), _arch(card), " ".join(_dtypes(card)))
        for card in cards
    ]
    widths = [max(len(row[column]) for row in (_HEADER, *rows)) for column in range(len(_HEADER))]
    for row in (_HEADER, *rows):
        name, *sizes, arch, dtypes = row
        memory, usable = (size.rjust(width) for size, width in zip(sizes, widths[1:3], strict=True))
        line = f"{name.ljust(widths[0])}  {memory}  {usable}  {arch.ljust(widths[3])}  {dtypes}".rstrip()
        yield style(line, bold=True) if row is _HEADER else line


def _arch(card: GpuSpec) -> str:
    return "AMD" if card.capability is None else f"sm_{card.capability[0]}{card.capability[1]}"


def _dtypes(card: GpuSpec) -> list[str]:
    return ["fp16", *(name for name, has in (("bf16", card.bf16), ("fp8", card.fp8)) if has)]
