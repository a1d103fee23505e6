"""Write trainers/llamafactory/schema/*.json from LLaMA-Factory's wheels: the newest in full, older ones as differences.

    pip download --no-deps --only-binary=:all: --python-version 3.12 -d wheels llamafactory==0.9.5    # and older ones
    python scripts/generate_llamafactory.py wheels/llamafactory-*.whl

LLaMA-Factory parses a training file with transformers' HfArgumentParser over five dataclasses. Those of its own are
read here as text; what it takes from transformers' TrainingArguments is in `trainers/arguments`. Besides: the templates
that bring images, video or audio, which packages it installs with, and what keys mean for memory
(`llamafactory_meanings.py`). A new version: run it with all wheels, read the difference, add what new keys mean.
"""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

from argument_schema import Modules, fields_of
from generate_arguments import modules_in, version_of, write_versions
from llamafactory_meanings import MEANINGS

TARGET = Path(__file__).parents[1] / "src/vramwise/trainers/llamafactory/schema"
DATACLASSES = ("ModelArguments", "DataArguments", "TrainingArguments", "FinetuningArguments", "GeneratingArguments")
# Seq2SeqTrainingArguments, between LLaMA-Factory's own and transformers' TrainingArguments.
SEQ2SEQ = {
    "sortish_sampler": ["bool", False],
    "predict_with_generate": ["bool", False],
    "generation_max_length": ["int?"],
    "generation_num_beams": ["int?"],
    "generation_config": ["any?"],
}
# Texts with commas that may be lists as well: `__post_init__` splits texts and leaves lists alone.
SPLIT = (
    *("dataset", "eval_dataset", "interleave_probs", "lora_target", "oft_target", "additional_target"),
    *("freeze_trainable_modules", "freeze_extra_modules", "galore_target", "apollo_target"),
)
# Which of its requirements change memory or a verdict.
PACKAGES = ("torch", "transformers", "accelerate", "peft", "trl")


def keys_of(wheel: Path) -> dict[str, list[Any]]:
    """Every key of its own dataclasses, with type and default."""
    names = [
        f"llamafactory/hparams/{name}_args.py" for name in ("model", "data", "training", "finetuning", "generating")
    ]
    modules = Modules(modules_in(wheel, ["llamafactory/extras/constants.py", *names]))
    found = dict(SEQ2SEQ)
    for name in DATACLASSES:
        found |= fields_of(name, modules)
    for key in SPLIT:
        found[key] = [found[key][0].replace("str", "str|list[any]"), *found[key][1:]]
    return found


def templates_with_media(wheel: Path) -> list[str]:
    """Templates that have a plugin for images, video or audio."""
    (source,) = modules_in(wheel, ["llamafactory/data/template.py"])
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "register_template":
            words = {word.arg: word.value for word in node.keywords}
            if "mm_plugin" in words:
                found.append(ast.literal_eval(words["name"]))
    return sorted(found)


def pins_of(wheel: Path) -> dict[str, str]:
    """Package → the versions it asks for."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    found = re.findall(r"^Requires-Dist: ([\w-]+) *\(?([^;\n)]*)\)?$", text, re.MULTILINE)
    return {package: wanted.replace(" ", "") for package, wanted in found if package in PACKAGES}


def facts_of(wheel: Path) -> dict[str, Any]:
    """The facts of one version."""
    keys = keys_of(wheel)
    version = ".".join(map(str, version_of(wheel)))
    return {
        "source": f"llamafactory {version}, hparams/",
        "pins": pins_of(wheel),
        "keys": keys,
        "memory": {key: text for key, text in MEANINGS.items() if key in keys},
        "media_templates": templates_with_media(wheel),
    }


def main() -> None:
    """All wheels that are named."""
    wheels = sorted((Path(name) for name in sys.argv[1:]), key=version_of)
    facts = {".".join(map(str, version_of(one))): facts_of(one) for one in wheels}
    newest = facts[list(facts)[-1]]
    if unknown := sorted(MEANINGS.keys() - newest["keys"].keys()):
        raise SystemExit(f"llamafactory_meanings.py speaks of keys that there are not: {unknown}")
    write_versions(TARGET, facts)


if __name__ == "__main__":
    main()
