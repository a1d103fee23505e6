"""Write docs/rules/: one page a rule and an index, from the rules. `--check` only says whether they are current."""

from __future__ import annotations

import sys
from pathlib import Path

from vramwise.files import write_new
from vramwise.render.rule_text import rule_page
from vramwise.rules.base import TOPICS
from vramwise.trainers.rulebook import all_rules

FOLDER = Path(__file__).parent.parent / "docs" / "rules"


def index() -> str:
    """The list of all rules, by topic."""
    parts = [
        "# Rules",
        f"{len(all_rules())} rules. Generated from the rules by `make docs`; `vramwise explain ID` prints a page.",
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
    wanted = {f"{rule.id}.md": rule_page(rule) for rule in all_rules()} | {"README.md": index()}
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")} if FOLDER.is_dir() else {}
    if "--check" in sys.argv:
        stale = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
        if stale:
            print(f"docs/rules is not current ({', '.join(stale[:5])}…): run `make docs`")
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in there.keys() - wanted.keys():
        (FOLDER / name).unlink()
    for name, text in wanted.items():
        write_new(FOLDER / name, text.encode("utf-8"))
    print(f"{len(wanted)} pages written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
