"""Facts about Axolotl by release, for trainers/axolotl/schema; `releases.py` writes them.

Keys, types, defaults, plugins, name tables and pins come from the release, the names of optimizers and schedulers from
the transformers that it pins; what they do not spell out is in `axolotl_curated.py`. Needs pydantic.

What a new release leaves to a person (half an hour):
1. A type outside the grammar or a module that needs a stand-in stops the reading: see `axolotl_schema.py`.
2. Every new optimizer: which group, which package? Every removed key: put effect and successor in `DEPRECATED_SINCE`.
   Every new adapter: which plugin?
3. Compare the validators (`diff -u` of axolotl/utils/schemas/*.py and integrations/*/args.py). A check that was added:
   a line in `trainers/axolotl/refusals.py` with its version, or a condition `schema_of(run).since("0.22.0")` in the
   rule that speaks of those keys; one that was dropped: the same condition, the other way round. New "before"
   validators that take other values than the type says: `BY_VALIDATOR`.
4. Compare what is decided afterwards: utils/config/__init__.py (normalize_config), core/builders/base.py,
   loaders/model.py. What changes memory ends in a field of RunSpec, decided by version in a file of
   trainers/axolotl/resolve/; its reason names the version. One row in the table of docs/axolotl.md.
5. Record its verdicts on a folder of configs with `axolotl_verdicts.py` (both cards), name the files in `RECORDED` of
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import axolotl_curated as curated
import axolotl_source as source
from axolotl_schema import Writer, load_plugin_args, load_schema, plain_defaults
from registry import Archive


def collect(root: Path, version: str, transformers: Mapping[str, list[str]]) -> dict[str, Any]:
    """All facts of one unpacked version as one tree. Nothing in it is null. `transformers`: names that it has."""
    writer = Writer()
    model = load_schema(root, transformers)
    keys = writer.model(model, "")
    brought, plugin_defaults = {}, {}
    for plugin in source.plugins(root):
        args = load_plugin_args(plugin.folder, plugin.args) if plugin.args else None
        held = writer.model(args, "") if args else {}
        # A key that the schema has itself needs no plugin.
        brought[plugin.path] = {name: written for name, written in held.items() if name not in keys}
        plugin_defaults |= plain_defaults(args) if args else {}
    optimizers = {
        "transformers": ordered(transformers["optimizers"], curated.TRANSFORMERS_OPTIMIZERS),
        "axolotl": source.own_optimizers(root),
    }
    names = {name for group in optimizers.values() for name in group}
    attention = source.attention(root)
    open_blocks = {
        "gradient_checkpointing_kwargs": curated.CHECKPOINTING_KWARGS,
        "torch_compile_options": dict.fromkeys(source.compile_options(root), "bool|int|float|str"),
    }
    return {
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
        "lr_schedulers": ordered([*transformers["schedulers"], *curated.OWN_LR_SCHEDULERS], curated.LR_SCHEDULERS),
        "adapters": {
            "built_in": curated.BUILT_IN_ADAPTERS,
            "by_plugin": {name: path for name, path in curated.PLUGIN_ADAPTERS.items() if path in brought},
        },
        "deprecated": curated.deprecated(version, attention["legacy_flags"], {*keys}, source.deprecated_fields(root)),
    }


def ordered(names: list[str], known: list[str]) -> list[str]:
    """Names in the order of those that are known, so that a release which moves them is no difference."""
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))


def release_of(archive: Archive) -> dict[str, Any]:
    """Which Python and which packages a release asks for."""
    python, pins = source.pins(archive)
    return {"python": python, "pins": pins}


def facts_of(archive: Archive, transformers: Archive) -> dict[str, Any]:
    """The facts of one release. In a process of its own: two versions of Axolotl cannot be imported into one."""
    trees = [
        ast.parse(transformers.text(f"transformers/{name}.py") or "") for name in ("training_args", "trainer_utils")
    ]
    names = {
        "optimizers": source.enumeration(trees[0], "OptimizerNames"),
        "schedulers": source.enumeration(trees[1], "SchedulerType"),
    }
    if strange := sorted({*names["optimizers"]} - {*curated.TRANSFORMERS_OPTIMIZERS}):
        print(f"axolotl: which group has the optimizer {', '.join(strange)}? (axolotl_curated.py)", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        archive.unpack(Path(folder))
        child = [sys.executable, __file__, folder, archive.version, json.dumps(names)]
        return cast(
            dict[str, Any], json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)
        )


if __name__ == "__main__":
    print(json.dumps(collect(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))))
