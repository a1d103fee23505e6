"""`fix` and `fit --write` on copies of all scripts and notebooks of a folder: what changes, is the file still whole?

Usage: python bench/scripts_edits.py [FOLDER] [--gpu CARD] [--every N] [--verb fix|fit] [--jobs N] [--out FOLDER]

A changed script must parse, and differ in literals and keyword arguments alone. The same holds for the cells of a
changed notebook, which must be valid JSON, and one for nbformat where that is installed; its outputs, metadata, ids and
other cells must be what they were, and every line outside of changed cells byte for byte. Exit 1 where one is not.
--out: a line for each file in edits_VERB.jsonl, and the changed files in edits_VERB.zip.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

DEFAULT = Path(__file__).parent.parent.parent / "shared" / "corpus" / "scripts"
COMMANDS = {
    "fix": ["fix", "--unsafe-fixes"],
    "fit": ["fit", "--write", "--offline", "--allow", "qlora"],
}
LONGEST = 300  # seconds for one file
_MAGIC = re.compile(r"^\s*[%!].*$", re.MULTILINE)


class _Outline(ast.NodeTransformer):
    """Takes out what an edit may change: literals, keyword arguments and entries of dicts that are literals."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.copy_location(ast.Constant(value=0), node)

    def visit_List(self, node: ast.List) -> ast.AST:
        self.generic_visit(node)
        return ast.Constant(value=0) if all(isinstance(one, ast.Constant) for one in node.elts) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords = [one for one in node.keywords if not isinstance(one.value, ast.Constant)]
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        self.generic_visit(node)
        kept = [one for one in zip(node.keys, node.values, strict=True) if not isinstance(one[1], ast.Constant)]
        node.keys, node.values = [key for key, _ in kept], [value for _, value in kept]
        return node


def outline(source: str | bytes) -> str:
    """A source without what an edit may change. Raises SyntaxError where it does not parse."""
    return ast.dump(_Outline().visit(ast.parse(source)))


def without_sources(notebook: dict[str, Any]) -> dict[str, Any]:
    """A notebook with the sources of its code cells taken out."""
    cells = [
        {key: value for key, value in cell.items() if key != "source" or cell.get("cell_type") != "code"}
        for cell in notebook["cells"]
    ]
    return {**notebook, "cells": cells}


def faults(before: bytes, after: bytes, name: str) -> list[str]:
    """What is wrong with a changed file."""
    if name.endswith(".py"):
        return list(_source_faults(before.decode(), after.decode()))
    try:
        old, new = json.loads(before), json.loads(after)
    except ValueError as error:
        return [f"is no JSON: {error}"]
    found = [] if without_sources(old) == without_sources(new) else ["changed outside of code cells' sources"]
    for was, now in zip(old["cells"], new["cells"], strict=False):
        if was != now:
            texts = ["".join(one["source"]) for one in (was, now)]
            found += _source_faults(*[_MAGIC.sub("pass", text) for text in texts])
    spread = [len(json.dumps(one["source"])) for one in new["cells"]]
    if len(changed_lines(before, after)) > 60 and max(spread) < 60_000:
        found.append("changed its layout")
    return [*found, *_notebook_faults(new)]


def _source_faults(before: str, after: str) -> Iterator[str]:
    try:
        same = outline(before) == outline(after)
    except SyntaxError as error:
        yield f"does not parse: {error}"
        return
    if not same:
        yield "changed more than literals and keyword arguments"


def _notebook_faults(notebook: dict[str, Any]) -> Iterator[str]:
    """What nbformat says of it, where that is installed."""
    try:
        import nbformat
    except ImportError:
        return
    try:
        nbformat.validate(nbformat.from_dict(notebook))
    except nbformat.ValidationError as error:
        yield f"nbformat refuses it: {str(error)[:200]}"


def changed_lines(before: bytes, after: bytes) -> list[str]:
    """The lines that a change takes out or adds."""
    both = [text.decode("utf-8", "replace").splitlines() for text in (before, after)]
    found = difflib.unified_diff(*both, lineterm="", n=0)
    return [line for line in found if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def edited(path: Path, verb: str, gpu: str) -> dict[str, Any]:
    """What a verb did to a copy of one file."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        command = [sys.executable, "-m", "vramwise", *COMMANDS[verb], str(copy), "--gpu", gpu]
        began = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
            code, said = done.returncode, done.stderr
        except subprocess.TimeoutExpired:
            code, said = 124, ""
        before, after = path.read_bytes(), copy.read_bytes()
    wrong = ["traceback"] if "Traceback" in said else []
    wrong += faults(before, after, path.name) if before != after else []
    return {
        "name": path.name,
        "exit": code,
        "seconds": round(time.perf_counter() - began, 1),
        "changed": before != after,
        "lines": changed_lines(before, after) if before != after else [],
        "wrong": wrong,
        "said": said[-300:] if wrong or code == 2 else "",
        "after": after if before != after else b"",
    }


def main() -> int:
    """Print what was changed and what is wrong; exit 1 where something is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default=str(DEFAULT))
    parser.add_argument("--gpu", default="rtx-4090")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--verb", choices=COMMANDS, default="fix")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=36_000, help="begin no file after so many")
    asked = parser.parse_args()
    until = time.time() + asked.seconds
    counts: Counter[str] = Counter()
    paths = sorted(Path(asked.folder).iterdir())[:: asked.every]
    with ThreadPoolExecutor(asked.jobs) as pool:
        for row in pool.map(lambda path: edited(path, asked.verb, asked.gpu) if time.time() < until else None, paths):
            if row is not None:
                after = row.pop("after")
                _tell(row, counts)
                if asked.out is not None:
                    _keep(asked.out, asked.verb, row, after)
    print("; ".join(f"{count} {word}" for word, count in counts.most_common()), f"of {len(paths)}")
    return 1 if counts["wrong"] else 0


def _tell(row: dict[str, Any], counts: Counter[str]) -> None:
    counts["changed" if row["changed"] else f"unchanged, exit {row['exit']}"] += 1
    if row["changed"]:
        print(f"{row['name']}: {' | '.join(line.strip() for line in row['lines'])[:400]}", flush=True)
    if row["wrong"]:
        counts["wrong"] += 1
        print(f"WRONG {row['name']}: {'; '.join(row['wrong'])} {row['said']}", flush=True)


def _keep(out: Path, verb: str, row: dict[str, Any], after: bytes) -> None:
    with (out / f"edits_{verb}.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    if after:
        with zipfile.ZipFile(out / f"edits_{verb}.zip", "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(row["name"], after)


if __name__ == "__main__":
    sys.exit(main())
