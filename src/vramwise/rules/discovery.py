"""Rules are found by being there: every rule of every module below a package, a folder a topic."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from vramwise.rules.base import TOPICS, Rule


@cache
def rules_below(package: str) -> tuple[Rule, ...]:
    """The rules of a package such as `vramwise.rules`, topic by topic, in each by id."""
    return tuple(rule for topic in _topics(package) for rule in _rules(f"{package}.{topic}"))


def _topics(package: str) -> list[str]:
    present = {found.name for found in iter_modules(import_module(package).__path__)}
    return [topic for topic in TOPICS if topic in present]


def _rules(folder: str) -> list[Rule]:
    """A module holds one rule, several as rows, or none if it only helps others."""
    modules = [import_module(f"{folder}.{found.name}") for found in iter_modules(import_module(folder).__path__)]
    rules = [value for module in modules for value in vars(module).values() if isinstance(value, Rule)]
    return sorted(rules, key=lambda rule: rule.id)


def common_rules() -> tuple[Rule, ...]:
    """The rules that hold for every trainer."""
    return rules_below("vramwise.rules")
