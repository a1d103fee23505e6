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

ENUMS = "axolotl/utils/schemas/enums.py"
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
    """The attention names and what the schema knows of them, in the source's order (the first flag set wins)."""
    tables = {
        "names": "CANONICAL_ATTN_IMPLS",
        "legacy_flags": "LEGACY_ATTN_FLAG_TO_IMPL",
        "refused_short_names": "SHORT_FORM_ALIAS_TO_CANONICAL",
        "varlen_packing": "ATTN_IMPLS_SUPPORTING_PACKING",
        "flash_library": "ATTN_IMPLS_USING_FLASH_LIB",
        "fp32_embeddings": "ATTN_IMPLS_WITHOUT_DTYPE_CAST",
    }
    return {name: _constant(root / ENUMS, table) for name, table in tables.items()}


def compile_options(root: Path) -> list[str]:
    """The names that torch_compile_options takes."""
    return sorted(_constant(root / ENUMS, "INDUCTOR_COMPILE_OPTIONS_ALLOWLIST"))


def own_optimizers(root: Path) -> list[str]:
    """The optimizers that Axolotl adds to those of transformers."""
    return enumeration(_tree(root / ENUMS), "CustomSupportedOptimizers")


def optimizers_without_branch(root: Path) -> list[str]:
    """Those of its own optimizers that the trainer builder does not mention: it raises at them."""
    tree = _tree(root / "axolotl/core/builders/base.py")
    mentioned = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return [name for name in own_optimizers(root) if name not in mentioned]


def enumeration(tree: ast.Module, name: str) -> list[str]:
    """The values of an enumeration of texts."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            values = [inner.value for inner in node.body if isinstance(inner, ast.Assign)]
            return [str(value.value) for value in values if isinstance(value, ast.Constant)]
    raise LookupError(f"no enumeration {name}")


def pins(metadata: str) -> tuple[str, dict[str, str]]:
    """The Python range and the version ranges of the packages that matter here, from a wheel's METADATA."""
    python = re.search(r"^Requires-Python: (.+)$", metadata, re.MULTILINE)
    found = {}
    for package in PINNED:
        line = re.search(rf"^Requires-Dist: {package}(?![\w-])([^;\n]*)(?!.*extra ==)", metadata, re.MULTILINE)
        if line is not None:
            found[package] = ",".join(sorted(line[1].strip().split(","), reverse=True))
    return (python[1] if python else ""), found


def _constant(file: Path, name: str) -> Any:
    """A module-level table; a frozenset comes as the list that it is written as."""
    for node in _tree(file).body:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets):
            if not isinstance(node.value, ast.Call):
                return ast.literal_eval(node.value)
            [members] = node.value.args
            assert isinstance(members, ast.Set)
            return [ast.literal_eval(member) for member in members.elts]
    return None


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))
