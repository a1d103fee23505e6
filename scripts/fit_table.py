"""The table of what `fit` may change, on its page: written from the axes of the search, so that it is what is searched.

python scripts/fit_table.py            # write it anew
python scripts/fit_table.py --check    # only say whether it is up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from vramwise.variants.axes import ALLOW, AXES  # noqa: E402

PAGE = ROOT / "docs" / "fit.md"
EFFECTS = {"same": "same result", "rounding": "same mathematics, other kernels", "changes": "changes the training"}


def always() -> list[str]:
    """What every search may vary."""
    lines = ["| what | to the training | why |", "|---|---|---|"]
    kinds = {kind.what: kind for axis in AXES if not axis.allow for kind in axis.kinds}
    return lines + [f"| {kind.what} | {EFFECTS[kind.effect]} | {kind.why} |" for kind in kinds.values()]


def allowed() -> list[str]:
    """What each word opens."""
    lines = ["| word | opens | what that does |", "|---|---|---|"]
    for word, what in ALLOW.items():
        whys = dict.fromkeys(kind.why for axis in AXES if axis.allow == word for kind in axis.kinds)
        lines.append(f"| `{word}` | {what} | {'; '.join(whys)} |")
    return lines


def page(text: str) -> str:
    """The page with both tables as they are now."""
    for name, lines in (("always", always()), ("allow", allowed())):
        start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        text = before + start + "\n".join(lines) + "\n" + end + after
    return text


def main() -> int:
    """Write, or compare."""
    now = PAGE.read_text(encoding="utf-8")
    wanted = page(now)
    if "--check" in sys.argv:
        if now != wanted:
            sys.stdout.write("docs/fit.md is not up to date: run scripts/fit_table.py\n")
        return int(now != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
