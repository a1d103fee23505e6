"""Read what Axolotl's source says without running it: plugin classes, name tables, the optimizers that have a branch.

Works on an unpacked wheel (`root` is the folder that holds `axolotl/`), by its syntax tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry import Archive

ENUMS = "axolotl/utils/schemas/enums.py"
OLD_SCHEMA = "axolotl/utils/config/models/input/v0_4_1/__init__.py"  # up to 0.7
PINNED = (
    "torch",
    "transformers",
    "peft",
    "trl",
    "accelerate",
    "datasets",
    "tokenizers",
    "huggingface_hub",
    "kernels",
    "bitsandbytes",
    "liger-kernel",
    "fla-core",
    "torchao",
    "pydantic",
)


@dataclass(frozen=True)
class Plugin:
    """A plugin class: the folder that holds it, how `plugins:` names it, the model of its keys (None: it has none)."""

    folder: str
    path: str
    args: str | None


def plugins(root: Path) -> Iterator[Plugin]:
    """Every plugin that Axolotl brings."""
    for folder in sorted((root / "axolotl/integrations").iterdir()):
        for file in sorted(folder.glob("*.py")) if folder.is_dir() else []:
            for node in _tree(file).body:
                if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "BasePlugin" for base in node.bases):
                    yield Plugin(folder.name, _import_path(folder, file, node.name), _args_model(node))


def _import_path(folder: Path, file: Path, name: str) -> str:
    """The short path where the folder exports the class, else the one with the file."""
    exported = name in (folder / "__init__.py").read_text(encoding="utf-8")
    module = folder.name if exported else f"{folder.name}.{file.stem}"
    return f"axolotl.integrations.{module}.{name}"


def _args_model(plugin: ast.ClassDef) -> str | None:
    for node in plugin.body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_input_args":
            returned = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
            paths = [value.value for value in returned if isinstance(value, ast.Constant)]
            return str(paths[0]).rpartition(".")[2] if paths else None
    return None


def built_in_plugins(root: Path) -> list[str]:
    """Plugins that are loaded without being listed; none before 0.20."""
    return list(_constant(root / "axolotl/integrations/base.py", "BUILTIN_PLUGINS") or ())


def attention(root: Path) -> dict[str, Any]:
    """The attention names and what the schema knows of them, in the source's order (the first flag set wins).

    Empty before 0.17: there the flags are keys of their own, and any name goes to transformers.
    """
    tables = {
        "names": "CANONICAL_ATTN_IMPLS",
        "legacy_flags": "LEGACY_ATTN_FLAG_TO_IMPL",
        "refused_short_names": "SHORT_FORM_ALIAS_TO_CANONICAL",
        "varlen_packing": "ATTN_IMPLS_SUPPORTING_PACKING",
        "flash_library": "ATTN_IMPLS_USING_FLASH_LIB",
        "fp32_embeddings": "ATTN_IMPLS_WITHOUT_DTYPE_CAST",
    }
    empty = {"legacy_flags": {}, "refused_short_names": {}}
    return {name: _constant(root / ENUMS, table) or empty.get(name, []) for name, table in tables.items()}


def compile_options(root: Path) -> list[str]:
    """The names that torch_compile_options takes; none before 0.18, which has no such key."""
    return sorted(_constant(root / ENUMS, "INDUCTOR_COMPILE_OPTIONS_ALLOWLIST") or ())


def own_optimizers(root: Path) -> list[str]:
    """The optimizers that Axolotl adds to those of transformers: an enumeration since 0.8, before that a type."""
    if (root / ENUMS).is_file():
        return enumeration(_tree(root / ENUMS), "CustomSupportedOptimizers")
    for node in ast.walk(_tree(root / OLD_SCHEMA)):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "optimizer":
            return [one.value for one in ast.walk(node.annotation) if isinstance(one, ast.Constant)]
    raise LookupError("no type of optimizer")


def deprecated_fields(root: Path) -> set[str]:
    """The keys that the schema has only to refuse or rename them."""
    file = root / "axolotl/utils/schemas/deprecated.py"
    for node in _tree(file if file.is_file() else root / OLD_SCHEMA).body:
        if isinstance(node, ast.ClassDef) and node.name == "DeprecatedParameters":
            return {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)}
    raise LookupError("no DeprecatedParameters")


def optimizers_without_branch(root: Path) -> list[str]:
    """Those of its own optimizers that the trainer builder does not mention: it raises at them."""
    file = root / "axolotl/core/builders/base.py"
    tree = _tree(file if file.is_file() else root / "axolotl/core/trainer_builder.py")
    mentioned = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return [name for name in own_optimizers(root) if name not in mentioned]


def enumeration(tree: ast.Module, name: str) -> list[str]:
    """The values of an enumeration of texts."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            values = [inner.value for inner in node.body if isinstance(inner, ast.Assign)]
            return [str(value.value) for value in values if isinstance(value, ast.Constant)]
    raise LookupError(f"no enumeration {name}")


def pins(archive: Archive) -> tuple[str, dict[str, str]]:
    """The Python range and the version ranges of the packages that matter here.

    Up to 0.12 the source archive lists no torch, because setup.py takes the one that is there: then what its README
    asks for.
    """
    text = archive.metadata() + _readme(archive)
    python = re.search(r"^Requires-Python: (.+)$|Python >=([\d.]+) and", text, re.MULTILINE)
    wanted = {name: str(one.specifier) for name, one in archive.requires().items()}
    torch = re.search(r"PyTorch (?:≥|>=)([\d.]+\d)", text)
    ranges = {"torch": f">={torch[1]}" if torch else "", **wanted}
    named = {package: ranges.get(package.replace("_", "-"), "") for package in PINNED}
    found = {name: ",".join(sorted(one.split(","), reverse=True)) for name, one in named.items() if one}
    return (python[1] or f">={python[2]}" if python else ""), found


def _readme(archive: Archive) -> str:
    return archive.text("README.md") or ""


def _constant(file: Path, name: str) -> Any:
    """A module-level table; a frozenset comes as the list that it is written as. None if there is none."""
    for node in _tree(file).body if file.is_file() else ():
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets):
            if not isinstance(node.value, ast.Call):
                return ast.literal_eval(node.value)
            [members] = node.value.args
            assert isinstance(members, ast.Set)
            return [ast.literal_eval(member) for member in members.elts]
    return None


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))
