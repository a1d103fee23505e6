"""Write docs/rules/: one page a rule and an index, from the rules. `--check` only says whether they are current."""

from __future__ import annotations

import sys

from generated import ROOT, write_or_check
from vramwise.render.knowledge import rule_page
from vramwise.rules.base import TOPICS
from vramwise.trainers.rulebook import all_rules

FOLDER = ROOT / "docs" / "rules"


def index() -> str:
    """The list of all rules, by topic."""
    parts = [
        "# Rules",
        f"{len(all_rules())} rules. Generated from the rules by `make generate`; `vramwise explain ID` prints a page.",
    ]
    for topic in TOPICS:
        rows = [rule for rule in all_rules() if rule.topic == topic]
        if rows:
            table = ["| rule | severity | finds |", "|---|---|---|"]
            table += [f"| [{rule.id}]({rule.id}.md) | {rule.shown_severity} | {rule.title} |" for rule in rows]
            parts += [f"## {topic.capitalize()}", "\n".join(table)]
    beyond = [rule for rule in all_rules() if rule.beyond_trainer]
    parts.append("## Beyond the trainer")
    parts.append("What the trainer accepts and these rules report all the same, with the reason:")
    parts.append("\n".join(f"- [{rule.id}]({rule.id}.md): {rule.beyond_trainer}" for rule in beyond))
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Write the pages, or with --check compare them."""
    wanted = {FOLDER / f"{rule.id}.md": rule_page(rule) for rule in all_rules()} | {FOLDER / "README.md": index()}
    return write_or_check(wanted, gone=frozenset(FOLDER.glob("*.md")) - wanted.keys())


if __name__ == "__main__":
    sys.exit(main())
