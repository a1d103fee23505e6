"""The tools that look things up: rules, practice, keys, cards, models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vramwise.api import explain
from vramwise.errors import VramwiseError
from vramwise.facts.context import usable_bytes
from vramwise.facts.gpus import all_gpus, matching_gpus
from vramwise.lookup.keys import look_up
from vramwise.lookup.search import search
from vramwise.mcp.arguments import RefusedError, next_call
from vramwise.mcp.results import Explained, Keys, Listed, Practice
from vramwise.models.known import catalogue_ids
from vramwise.render.gpu_json import gpu_json
from vramwise.render.knowledge import found_json, key_json, rule_json, rule_page

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
