"""What TRL's command refuses before it loads anything: `__post_init__` of its configs, its `env:`, its launcher.

Each refusal is a key and a sentence. The rule refused-arguments covers what trainers refuse later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from vramwise.rules.base import Hit
from vramwise.trainers.arguments.refusals import Held
from vramwise.trainers.trl.keys import facts, vocabulary
from vramwise.trainers.trl.kind import kind_name
from vramwise.trainers.trl.resolve.allocator import KEY, SHIPPED
from vramwise.trainers.value_types import accepts, describe
from vramwise.types import RunSpec
from vramwise.units import whole_number

_TRUNCATING = ("token_truncate", "sequence_truncate")
_BLOCK = frozenset(["path", "name", "data_dir", "data_files", "split", "columns", "fraction"])


def refusals(run: RunSpec) -> Iterator[Hit]:
    """Yield every refusal that applies to the file."""
    has = Held(run, vocabulary(kind_name(run), run.target.stack))
    yield from _datasets(has)
    yield from _method(has)
    if run.objective.generation_rows is not None:
        yield from _generation(run, has)
        yield from _sampling(has)
    if run.target.launcher != "module":
        yield from _launcher(run)


def _datasets(has: Held) -> Iterator[Hit]:
    width = has("pad_to_multiple_of")
    if isinstance(width, str) and width.lower() not in ("auto", "none", "null") and whole_number(width.strip()) is None:
        yield Hit(f"pad_to_multiple_of '{width}': expected a whole number, auto or none", "pad_to_multiple_of")
    blocks = has("datasets")
    for block in blocks if isinstance(blocks, list) else ():
        if not isinstance(block, Mapping):
            continue
        strange = sorted(set(map(str, block)) - _BLOCK)
        if "path" not in block:
            yield Hit("an entry of datasets has no path", "datasets")
        elif strange:
            yield Hit(f"an entry of datasets has the unknown key '{strange[0]}'", "datasets")


def _method(has: Held) -> Iterator[Hit]:
    if has("load_in_8bit") and has("load_in_4bit"):
        yield Hit("load_in_8bit and load_in_4bit are both on: use only one", "load_in_8bit")
    weights, losses = has("loss_weights"), has("loss_type")
    count = len(losses) if isinstance(losses, list) else 1
    if isinstance(weights, list) and len(weights) != count:
        yield Hit(f"{len(weights)} loss_weights for {count} losses of loss_type", "loss_weights")


def _generation(run: RunSpec, has: Held) -> Iterator[Hit]:
    """Yield refusals of generation: it must consist of whole groups of completions over all ranks."""
    asked, steps = has("generation_batch_size"), has("steps_per_generation")
    group, batch = int(has.number("num_generations")), run.batch.micro_batch_size * run.batch.data_parallel
    if has("auto_find_batch_size"):
        yield Hit("auto_find_batch_size would split groups of completions", "auto_find_batch_size")
    if asked is not None and steps is not None:
        yield Hit("generation_batch_size and steps_per_generation are both set: use only one", "generation_batch_size")
    elif asked is not None and int(has.number("generation_batch_size")) % batch:
        yield Hit(
            f"generation_batch_size {asked}: it must be a multiple of the batch, {batch}", "generation_batch_size"
        )
    if group < 2:
        yield Hit(
            f"num_generations {group}: it must be at least 2, because completions are compared", "num_generations"
        )
        return
    rows = int(asked) if asked is not None else (run.objective.generation_rows or 0) * run.batch.data_parallel
    if rows % group:
        yield Hit(f"a generation of {rows} completions is not a multiple of num_generations {group}", "num_generations")
    evaluated = int(has.number("num_generations_eval")) or group
    rows = int(has.number("per_device_eval_batch_size")) * run.batch.data_parallel
    if run.evaluation.evaluates and rows % evaluated:
        why = f"evaluates {rows} rows at once, which is not a multiple of its {evaluated} generations"
        yield Hit(f"per_device_eval_batch_size {why}", "per_device_eval_batch_size")


def _sampling(has: Held) -> Iterator[Hit]:
    if has("log_completions_hub_repo") is not None and not has("log_completions"):
        yield Hit("log_completions_hub_repo without log_completions", "log_completions_hub_repo")
    low, high = has("vllm_importance_sampling_clip_min"), has("vllm_importance_sampling_clip_max")
    high = has("vllm_importance_sampling_cap") or high
    if isinstance(low, int | float) and isinstance(high, int | float) and low >= high:
        key = "vllm_importance_sampling_clip_min"
        yield Hit(f"{key} {low}: it must be below vllm_importance_sampling_clip_max {high}", key)
    truncates = has("vllm_importance_sampling_mode") in _TRUNCATING
    if has("vllm_importance_sampling_correction") and truncates and low is None and high is None:
        key = "vllm_importance_sampling_mode"
        yield Hit(f"{key} needs vllm_importance_sampling_clip_min or vllm_importance_sampling_clip_max", key)


def _launcher(run: RunSpec) -> Iterator[Hit]:
    """Yield refusals of options for `accelerate launch`, whose values are passed as text."""
    values = run.config.document.values
    if "env" in values and not isinstance(values["env"], Mapping):
        yield Hit("env must be a mapping of variables", "env")
    known = vocabulary(kind_name(run), run.target.stack)
    for key, written in facts(run.target.stack)["launch"].items():
        if key in values and key not in known and key != "env" and not _launches(written, values[key]):
            yield Hit(f"{key} is an option of `accelerate launch`, which takes {describe(written)}", key)
    if KEY in values and not _file_or_shipped(values[KEY]):
        yield Hit(f"{KEY} '{values[KEY]}' is neither a file nor one of {', '.join(SHIPPED)}", KEY)


def _launches(written: str, value: Any) -> bool:
    text = str(value)
    if written in ("int", "float"):
        return accepts(written, text) and not (written == "int" and "." in text)
    return accepts(written, text)


def _file_or_shipped(value: Any) -> bool:
    """Return whether a value may be a file or a shipped name; whether a file exists is not known here."""
    return isinstance(value, str) and (value in SHIPPED or bool(PurePath(value).suffix) or "/" in value)
