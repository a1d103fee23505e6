"""Write src/vramwise/facts/axolotl.json from an unpacked Axolotl wheel.

    pip download --no-deps axolotl==0.19.0 && unzip axolotl-0.19.0-*.whl -d unpacked
    python scripts/generate_axolotl_facts.py unpacked      # needs pydantic

Keys, types and plugin keys come from the schema itself; what the schema does not spell out is in `axolotl_curated.py`.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import axolotl_curated as curated
from axolotl_schema import Writer, load_plugin_args, load_schema

TARGET = Path(__file__).parents[1] / "src/vramwise/facts/axolotl.json"


def plugin_classes(root: Path) -> dict[str, str]:
    """Integration folder → the plugin class it exports, read from the source without importing it."""
    found = {}
    for folder in sorted((root / "axolotl/integrations").iterdir()):
        for file in sorted(folder.glob("*.py")) if folder.is_dir() else []:
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "BasePlugin" for base in node.bases):
                    found[folder.name] = node.name
    return found


def defaults(model: type[BaseModel]) -> dict[str, Any]:
    """The defaults that are not null. A default made at run time is left out."""
    plain = {}
    for name, field in sorted(model.model_fields.items()):
        if field.default is not PydanticUndefined and field.default is not None:
            plain[name] = field.default
    return plain


def collect(root: Path) -> dict[str, Any]:
    """All facts as one tree."""
    writer = Writer()
    model = load_schema(root)
    keys = writer.model(model, "")
    plugins = {}
    for folder, name in plugin_classes(root).items():
        args = load_plugin_args(folder)
        plugins[f"axolotl.integrations.{folder}.{name}"] = writer.model(args, "") if args else {}
    version = next(root.glob("axolotl-*.dist-info")).name.removeprefix("axolotl-").removesuffix(".dist-info")
    return {
        "source": f"Axolotl {version}: its config schema, validators and trainer builder; names of transformers 5.16.1",
        "keys": keys,
        "defaults": defaults(model),
        "aliases": writer.aliases,
        "blocks": dict(sorted((writer.blocks | curated.OPEN_BLOCKS).items())),
        "closed_blocks": [*writer.closed, "torch_compile_options"],
        "plugins": plugins,
        "attention": curated.ATTENTION,
        "optimizers": curated.OPTIMIZERS,
        "optimizer_groups": curated.OPTIMIZER_GROUPS,
        "optimizer_packages": curated.OPTIMIZER_PACKAGES,
        "lr_schedulers": curated.LR_SCHEDULERS,
        "adapters": curated.ADAPTERS,
        "deprecated": curated.DEPRECATED,
    }


def written(facts: dict[str, Any]) -> str:
    """JSON with one fact a line: sections are unfolded, groups of keys once more, what is below stays on its line."""
    lines = ["{"]
    for section, content in facts.items():
        depth = 2 if section in ("blocks", "plugins", "aliases") else 1
        comma = "," if section != list(facts)[-1] else ""
        lines.append(f"  {json.dumps(section)}: {_unfold(content, depth, 1)}{comma}")
    return "\n".join([*lines, "}"]) + "\n"


def _unfold(content: Any, depth: int, level: int) -> str:
    if depth == 0 or not isinstance(content, dict) or not content:
        return json.dumps(content, ensure_ascii=False)
    indent = "  " * (level + 1)
    rows = [f"{indent}{json.dumps(key)}: {_unfold(value, depth - 1, level + 1)}" for key, value in content.items()]
    return "{\n" + ",\n".join(rows) + "\n" + "  " * level + "}"


if __name__ == "__main__":
    TARGET.write_text(written(collect(Path(sys.argv[1]))), encoding="utf-8")
    print(f"wrote {TARGET}")
