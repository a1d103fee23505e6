"""Pictures of the terminal for the pages: real output of real commands, drawn as SVG.

    python scripts/pictures.py            # draw them anew
    python scripts/pictures.py --check    # only say whether they are up to date

Each page names its picture; the commands run in this repository, without a GPU, with the versions said here.
"""

from __future__ import annotations

import os
import sys
from html import escape

from click.testing import CliRunner

from generated import ROOT, write_or_check
from vramwise.cli.main import cli

FOLDER = ROOT / "docs" / "pictures"
SAID = ["--torch", "2.13", "--with", "axolotl==0.21.0"]
COMMANDS = {
    "predict": ["predict", "examples/picture.yml", "--gpu", "rtx-4090"],
    "fit": ["fit", "examples/picture.yml", "--gpu", "rtx-4090"],
    "notebook": ["fit", "examples/support.ipynb", "--gpu", "rtx-4090"],
    "check": ["check", "examples/picture.yml", "--gpu", "rtx-4090"],
    "diagnose": ["diagnose", "examples/picture.log", "--config", "examples/picture.yml", "--gpu", "rtx-4090"],
}
# Whose output no two runs share: as it was printed once, the folder it ran in left out.
RECORDED = {"train": ["train", "examples/tiny/config.yml", "--random-weights"]}
WIDTH, MOST_LINES = 100, 34
LINE_HEIGHT, LETTER = 19, 8.43
COLOURS = (("✓", "#4ec97b"), ("✗", "#ff6b6b"), ("? ", "#e5c07b"), ("! ", "#e5c07b"), ("$", "#7aa2f7"))
DIFF = {"+": "#4ec97b", "-": "#ff6b6b", "@": "#7dcfff"}
STYLE = "font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre"


def output_of(words: list[str]) -> str:
    """What a command prints."""
    result = CliRunner().invoke(cli, [*words, *SAID], env={"COLUMNS": str(WIDTH), "NO_COLOR": "1"})
    return result.stdout


def lines_of(words: list[str]) -> list[str]:
    """The command and the first lines of its output, none wider than the picture."""
    return shown_as(words, output_of(words))


def shown_as(words: list[str], output: str) -> list[str]:
    """A command and its output as lines of the picture."""
    shown = [f"$ vramwise {' '.join(words)}"]
    for line in output.splitlines():
        while len(line) > WIDTH:
            cut = line.rfind(" ", 0, WIDTH)
            cut = cut if cut > WIDTH // 2 else WIDTH
            shown.append(line[:cut])
            line = "      " + line[cut:].lstrip()
        shown.append(line)
    return shown if len(shown) <= MOST_LINES else [*shown[: MOST_LINES - 1], "…"]


def svg(lines: list[str]) -> str:
    """The lines as a picture of a terminal, readable on light and dark pages."""
    width, height = int(WIDTH * LETTER) + 32, len(lines) * LINE_HEIGHT + 28
    texts = [
        f'<text x="16" y="{24 + number * LINE_HEIGHT}" fill="{_colour(line)}" style="{STYLE}">{escape(line)}</text>'
        for number, line in enumerate(lines)
        if line.strip()
    ]
    label = escape(lines[0])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
        f'<rect width="{width}" height="{height}" rx="8" fill="#1b1e2b"/>' + "".join(texts) + "</svg>\n"
    )


def _colour(line: str) -> str:
    for start, colour in COLOURS:
        if line.startswith(start):
            return colour
    if line[:1] in DIFF and not line.startswith(("+++", "---")):
        return DIFF[line[0]]
    return "#ff6b6b" if " error " in line[:60] else "#e5c07b" if " warning " in line[:60] else "#d8dee9"


def main() -> int:
    """Draw, or with --check compare."""
    os.chdir(ROOT)
    drawn = {name: lines_of(words) for name, words in COMMANDS.items()}
    for name, words in RECORDED.items():
        drawn[name] = shown_as(words, (FOLDER / f"{name}.txt").read_text(encoding="utf-8"))
    return write_or_check({FOLDER / f"{name}.svg": svg(lines) for name, lines in drawn.items()})


if __name__ == "__main__":
    sys.exit(main())
