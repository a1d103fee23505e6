"""Rules are found by being there: every module with a rule below a package, a folder a topic."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from vramwise.rules.base import TOPICS, Rule


@cache
def rules_below(package: str) -> tuple[Rule, ...]:
    """The rules of a package such as `vramwise.rules`, topic by topic, in each by file name."""
    return tuple(rule for topic in _topics(package) for rule in _rules(f"{package}.{topic}"))


def _topics(package: str) -> list[str]:
    present = {found.name for found in iter_modules(import_module(package).__path__)}
    return [topic for topic in TOPICS if topic in present]


def _rules(folder: str) -> list[Rule]:
    """A module that only helps rules has none."""
    names = sorted(found.name for found in iter_modules(import_module(folder).__path__))
    found = [getattr(import_module(f"{folder}.{name}"), "check", None) for name in names]
    return [rule for rule in found if isinstance(rule, Rule)]


def common_rules() -> tuple[Rule, ...]:
    """The rules that hold for every trainer."""
    return rules_below("vramwise.rules")
