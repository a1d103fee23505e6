"""The base model of a run: its dimensions, or why they are unknown, and where its files are."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.models.known import cached_config, find_model, local_config, of_count
from vramwise.models.stated_counts import stated_in
from vramwise.opening.sources import TEXT
from vramwise.types import Document, ModelSpec, Origin, RunSpec
from vramwise.types.actions import action
from vramwise.types.document import Script

# The keys that trainers use for the revision of the base model.
_REVISION_KEYS = ("revision_of_model", "model_revision", "revision")
# A variable or template that another program fills in before the trainer reads the file.
# transformers gave T5's attention a fused kernel in this version.
_T5_FUSED = (5, 15)
# Types whose positions begin behind the padding's number.
_COUNTS_FROM_PADDING, _LOST_POSITIONS = ("roberta", "xlm-roberta"), 2
_PLACEHOLDER = re.compile(r"\$\{?\w|\{\{|<[\w -]+>")


def model_folder(name: str | None, model: ModelSpec | None) -> Path | None:
    """Return the local folder of the model's files, including its tokenizer, or None if there is none."""
    if name is None or model is None:
        return None
    here = Path(model.source)
    if here.name == "config.json":
        return here.parent
    cached = cached_config(name)
    return cached and cached.parent


def revision_of(run: RunSpec) -> str | None:
    """Return the branch, tag or commit of the model that the config names, or None."""
    found = next((value for key in _REVISION_KEYS if isinstance(value := run.config.get(key), str)), None)
    return found or None


def base_model(
    name: str | None, document: Document, *, online: bool, revision: str | None = None, text_alone: bool = False
) -> tuple[ModelSpec | None, str]:
    """Return the dimensions of the model that a document names, or None and the reason why they are unknown."""
    path = document.path
    if name is None and document.script is not None:
        return None, _unsaid_model(document.script, document)
    if name is None:
        return None, f"{path} names no base model: {action('add a model')}"
    if _PLACEHOLDER.search(name):
        return None, f"the base model of {path} is the placeholder {name}: {action('write a model')}"
    folder = Path() if path in ("-", TEXT) else Path(path).parent
    found, missing = None, ""
    try:
        found = find_model(name, base_dir=folder, online=online, revision=revision, by_id=text_alone)
    except VramwiseError as error:
        missing = str(error)
        if not text_alone and _is_described(name, folder):  # the model itself is there, but unsupported
            return None, missing
    if found is None or found.source.startswith("size ("):  # a stated number says more
        count = stated_in(document)
        found = (of_count(name, count) if count else None) or found
    return found, "" if found is not None else missing


def _is_described(name: str, folder: Path) -> bool:
    try:
        return local_config(name, folder) is not None
    except VramwiseError:
        return False


def _unsaid_model(script: Script, document: Document) -> str:
    """Say why the model of a script is unknown, and how to supply it."""
    found = next((one for one in script.unsaid if one.key == "model_name_or_path"), None)
    if found is None:
        return f"no model in the training call of {document.path}: use --model"
    either = f" ({' or '.join(map(str, found.either))})" if found.either else ""
    is_name = all(part.isidentifier() for part in found.name.split("."))
    remedy = f"set it with --set {found.name}=… or --model" if is_name else "set it with --model"
    return f"unknown model in {document.path}: {found.why} (line {document.label(found.line)}){either}; {remedy}"


def _before(run: RunSpec, release: tuple[int, ...]) -> bool:
    parts = run.target.stack.parts("transformers")
    return bool(parts) and parts < release


def _as_stored(run: RunSpec, model: ModelSpec) -> RunSpec:
    """Return the run with what the model decides where the file leaves it open: the weights' type and longest row."""
    changed: dict[str, object] = {}
    origins = dict(run.origins)

    def is_open(name: str) -> bool:
        return name in origins and origins[name].kind == "assumed"

    dtype = model.stored_dtype
    if dtype and dtype != run.precision.weights_dtype and is_open("weights_dtype"):
        changed |= {"weights_dtype": dtype, "fp32_embeddings": dtype == "fp32"}
        origins["weights_dtype"] = Origin(kind="derived", why=f"the checkpoint's type: {dtype}")
    if model.size("buckets") and _before(run, _T5_FUSED) and run.kernels.attn_implementation == "sdpa":
        changed["attn_implementation"] = "eager"
        origins["attn_implementation"] = Origin(
            kind="derived", why=f"{model.model_type} has no other before transformers {'.'.join(map(str, _T5_FUSED))}"
        )
    longest = model.max_position_embeddings - (_LOST_POSITIONS if model.model_type in _COUNTS_FROM_PADDING else 0)
    learned = model.reads != "decoder" and not model.rotary_fraction
    if learned and run.shapes.sequence_len > longest and is_open("sequence_len"):
        changed["sequence_len"] = longest
        origins["sequence_len"] = _longest_row(model, longest)
    return run.changed(**changed, origins=origins) if changed else run


def _longest_row(model: ModelSpec, longest: int) -> Origin:
    """Return why rows end there: a table of positions is a limit, T5's distances are only what it was trained with."""
    if model.size("buckets"):
        return Origin(kind="assumed", why=f"no key sets the row length: {longest}, as it was trained, assumed")
    return Origin(kind="derived", why=f"the model has {longest} positions")


def with_model_type(run: RunSpec, model: ModelSpec | None) -> RunSpec:
    """Return the run with the architecture of its model, if the model is known.

    A text model inside a multimodal one uses the outer model's type, which is its own without `_text`. If the inner
    type has no such suffix, the outer type is unknown. Also drops unpredicted behaviour that needs experts if the model
    has none.
    """
    if model is None:
        return run
    kind: str | None = model.model_type
    if model.text_part:
        kind = model.model_type.removesuffix("_text") if model.model_type.endswith("_text") else None
    run = _as_stored(run, model)
    unfollowed = tuple(one for one in run.unfollowed if model.num_experts or not one.experts_only)
    return replace(run, model_type=kind, unfollowed=unfollowed)
