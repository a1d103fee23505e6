"""Write trainers/axolotl/schema/*.json from Axolotl's wheels: the newest in full, the others as differences.

    pip install pydantic
    pip download --no-deps --only-binary=:all: --python-version 3.12 -d wheels axolotl==0.21.0    # and each older one
    pip download --no-deps -d wheels transformers==5.20.1      # the version it pins; optional, its names are compared
    python scripts/generate_axolotl_facts.py wheels/*.whl

Keys, types, defaults, plugins, name tables and pins come from the wheel; what it does not spell out is in
`axolotl_curated.py`. The newest version is `<version>.json`; an older one holds only what differs from the next newer,
as a JSON merge patch (RFC 7386: null means absent), so files of older versions do not change when a new one is added.

Adding the next release (half an hour):
1. Download its wheel and that of the transformers it pins beside the wheels of the known versions (all are needed).
2. Run this script. A type outside the grammar or a module that needs a stand-in stops it: see `axolotl_schema.py`.
   A name of transformers that is new stops it too: add it to `axolotl_curated.py`, with its groups.
3. Read the difference: `git diff --stat`, then the new `<version before>.json`. Every new optimizer: which group, which
   package? Every removed key: put effect and successor in `DEPRECATED_SINCE`. Every new adapter: which plugin?
4. Compare the validators (`diff -u` of axolotl/utils/schemas/*.py and integrations/*/args.py). A check that was added:
   a line in `trainers/axolotl/refusals.py` with its version, or a condition `schema_of(run).since("0.22.0")` in the
   rule that speaks of those keys; one that was dropped: the same condition, the other way round. New "before"
   validators that take other values than the type says: `BY_VALIDATOR`.
5. Compare what is decided afterwards: utils/config/__init__.py (normalize_config), core/builders/base.py,
   loaders/model.py. What changes memory ends in a field of RunSpec, decided by version in a file of
   trainers/axolotl/resolve/; its reason names the version. One row in the table of docs/axolotl.md.
6. Record its verdicts on a folder of configs with `axolotl_verdicts.py` (both cards), name the files in `RECORDED` of
   tests/test_corpus.py and the version in `VERSIONS` of tests/facts/test_axolotl_facts.py, and run the tests: they
   print the table of agreement and name every file on which we differ. A torch that it pins and that facts/torch.py
   does not know: add it there.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import axolotl_curated as curated
import axolotl_source as source
from axolotl_schema import Writer, load_plugin_args, load_schema, plain_defaults

TARGET = Path(__file__).parents[1] / "src/vramwise/trainers/axolotl/schema"
TWO_LEVELS = ("blocks", "plugins", "aliases", "nested_defaults")


def collect(root: Path, version: str, transformers: str) -> dict[str, Any]:
    """All facts of one unpacked version as one tree. Nothing in it is null."""
    writer = Writer()
    model = load_schema(root)
    keys = writer.model(model, "")
    brought, plugin_defaults = {}, {}
    for plugin in source.plugins(root):
        args = load_plugin_args(plugin.folder, plugin.args) if plugin.args else None
        held = writer.model(args, "") if args else {}
        # A key that the schema has itself needs no plugin.
        brought[plugin.path] = {name: written for name, written in held.items() if name not in keys}
        plugin_defaults |= plain_defaults(args) if args else {}
    optimizers = {"transformers": curated.TRANSFORMERS_OPTIMIZERS, "axolotl": source.own_optimizers(root)}
    names = {name for group in optimizers.values() for name in group}
    attention = source.attention(root)
    open_blocks = {
        "gradient_checkpointing_kwargs": curated.CHECKPOINTING_KWARGS,
        "torch_compile_options": dict.fromkeys(source.compile_options(root), "bool|int|float|str"),
    }
    return {
        "source": f"Axolotl {version}: its config schema, validators and trainer builder; "
        f"names of transformers {transformers}",
        "keys": keys,
        "defaults": plain_defaults(model),
        "aliases": writer.aliases,
        "blocks": dict(sorted((writer.blocks | open_blocks).items())),
        "nested_defaults": dict(sorted(writer.defaults.items())),
        "closed_blocks": [*writer.closed, "torch_compile_options"],
        "plugins": brought,
        "plugin_defaults": dict(sorted(plugin_defaults.items())),
        "built_in_plugins": source.built_in_plugins(root),
        "attention": attention,
        "optimizers": optimizers,
        "optimizer_groups": curated.optimizer_groups(names, source.optimizers_without_branch(root)),
        "optimizer_packages": curated.optimizer_packages(names),
        "lr_schedulers": curated.LR_SCHEDULERS,
        "adapters": {
            "built_in": curated.BUILT_IN_ADAPTERS,
            "by_plugin": {name: path for name, path in curated.PLUGIN_ADAPTERS.items() if path in brought},
        },
        "deprecated": curated.deprecated(version, attention["legacy_flags"]),
    }


def read_wheel(wheel: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(release, facts) of one wheel. A process for each: two versions of Axolotl cannot be imported into one."""
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
        metadata = packed.read(f"axolotl-{version}.dist-info/METADATA").decode()
        python, pins = source.pins(metadata)
        built = max(entry.date_time for entry in packed.infolist())
        child = [sys.executable, __file__, "--one", folder, version, pins["transformers"].removeprefix("==")]
        facts = json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)
    released = "{:04}-{:02}-{:02}".format(*built[:3])
    return {"released": released, "python": python, "pins": pins}, facts


