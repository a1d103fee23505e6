"""The tools and their titles. The server describes them to agents; the worker process runs them.

Here are those that look things up (rules, practice, keys, cards, models), the one that fits a config to a card, and the
one that writes a new config. `verbs.py` has the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from vramwise.api import explain
from vramwise.errors import ConfigError, VramwiseError
from vramwise.facts.context import usable_bytes
from vramwise.facts.gpus import all_gpus, matching_gpus
from vramwise.lookup.keys import look_up
from vramwise.lookup.search import search
from vramwise.mcp.arguments import Config, Gpus, RefusedError, TrainerName, Versions, next_call, options_of, plain
from vramwise.mcp.results import Explained, Fitted, Keys, Listed, Practice, Started
from vramwise.mcp.verbs import Verbs
from vramwise.models.known import catalogue_ids
from vramwise.opening.options import FitOptions, NewOptions, Text
from vramwise.render.fit_json import fit_json
from vramwise.render.knowledge import found_json, gpu_json, key_json, rule_json, rule_page
from vramwise.render.new_text import new_json
from vramwise.trainers.starting import FORMATS
from vramwise.types import Finding
from vramwise.variants.axes import ALLOW
from vramwise.verbs.fit import fit_source
from vramwise.verbs.new import new, starting_trainers

_TRAINERS = ", ".join(starting_trainers())
_FORMATS = "; ".join(f"{word}: {meaning}" for word, meaning in FORMATS.items())


def new_config(
    model: Annotated[str, Field(description="Hub id of the base model, e.g. Qwen/Qwen3-8B; see list_models.")],
    gpu: Annotated[str, Field(description="The card to fit, e.g. rtx-4090, 8xh100, or 24GB; list_gpus lists them.")],
    gpus: Gpus = 1,
    method: Annotated[
        Literal["auto", "full", "lora", "qlora"], Field(description="What to train; auto: the best of them that fits.")
    ] = "auto",
    trainer: Annotated[str, Field(description=f"The trainer the config is for: {_TRAINERS}. Empty: the first.")] = "",
    data_format: Annotated[str, Field(description=f"The format of the data, for its keys. {_FORMATS}.")] = "alpaca",
    batch: Annotated[int, Field(description="Samples in an optimizer step.", ge=1, le=65536)] = 16,
    sequence_len: Annotated[int, Field(description="Tokens in a row; 0: a usual length.", ge=0)] = 0,
    script: Annotated[
        bool, Field(description="A Python script instead of a config (trl; unsloth always gets one).")
    ] = False,
    versions: Versions = [],  # noqa: B006
) -> Started:
    """Write a new fine-tuning config that starts and is predicted to fit a card, when there is no config yet.

    Method, batch, packing, checkpointing and kernels are chosen by the same search as fit_config; each line that
    matters has its reason as a comment. The data is a placeholder: put its path there. Takes seconds.
    """
    options = options_of(gpu, gpus, versions, trainer)
    ask = NewOptions(
        model=model,
        method=method,
        data_format=data_format,
        batch=batch,
        sequence_len=sequence_len or None,
        script=script or None,
        online=False,
    )
    try:
        found = new(ask, options)
    except VramwiseError as error:
        raise next_call(error, "correct that argument; call list_models for known models") from error
    shown = plain(new_json(found))
    then = "put the data's path in place of the placeholder, then call check_config"
    other = "another trainer or method" if found.only_stops else "a larger card or a smaller model"
    return Started(
        summary=shown["verdict"]["text"],
        fits=found.fits,
        config=found.text,
        method=found.method,
        launch=found.launch,
        new=shown,
        next=then if found.fits else f"call new_config with {other}",
    )


# Omitted for variants other than the answer: it follows from their edits.
_LEFT_OUT = ("diff", "commands", "changes", "margin_bytes")
_WORDS = "; ".join(f"{word}: {meaning}" for word, meaning in ALLOW.items())


def fit_config(
    config: Config,
    gpu: Annotated[str, Field(description="The card to fit, e.g. rtx-4090, a100-80gb, or 24GB; see list_gpus.")],
    gpus: Gpus = 1,
    allow: Annotated[list[str], Field(description=f"Changes to the training to permit. {_WORDS}.")] = [],  # noqa: B006
    keep: Annotated[list[str], Field(description="Config keys that must not change.")] = [],  # noqa: B006
    versions: Versions = [],  # noqa: B006
    trainer: TrainerName = "",
    maximise: Annotated[
        str,
        Field(
            description=(
                "Find the largest value that fits instead of the fastest run: for the config's micro-batch, length or "
                "rank key, or for `model`."
            )
        ),
    ] = "",
) -> Fitted:
    """Find the fastest variant of a config that fits a card. Returns the full new text, its diff and alternatives.

    The training result stays the same unless `allow` permits more. If nothing fits, `opened` shows the effect of each
    `allow` value. With `maximise`, find the largest value of that key that fits. Takes a few seconds. Errors that
    would stop the run are fixed first where possible; `mistakes` lists the rest.
    """
    ask = FitOptions(allow=tuple(allow), keep=tuple(keep), maximise=maximise or None, online=False)
    try:
        report = fit_source(Text(config), options_of(gpu, gpus, versions, trainer), ask)
    except ConfigError:
        raise
    except VramwiseError as error:
        said = VramwiseError(str(error).replace("--max ", "maximise "))
        raise next_call(said, "correct gpu, allow, keep or maximise; call list_models for known models") from error
    found, shown = report.fit, plain(fit_json(report))
    after = found.best.writable if found.best is not None else None
    return Fitted(
        summary=shown["verdict"]["text"],
        fits=found.best is not None and not found.stops,
        changed=found.changed,
        config=after.file_text if after else config,
        diff=report.diff(found.best),
        best=shown["best"],
        mistakes=[one.rule for one in found.stops],
        original=_short(shown["original"]),
        alternatives=[_short(one) for one in shown["alternatives"]],
        closest=shown["closest"] and _short(shown["closest"]),
        opened=[_short(one) for one in shown["opened"]],
        smallest_card=shown["smallest_card"],
        next=_after(shown, found.stops, maximise),
    )


def _short(variant: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in variant.items() if key not in _LEFT_OUT}


def _after(shown: dict[str, Any], mistakes: Sequence[Finding], maximise: str) -> str:
    """Return the next call to make; if nothing fits, with the `allow` value that would help."""
    if mistakes:
        return f"correct this first: {mistakes[0].message}"
    if shown["best"] is not None:
        return "call check_config with the new text" if shown["verdict"]["changed"] else ""
    if maximise:
        return f"call fit_config without maximise: even the smallest {maximise} does not fit"
    helps = next((one["allow"] for one in shown["opened"] if one["fits"]), None)
    return f"call fit_config with allow={helps}" if helps else "call list_gpus for a larger card"


_MOST_MODELS = 100


def explain_rule(rule: Annotated[str, Field(description="The rule's id, e.g. eval-batch-differs.")]) -> Explained:
    """Explain one rule of check_config: why it matters, a bad and a good example, how to ignore it."""
    try:
        found = explain(rule)
    except VramwiseError as error:
        raise next_call(error, "call search_practice with related words") from error
    return Explained(rule=rule_json(found), page=rule_page(found), bad=found.bad, good=found.good)


def search_practice(
    question: Annotated[
        str, Field(description='A symptom or keywords, e.g. "oom after eval", "packing flash attention".')
    ],
    kinds: Annotated[
        list[Literal["rule", "key", "page"]], Field(description="Only these kinds. Default: rules, keys and pages.")
    ] = [],  # noqa: B006
    limit: Annotated[int, Field(ge=1, le=50)] = 8,
) -> Practice:
    """Search rules, config keys and documentation about GPU memory in fine-tuning. Results are ranked."""
    found = search(question, limit=limit, kinds=tuple(kinds))
    if not found:
        raise RefusedError(f"nothing found for '{question[:200]}'. Next: call again with other or fewer words.")
    first = found[0].entry
    then = {
        "rule": f"call explain_rule with '{first.name}'",
        "key": f"call lookup_key with '{first.name}'",
        "page": f"read the resource vramwise://pages/{first.name.partition('.md')[0]}",
    }[first.kind]
    return Practice(found=[found_json(one) for one in found], next=then)


def lookup_key(
    key: Annotated[str, Field(description="A config key; nested keys use dots: fsdp_config.offload_params.")],
    trainer: Annotated[str, Field(description="The trainer of the key. Default: every trainer that has it.")] = "",
) -> Keys:
    """Look up one config key: its values, its default by version, its effect on GPU memory, and rules about it."""
    try:
        pages = look_up(key, trainer or None)
    except VramwiseError as error:
        raise next_call(error, "call search_practice with words for what the key should do") from error
    return Keys(keys=[key_json(page) for page in pages])


def list_gpus(
    words: Annotated[
        list[str],
        Field(description="All must match: part of a name, sm_90, amd, bf16, fp8, or a minimum size such as 40GB."),
    ] = [],  # noqa: B006
) -> Listed:
    """List the cards accepted as `gpu`, with usable memory, compute capability and dtypes."""
    try:
        cards = matching_gpus(words) if words else all_gpus()
    except VramwiseError as error:
        raise next_call(error, "call list_gpus without words") from error
    then = "" if cards else "call list_gpus with fewer words, or pass a size such as 24GB as gpu"
    return Listed(total=len(cards), items=[gpu_json(card, usable_bytes(card)) for card in cards], next=then)


def list_models(
    words: Annotated[list[str], Field(description="Words that the id must contain, e.g. qwen3, 8b.")] = [],  # noqa: B006
) -> Listed:
    """List known models by hub id. The shape of other models is inferred from their name where possible."""
    wanted = [word.lower() for word in words]
    found = [name for name in catalogue_ids() if all(word in name.lower() for word in wanted)]
    then = "" if 0 < len(found) <= _MOST_MODELS else "call list_models with other words"
    return Listed(total=len(found), items=list(found[:_MOST_MODELS]), next=then)


def titled_tools(*, online: bool = False) -> dict[Callable[..., Any], str]:
    """Return every tool with its title. `online`: predict_memory may fetch a model's config.json from the hub."""
    verbs = Verbs(online=online)
    return {
        new_config: "Write a new config that fits a card",
        verbs.check_config: "Check a training config for GPU memory",
        verbs.fix_config: "Fix a training config",
        verbs.predict_memory: "Predict a run's GPU memory",
        fit_config: "Fit a config to a card",
        verbs.diagnose_failure: "Explain a failed run from its log",
        explain_rule: "Explain a rule",
        search_practice: "Search rules, keys and documentation",
        lookup_key: "Look up a config key",
        list_gpus: "List known cards",
        list_models: "List known models",
    }
