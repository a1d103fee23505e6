"""What every command answers, one line an answer: run it before and after a change that must not alter answers.

Each config goes through `check`, `fix --diff` and `predict` in-process, as the command line runs them. A line holds the
exit code and a digest of stdout, JSON with its keys sorted. `diff` of two outputs names the answers that changed;
`--dump FOLDER` also writes each answer as a file, to see how.

    python bench/digest.py [FOLDER ...] [--every 4] [--gpu h200] [--jobs 2] [--dump before/] > before.txt

Without a FOLDER: the examples, every rule's own examples, and the corpora beside the checkout where they are.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

CORPORA = ROOT.parent / "shared" / "corpus"
VERBS = {
    "check": ("check", "--format", "json", "--show-resolved"),
    "fix": ("fix", "--diff", "--unsafe-fixes"),
    "predict": ("predict", "--format", "json"),
}


def configs(folders: list[Path], every: int) -> Iterator[tuple[str, Path]]:
    """Name and path of each config to try."""
    for folder in folders:
        files = sorted(path for path in folder.rglob("*") if path.suffix in (".yml", ".yaml", ".json"))
        for path in files[::every]:
            yield f"{folder.name}/{path.relative_to(folder)}", path


def rule_examples(folder: Path) -> None:
    """Write every rule's `bad` and `good` text into a folder."""
    from vramwise import rules

    for rule in rules():
        for kind in ("bad", "good"):
            (folder / f"{rule.id}.{kind}.yml").write_text(getattr(rule, kind), encoding="utf-8")


def answer(words: tuple[str, ...], path: Path) -> tuple[int, str]:
    """Exit code and stdout of one command."""
    from vramwise.cli.main import main

    out, code = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline=""), 0
    sys.argv = ["vramwise", *words, str(path)]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.TextIOWrapper(io.BytesIO())):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    out.flush()
    return code, _settled(out.buffer.getvalue().decode(), path)


def _settled(text: str, path: Path) -> str:
    """The same text wherever the file is, and however JSON orders its keys."""
    text = text.replace(str(path), path.name).replace(str(path.parent), "")
    text = re.sub(r'"(version|vramwise)": "[0-9.]+"', '"version": ""', text)
    with contextlib.suppress(ValueError):
        return json.dumps(json.loads(text), sort_keys=True, indent=1)
    return text


def lines(task: tuple[str, Path, str, str | None]) -> list[str]:
    """The lines of one config."""
    name, path, gpu, dump = task
    found = []
    for verb, words in VERBS.items():
        code, text = answer((*words, "--gpu", gpu), path)
        found.append(f"{name} {verb} {code} {hashlib.sha256(text.encode()).hexdigest()[:16]}")
        if dump:
            (Path(dump) / f"{name.replace('/', '__')}.{verb}").write_text(f"{code}\n{text}", encoding="utf-8")
    return found


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--every", type=int, default=1, help="only every Nth file of a folder")
    parser.add_argument("--gpu", default="h200", help="a large card: nothing is searched where a run fits")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dump", help="write each answer into this folder")
    asked = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    if asked.dump:
        Path(asked.dump).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        folders = asked.folders
        if not folders:
            rules_folder = Path(made) / "rules"
            rules_folder.mkdir()
            rule_examples(rules_folder)
            corpora = [CORPORA / name for name in ("axolotl", "trl", "llamafactory")]
            folders = [ROOT / "examples", rules_folder, *(one for one in corpora if one.is_dir())]
        tasks = [(name, path, asked.gpu, asked.dump) for name, path in configs(folders, asked.every)]
        with ProcessPoolExecutor(asked.jobs) as pool:
            for found in pool.map(lines, tasks, chunksize=4):
                print(*found, sep="\n", flush=True)


if __name__ == "__main__":
    main()
