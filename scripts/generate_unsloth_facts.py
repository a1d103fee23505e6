"""Facts about Unsloth by release, for trainers/unsloth/schema; `releases.py` writes them.

Unsloth is called from Python. Read here as text: the parameters of `from_pretrained` and `get_peft_model` with their
defaults, the defaults that it puts into TRL's configs (`models/rl.py`), and the sections of its command's YAML
(`unsloth_cli/config.py`). Meanings for memory: `unsloth_meanings.py`.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from registry import Archive

# Parameters under the names that a training's document has for them.
KEYS = {"model_name": "model_name_or_path", "r": "lora_r", "target_modules": "lora_target_modules"}
KEYS |= {"modules_to_save": "lora_modules_to_save", "torch_dtype": "dtype"}
TYPES = {
    "model_name_or_path": "str?",
    "dtype": "str?",
    "device_map": "any?",
    "load_in_fp8": "any?",
    "use_gradient_checkpointing": "any?",
    "offload_embedding": "any?",
    "lora_target_modules": "str|list[str]?",
    "lora_modules_to_save": "list[str]?",
    "max_seq_length": "int?",
    "float32_mixed_precision": "bool?",
    "offload_layers": "any?",
    "init_lora_weights": "any?",
    "loftq_config": "any?",
}
SKIPPED = {"model", "args", "kwargs", "token", "on_model_resolved", "temporary_location"}


def source_of(archive: Archive, name: str) -> ast.Module:
    """A module, parsed; an empty one where an older release has none of that name."""
    return ast.parse(archive.text(name) or "")


def parameters_of(tree: ast.Module, owner: str, function: str) -> dict[str, list[Any]]:
    """The parameters of a method, as keys with type and default."""
    names = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
    (method,) = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == function]
    arguments = method.args.args
    defaults = [None] * (len(arguments) - len(method.args.defaults)) + list(method.args.defaults)
    keys: dict[str, list[Any]] = {}
    for argument, default in zip(arguments, defaults, strict=True):
        if argument.arg in SKIPPED or default is None:
            continue
        value = literal(names.get(default.id, default) if isinstance(default, ast.Name) else default)
        key = KEYS.get(argument.arg, argument.arg)
        keys[key] = [TYPES.get(key, type_of(value)), *([] if value is None else [value])]
    return keys


def literal(node: ast.expr) -> Any:
    """A default as JSON has it; None where it is worked out elsewhere."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return list(value) if isinstance(value, tuple) else value


def type_of(value: Any) -> str:
    """The type that a default speaks for."""
    kinds = {bool: "bool", int: "int", float: "float", str: "str"}
    return kinds.get(type(value), "any?")


def replaced_defaults(tree: ast.Module) -> dict[str, Any]:
    """What `patch_trl_rl_trainers` writes into the defaults of every config, and of SFTConfig besides."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        if node.targets[0].id == "replacements" and isinstance(node.value, ast.Dict):
            values = {key.value: literal(value) for key, value in zip(node.value.keys, node.value.values, strict=True)}
            if "per_device_train_batch_size" in values or values.keys() == {"loss_type"}:
                found |= values
    return {key: value for key, value in sorted(found.items()) if key not in ("output_dir", "generation_kwargs")}


def sections_of(tree: ast.Module) -> dict[str, dict[str, list[Any]]]:
    """The sections of the command's file."""
    found: dict[str, dict[str, list[Any]]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config") and node.name != "Config":
            section = node.name.removesuffix("Config").lower()
            found[section] = {
                item.target.id: [written_type(item.annotation), *defaults_of(item)]
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            }
    return found


def written_type(node: ast.expr) -> str:
    """An annotation in the grammar of the schemas."""
    text = ast.unparse(node)
    if text.startswith("Literal["):
        return "one_of(" + ",".join(re.findall(r"'([^']*)'", text)) + ")"
    optional = "?" if text.startswith("Optional") else ""
    inner = text.removeprefix("Optional[").removesuffix("]") if optional else text
    return {"Path": "str", "List[str]": "list[str]", "List[str": "list[str]"}.get(inner, inner) + optional


def defaults_of(item: ast.AnnAssign) -> list[Any]:
    """The default of a field, if it has one."""
    if isinstance(item.value, ast.Call) and item.value.args:
        return [literal(item.value.args[0])]
    value = literal(item.value) if item.value is not None else None
    return [] if value is None else [value]


def dynamic_checkpoints(tree: ast.Module, replaced: ast.Module) -> dict[str, str]:
    """Names of models, in lower case, and the 4-bit checkpoint with layers in 16 bits that is loaded for each.

    `replaced`: where BAD_MAPPINGS lists checkpoints for which another one is loaded.
    """
    found: dict[str, str] = {}
    bad = {
        key.func.value.value if isinstance(key, ast.Call) else key.value
        for node in replaced.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "BAD_MAPPINGS"
        for key in node.value.keys
    }
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__INT_TO_FLOAT_MAPPER":
            for checkpoint, names in ast.literal_eval(node.value).items():
                listed = names.get("16", ()) if isinstance(names, dict) else names
                if checkpoint.endswith("-unsloth-bnb-4bit") and checkpoint not in bad:
                    found |= {name.lower(): checkpoint for name in listed}
    return dict(sorted(found.items()))


def facts_of(archive: Archive) -> dict[str, Any]:
    """The facts of one release."""
    loader, llama = source_of(archive, "unsloth/models/loader.py"), source_of(archive, "unsloth/models/llama.py")
    adapter = parameters_of(llama, "FastLlamaModel", "get_peft_model")
    adapter.pop("max_seq_length", None)  # "not used anymore"
    found = {
        "keys": {**parameters_of(loader, "FastLanguageModel", "from_pretrained"), **adapter},
        "replaced": replaced_defaults(source_of(archive, "unsloth/models/rl.py")),
        "sections": sections_of(source_of(archive, "unsloth_cli/config.py")),
        "dynamic": dynamic_checkpoints(
            source_of(archive, "unsloth/models/mapper.py"), source_of(archive, "unsloth/models/loader_utils.py")
        ),
    }
    return {name: held for name, held in found.items() if held}
