"""Write docs/unread-keys.md: the keys of each trainer that no prediction reads, and why that is so.

    python scripts/unread_keys.py            # writes the page
    python scripts/unread_keys.py --check    # only says whether it is current

The table itself is src/vramwise/trainers/unread.json; the text about drawn keys is kept.
"""

from __future__ import annotations

import json
import sys

from generated import ROOT, write_or_check

TABLE = ROOT / "src/vramwise/trainers/unread.json"
PAGE = ROOT / "docs/unread-keys.md"
DRAWN = "## Twenty harmless keys, drawn"
TITLES = {
    "arguments": "transformers' TrainingArguments (TRL, LLaMA-Factory, Unsloth, scripts)",
    "trl": "TRL (and Unsloth)",
    "llamafactory": "LLaMA-Factory",
    "unsloth": "Unsloth",
    "axolotl": "Axolotl",
}
EFFECTS = {"more": "may need more", "less": "may need less", "said": "said, without a range"}
HEAD = """# Keys that no prediction reads

Every key of the trainers' schemas is read by a resolver, harmless for a reason, or named in the answer as "not
counted". `src/vramwise/trainers/unread.json` is the table behind this page (written by `scripts/unread_keys.py`);
`tests/lookup/test_unread.py` fails where a key is in none of the three. A key that only adds, or only takes, leaves
that end of the range open. A star stands for any text.
"""


def page(drawn: str) -> str:
    """Return the page; `drawn`: its last section."""
    lines = [HEAD]
    for part in TITLES:
        sorted_keys = json.loads(TABLE.read_text())[part]
        lines += [f"## {TITLES[part]}", "", "| named key | effect | why |", "| --- | --- | --- |"]
        for key, entry in sorted_keys["named"].items():
            unless = ", ".join(str(value) for value in entry.get("unless", ()))
            why = entry["why"] + (f" (unless {unless})" if unless else "")
            lines.append(f"| `{key}` | {EFFECTS[entry['effect']]} | {why} |")
        lines += ["", "| harmless because | keys |", "| --- | --- |"]
        lines += [
            f"| {why} | {' '.join(f'`{key}`' for key in keys)} |" for why, keys in sorted_keys["harmless"].items()
        ]
        lines.append("")
    return "\n".join(lines) + drawn


def main() -> int:
    """Write the page, or with --check compare it."""
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else DRAWN
    return write_or_check({PAGE: page(before[before.index(DRAWN) :])})


if __name__ == "__main__":
    sys.exit(main())
