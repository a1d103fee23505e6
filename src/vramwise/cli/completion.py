"""Shell completion for rule ids, cards and model names. Loaded only when the shell asks (see `options.completed`)."""

from __future__ import annotations

import re

import click
from click.shell_completion import CompletionItem

from vramwise.facts.gpus import all_gpus
from vramwise.models.known import catalogue_ids
from vramwise.trainers.rulebook import all_rules
from vramwise.units import gib
from vramwise.variants.axes import ALLOW

# Series whose numbers are names by themselves.
_SERIES = re.compile(r"(rtx|gtx|rx)-\d")
# At most a screenful of completions.
_MOST = 200


def complete_rules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete rule ids, with their titles; in a comma-separated list, the last one."""
    before, comma, last = incomplete.rpartition(",")
    found = [rule for rule in all_rules() if rule.id.startswith(last.strip())]
    return [CompletionItem(f"{before}{comma}{rule.id}", help=rule.title) for rule in found]


def complete_cards(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete card names as written in a shell: rtx-4090, a100-80gb."""
    wanted = incomplete.lower()
    words = {_in_a_shell(card.name): card for card in all_gpus()}
    # `4090` names a card too, and a completion must begin with what was typed.
    words |= {word.partition("-")[2]: card for word, card in words.items() if _SERIES.match(word)}
    return [
        CompletionItem(word, help=f"{card.name}, {gib(card.memory_bytes)}")
        for word, card in words.items()
        if word.startswith(wanted) and (wanted or not word[0].isdigit())
    ]


def complete_allowed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the words of `fit --allow`, with what each permits."""
    return [CompletionItem(word, help=what) for word, what in ALLOW.items() if word.startswith(incomplete.lower())]


def complete_models(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete hub ids of the catalogue; otherwise the shell completes file names."""
    found = [name for name in catalogue_ids() if name.lower().startswith(incomplete.lower())]
    return [CompletionItem(name) for name in found[:_MOST]] or [CompletionItem(incomplete, type="file")]


def _in_a_shell(name: str) -> str:
    kept = "".join(letter if letter.isalnum() else " " for letter in name.lower())
    return "-".join(kept.split())
