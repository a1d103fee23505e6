"""Find a model: a config.json on disk, the bundled catalogue, the Hugging Face cache, the hub if allowed, its name.

The catalogue (`models.json`) lists shapes: the fields of a config.json that matter, the hub ids with that shape, where
the facts come from and how far they were checked, and the commonly published parameter count, as a check on the fields.
`stored` lists ids whose checkpoint is quantised. A config.json on disk goes first: it is the model itself.

`model_config.py` reads the fields; `hub.py` asks the hub, and only if the caller passes `online=True`. A name that
suggests a known shape is the last resort (`model_names.py`), and the model then says so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings, parse_json, read_file
from vramwise.models.catalogue import catalogue_ids, catalogue_shapes, copied, entry_of, every_shape, near_ids
from vramwise.models.config import describes, model_from_config
from vramwise.models.hub import HubSilent, fetched, is_hub_id, kept
from vramwise.models.names import Unclear, carried, plain_of_count, plain_of_size
from vramwise.types import ModelSpec
from vramwise.types.actions import action

__all__ = ["catalogue_ids", "catalogue_shapes", "find_model", "from_catalogue", "near_ids", "read_model"]

_LONGEST_REVISION = 4096

# A config.json is a few kilobytes; the largest on the hub (long quantisation lists) stay below this.


def find_model(
    name_or_path: str,
    *,
    base_dir: Path | None = None,
    online: bool = False,
    revision: str | None = None,
    by_id: bool = False,
) -> ModelSpec:
    """Return the model that a config's `base_model` names.

    Relative paths are resolved from the working folder, then from `base_dir`. `by_id`: the name is a hub id, never a
    local path. Raises VramwiseError for an unknown model.
    """
    local = None if by_id else local_config(name_or_path, base_dir)
    if local is not None:
        return read_model(local, name=name_or_path)
    known = from_catalogue(name_or_path)
    if known is not None and not known.taken_for:
        return known
    cached, silent = cached_config(name_or_path) or kept(name_or_path, revision), ""
    if (cached is None or _ours(cached)) and online and is_hub_id(name_or_path):
        try:
            cached = fetched(name_or_path, revision)
        except HubSilent as error:
            silent = f" On the hub it {error}."
    if cached is not None:
        return read_model(cached, name=name_or_path)
    return known or by_name(name_or_path) or _refused(name_or_path, online, silent)


def _ours(path: Path) -> bool:
    """Return whether vramwise cached this file, not huggingface_hub; only ours are fetched again after a while."""
    return "vramwise" in path.parts


def by_name(name: str) -> ModelSpec | None:
    """Return the known model whose shape this name suggests; None if there is none.

    Raises VramwiseError if it could be several.
    """
    found = copied(name) or carried(
        name, ((known, _dimensions(shape)) for shape in every_shape() for known in shape["ids"])
    )
    if found is None:
        return _of_size(name)
    if isinstance(found, Unclear):
        raise VramwiseError(
            f"model '{name}' is unknown, and its name matches models of different shapes: "
            f"{', '.join(found.candidates)}. {action('name its origin')}"
        )
    known = from_catalogue(found.known)
    assert known is not None
    said = f"model '{name}' is unknown: its name suggests {found.known}, whose shape is used"
    return replace(
        known, name=name, source=f"name ({found.known})", taken_for=said, checkpoint_quantization=found.quantization
    )


_COUNTED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")


def _of_size(name: str) -> ModelSpec | None:
    """Return a plain model with as many parameters as the name states; None for the likely misspelling of an id."""
    known = plain_of_size(name, catalogue_shapes())
    found = None if known is None or near_ids(name) else from_catalogue(known)
    if found is None:
        return None
    said = f"model '{name}' is unknown: a plain model of the size in its name is taken, {known}"
    return replace(found, name=name, source=f"size ({known})", taken_for=said, checkpoint_quantization=None)


def of_count(name: str, parameters: int) -> ModelSpec | None:
    """Return a plain model with about so many parameters for an unknown name; None if none has."""
    known = plain_of_count(parameters, catalogue_shapes())
    found = None if known is None else from_catalogue(known)
    if found is None:
        return None
    said = f"model '{name}' is unknown: a plain model of {parameters:,} parameters, as stated, is taken, {known}"
    return replace(found, name=name, source=f"count ({known})", taken_for=said, checkpoint_quantization=None)


def _dimensions(shape: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what defines a shape. Vocabularies (by a few rows) and contexts may differ within one."""
    config = shape["config"]
    text = config.get("text_config", config)
    experts = text.get("num_local_experts") or text.get("num_experts") or text.get("n_routed_experts")
    return (config["model_type"], experts, *(text.get(field) for field in _COUNTED))


