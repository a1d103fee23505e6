"""Facts about LLaMA-Factory by release, for trainers/llamafactory/schema; `releases.py` writes them.

LLaMA-Factory parses a training file with transformers' HfArgumentParser over five dataclasses. Those of its own are
read here as text; what it takes from transformers' TrainingArguments is in `trainers/arguments`. Besides: the templates
that bring images, video or audio. Meanings for memory: `llamafactory_meanings.py`.
"""

from __future__ import annotations

import ast
from typing import Any

from argument_schema import Modules, fields_of
from registry import Archive

PACKAGE = "llamafactory"
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


def keys_of(archive: Archive) -> dict[str, list[Any]]:
    """Every key of its own dataclasses, with type and default."""
    names = [f"{PACKAGE}/hparams/{name}_args.py" for name in ("model", "data", "training", "finetuning", "generating")]
    modules = Modules(texts(archive, f"{PACKAGE}/extras/constants.py", *names))
    found = dict(SEQ2SEQ)
    for name in (one for one in DATACLASSES if one in modules.classes):
        found |= fields_of(name, modules)
    for key in SPLIT:
        if key in found:
            found[key] = [found[key][0].replace("str", "str|list[any]"), *found[key][1:]]
    return found


def texts(archive: Archive, *names: str) -> list[str]:
    """Those files that there are: the package was called llmtuner before 0.8."""
    return archive.texts(*names, *(name.replace(PACKAGE, "llmtuner", 1) for name in names))


def templates_with_media(archive: Archive) -> list[str]:
    """Templates that have a plugin for images, video or audio; before there were plugins, those that need an image."""
    found = []
    for node in ast.walk(ast.parse("".join(texts(archive, f"{PACKAGE}/data/template.py")))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("register_template", "_register_template"):
            words = {word.arg: word.value for word in node.keywords}
            if "mm_plugin" in words or "image_token" in words:
                found.append(ast.literal_eval(words["name"]))
    return sorted(found)


def facts_of(archive: Archive) -> dict[str, Any]:
    """The facts of one release."""
    return {"keys": keys_of(archive), "media_templates": templates_with_media(archive)}