def compare_transformers(wheel: Path) -> None:
    """Stop where a transformers has other optimizer or scheduler names than the curated lists."""
    for file, name, known in (
        ("training_args.py", "OptimizerNames", curated.TRANSFORMERS_OPTIMIZERS),
        ("trainer_utils.py", "SchedulerType", curated.LR_SCHEDULERS),
    ):
        with zipfile.ZipFile(wheel) as packed:
            tree = ast.parse(packed.read(f"transformers/{file}").decode())
        if strange := set(source.enumeration(tree, name)) - set(known):
            raise SystemExit(f"{wheel.name}: {name} has {sorted(strange)}, unknown to axolotl_curated.py")


def difference(newer: Any, older: Any) -> dict[str, Any]:
    """The merge patch that makes the older facts of the newer ones."""
    patch: dict[str, Any] = dict.fromkeys(key for key in newer if key not in older)
    for key, value in older.items():
        if isinstance(value, dict) and isinstance(newer.get(key), dict):
            if inner := difference(newer[key], value):
                patch[key] = inner
        elif newer.get(key) != value:
            patch[key] = value
    return patch


def written(facts: dict[str, Any]) -> str:
    """JSON with one fact a line: sections are unfolded, groups of keys once more, what is below stays on its line."""
    lines = ["{"]
    for section, content in facts.items():
        comma = "," if section != list(facts)[-1] else ""
        depth = 2 if section in TWO_LEVELS else 1
        lines.append(f"  {json.dumps(section)}: {_unfold(content, depth, 1)}{comma}")
    return "\n".join([*lines, "}"]) + "\n"


def _unfold(content: Any, depth: int, level: int) -> str:
    if depth == 0 or not isinstance(content, dict) or not content:
        return json.dumps(content, ensure_ascii=False)
    indent = "  " * (level + 1)
    rows = [f"{indent}{json.dumps(key)}: {_unfold(value, depth - 1, level + 1)}" for key, value in content.items()]
    return "{\n" + ",\n".join(rows) + "\n" + "  " * level + "}"


def main(wheels: list[Path]) -> None:
    """Write every file anew."""
    for wheel in wheels:
        if wheel.name.startswith("transformers-"):
            compare_transformers(wheel)
    axolotl = {wheel.name.split("-")[1]: wheel for wheel in wheels if wheel.name.startswith("axolotl-")}
    newest_first = sorted(axolotl, key=lambda version: [int(part) for part in version.split(".")], reverse=True)
    releases, newer = {}, None
    for version in newest_first:
        releases[version], facts = read_wheel(axolotl[version])
        content = facts if newer is None else difference(newer, facts)
        (TARGET / f"{version}.json").write_text(written(content), encoding="utf-8")
        newer = facts
    (TARGET / "releases.json").write_text(written(releases), encoding="utf-8")
    print(f"wrote {len(releases)} versions to {TARGET}")


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print(json.dumps(collect(Path(sys.argv[2]), sys.argv[3], sys.argv[4])))
    else:
        main([Path(name) for name in sys.argv[1:]])
