"""Rules, keys, cards and search results for agents and `--format json`: as plain values, a rule also as its page."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vramwise.lookup.keys import KeyPage
from vramwise.lookup.search import Found
from vramwise.rules.base import Rule
from vramwise.types import GpuSpec


def rule_json(rule: Rule) -> dict[str, Any]:
    """Return a rule as plain values."""
    return {
        "id": rule.id,
        "severity": rule.severity.value,
        "severities": [severity.value for severity in rule.severities],
        "topic": rule.topic,
        "title": rule.title,
        "needs": sorted(rule.needs),
        "beyond_trainer": rule.beyond_trainer or None,
        "beyond_axolotl": rule.beyond_trainer or None,  # the former name, kept for existing readers
    }


def rule_page(rule: Rule) -> str:
    """Return the page of a rule as Markdown."""
    parts = [
        f"# {rule.id}",
        f"**{rule.severity.value}**{_other_cases(rule)} · {rule.topic}{_needs(rule)}",
        rule.title,
        rule.documentation,
    ]
    if rule.beyond_trainer:
        parts.append(f"**Not checked by the trainer.** {rule.beyond_trainer}")
    parts.append("## Example")
    parts.append(_example("Bad", rule.bad, rule.options))
    parts.append(_example("Good", rule.good, rule.good_options))
    parts.append(f"To ignore it, add this comment to the line: `# vramwise: ignore[{rule.id}] reason`")
    return "\n\n".join(parts) + "\n"


def _other_cases(rule: Rule) -> str:
    others = [one.value for one in rule.severities if one is not rule.severity]
    return f" (in other cases {' or '.join(others)})" if others else ""


def _needs(rule: Rule) -> str:
    words = {"gpu": "a named card (`--gpu`)", "memory": "a prediction", "model": "a known model"}
    return f" · needs {' and '.join(words[need] for need in sorted(rule.needs))}" if rule.needs else ""


def _example(title: str, text: str, options: str) -> str:
    under = f" (`{options}`)" if options else ""
    language = "python" if "import " in text.partition("\n")[0] else "yaml"
    return f"{title}{under}:\n```{language}\n{text.rstrip()}\n```"


def found_json(found: Found) -> dict[str, Any]:
    """Return one search result as plain values."""
    entry = found.entry
    return {
        "kind": entry.kind,
        "name": entry.name,
        "title": entry.title,
        "excerpt": found.excerpt,
        "see": entry.see,
        "score": round(found.score, 2),
    }


def key_json(page: KeyPage) -> dict[str, Any]:
    """Return all that is known about a key; unknown values are null."""
    return {
        "trainer": page.trainer,
        "key": page.key,
        "memory": page.memory or None,
        "field": page.field or None,
        "names": list(page.names),
        "needs": page.needs or None,
        "versions": [{**asdict(one), "versions": list(one.versions)} for one in page.versions],
        "rules": list(page.rules),
    }


def gpu_json(card: GpuSpec, usable_bytes: int) -> dict[str, Any]:
    """Return one card as plain values. `usable_bytes`: what a run may reserve on it."""
    return {
        "name": card.name,
        "vendor": card.vendor,
        "usable_bytes": card.memory_bytes,
        "usable_by_a_run_bytes": usable_bytes,
        "capability": None if card.capability is None else ".".join(str(part) for part in card.capability),
        "multiprocessors": card.multiprocessors,
        "bf16": card.bf16,
        "fp8": card.fp8,
    }
