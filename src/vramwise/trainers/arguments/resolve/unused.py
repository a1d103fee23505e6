"""Fields for what none of these trainers has, and for what installed versions alone decide."""

from __future__ import annotations

from vramwise.trainers.arguments.values import Arguments
from vramwise.trainers.installed import resolve_installed
from vramwise.types import SETTINGS, Target


def resolve_absent(args: Arguments, target: Target) -> None:
    """Fill every rare setting that is not filled yet, and those that versions decide. To be called last."""
    missing = [name for name, setting in SETTINGS.items() if setting.rare and name not in args.values]
    args.fields.neutral(*missing, why="the trainer has no such feature")
    resolve_installed(args.fields, target.stack)