def read_model(path: Path, *, name: str | None = None) -> ModelSpec:
    """Return the model of one config.json or trace file."""
    config, name = read_config(path), name or str(path.parent)
    if "modes" in config and "kinds" in config:
        from vramwise.models.traces import model_from_trace  # few models are given as traces

        return model_from_trace(config, name=name, source=str(path))
    if describes(config):
        return model_from_config(config, name=name, source=str(path))
    return _undescribed(config, name, str(path))


def _undescribed(config: Mapping[str, Any], name: str, source: str) -> ModelSpec:
    """Return a model whose type no family lists: traced, or treated as llama if its fields allow that."""
    from vramwise.models.tracing import Untraced, traced_model  # few models need it

    found = traced_model(config, name=name, source=source)
    if not isinstance(found, Untraced):
        return found
    try:
        return replace(model_from_config(config, name=name, source=source), untraced=found.why)
    except VramwiseError as error:
        raise VramwiseError(f"{error}; {found.why}") from error


# For entries from this source, the hub's own file takes precedence.
_RECALLED = "recalled"


def from_catalogue(name: str) -> ModelSpec | None:
    """Return the model with this hub id (case-insensitive), or None if it is not in the catalogue."""
    found = entry_of(name.strip().lower())
    if found is None:
        return None
    shape, method = found
    config = shape["config"]
    if method is not None:
        config = config | {"quantization_config": _quantization(method)}
    model = _described(config, name.strip())
    if shape.get("source") != _RECALLED:
        return model
    said = f"the dimensions of {name.strip()} have not been compared with its config.json"
    return replace(model, taken_for=said)


def _described(config: Mapping[str, Any], name: str) -> ModelSpec:
    if describes(config):
        return model_from_config(config, name=name, source="catalogue")
    from vramwise.models.templates import document_of  # few types have one instead of a family
    from vramwise.models.traces import model_from_trace

    document = document_of(config)
    assert document is not None
    return model_from_trace(document, name=name, source="catalogue")


def _quantization(method: str) -> Mapping[str, Any]:
    if method == "bitsandbytes_4bit":
        return {"quant_method": "bitsandbytes", "load_in_4bit": True}
    return {"quant_method": method}


def local_config(name_or_path: str, base_dir: Path | None = None) -> Path | None:
    """Return the config.json at this path or in this folder; None if there is no such path.

    Looked up from the working folder, as trainers do, then from `base_dir` (the config's own folder). Raises
    VramwiseError for a folder without a config.json.
    """
    empty = None
    for folder in (Path(), base_dir or Path()):
        try:
            path = folder / Path(name_or_path).expanduser()
            found = path / "config.json" if path.is_dir() else path
            if found.is_file() and found.suffix == ".json":
                return found
            empty = empty or (path if path.is_dir() else None)
        except (OSError, ValueError, RuntimeError):  # too long, a NUL inside, no home folder: not a path
            return None
    # A folder that happens to have the name of a hub id ("gpt2") must not hide the id.
    if empty is None or from_catalogue(name_or_path) is not None or cached_config(name_or_path) is not None:
        return None
    raise VramwiseError(f"no config.json in the folder {empty}: name a model folder or a config.json")


def cached_config(name: str) -> Path | None:
    """Return this id's config.json in the local Hugging Face cache: of refs/main, or of the newest snapshot.

    The model's other files are in the same folder.
    """
    if name.count("/") > 1 or any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
        return None
    folder = _hub_cache() / f"models--{name.replace('/', '--')}"
    try:
        revision = read_file(folder / "refs" / "main", _LONGEST_REVISION, "a revision").decode("utf-8").strip()
        config = folder / "snapshots" / revision / "config.json"
        if config.is_file():
            return config
    except (OSError, ValueError, VramwiseError):
        pass
    try:
        found = [path for path in (folder / "snapshots").glob("*/config.json") if path.is_file()]
        return max(found, key=lambda path: path.stat().st_mtime, default=None)
    except OSError:
        return None


def _hub_cache() -> Path:
    """Return huggingface_hub's cache folder; same variables, same order."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser()
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]).expanduser() / "hub"
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "huggingface" / "hub"


def read_config(path: Path) -> Mapping[str, Any]:
    """Return the JSON object of a config.json. Raises VramwiseError if it is not one."""
    try:
        parsed = parse_json(read_file(path, ceilings.MODEL_BYTES, "a config.json"))
    except ValueError as error:
        raise VramwiseError(f"{path}: is not valid JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise VramwiseError(f"{path}: must hold a JSON object, not {type(parsed).__name__}")
    return parsed


def _refused(name: str, online: bool, silent: str) -> NoReturn:
    text = f"model '{name}' is unknown: {action('looked for a model').format(_hub_cache())}.{silent}"
    near = near_ids(name)
    if near:
        text += f" Did you mean {' or '.join(near)}?"
    text += f" {action('point to a model')}"
    if not online and is_hub_id(name):
        text += action("fetch a model").format(name)
    raise VramwiseError(text)
