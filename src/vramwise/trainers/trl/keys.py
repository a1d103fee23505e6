"""TRL's vocabulary: keys by version and kind of training, keys of projects built on it, removed names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from vramwise.trainers import arguments
from vramwise.trainers.arguments import Vocabulary, training_arguments
from vramwise.trainers.arguments.unknown_keys import StrangeKey, written_names
from vramwise.trainers.arguments.unknown_keys import strange_keys as unknown
from vramwise.trainers.arguments.vocabulary import kinds_of, strict_facts
from vramwise.trainers.releases import known_versions, spans, versioned_facts
from vramwise.trainers.signs import words
from vramwise.types import Document, RunSpec, Stack

_NOT_KINDS = frozenset({"keys", "launch", "memory", "constructors", "commands"})
KINDS = ("sft", "dpo", "kto", "reward", "grpo", "rloo", "distillation", "orpo", "cpo")
# Types of arguments that set something; others hand over an object.
_SETTINGS = frozenset({"int", "float", "bool", "str", "one_of"})
# Keys that the command itself removes from the file first.
COMMAND_KEYS = frozenset({"env", "accelerate_config"})


# Old names that recipes still use, whose value can be moved unchanged.
GONE: Mapping[str, str] = {
    "torch_dtype": "dtype",
    "max_seq_length": "max_length",
    "warmup_ratio": "warmup_steps",
    "evaluation_strategy": "eval_strategy",
    "vllm_max_model_len": "vllm_max_model_length",
    "use_liger": "use_liger_kernel",
}


# Keys that a project adds in its own dataclasses, which its own script reads.
PROJECTS: Mapping[str, frozenset[str]] = {
    "alignment-handbook": words(
        """
        dataset_mixer dataset_mixture dataset_splits dataset_configs text_column truncation_side chat_template
        auto_insert_empty_system_msg preprocessing_num_workers hub_model_revision base_model_revision
        model_code_revision tokenizer_name_or_path use_flash_attention_2
        """
    ),
    "open-r1": words(
        """
        dataset_mixture benchmarks callbacks chat_template system_prompt hub_model_revision num_completions_to_print
        overwrite_hub_revision push_to_hub_revision wandb_entity wandb_project wandb_run_group
        wandb_log_unique_prompts cosine_min_value_wrong cosine_max_value_wrong cosine_min_value_correct
        cosine_max_value_correct cosine_max_len repetition_n_grams repetition_max_penalty code_language
        code_eval_test_batch_size code_eval_scoring_mode parallel_code_exec_per_proc dataset_prompt_column
        e2b_router_url morph_router_url code_provider ioi_provider max_completion_len soft_punish_cache
        """
    ),
}
ALL_PROJECT_KEYS = frozenset().union(*PROJECTS.values())

# One key of a project may be a mistake in a file for TRL's own command; several make a recipe.
_RECIPE = 2


def project_of(values: Mapping[Any, Any]) -> str | None:
    """Return the project whose recipe this is: the one with most of its own keys, at least two; else None."""
    counts = {name: len(keys & values.keys()) for name, keys in PROJECTS.items()}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] >= _RECIPE else None


def release_of(stack: Stack) -> str:
    """Return the version of TRL as text."""
    release = stack.releases.get("trl")
    return release.version if release else known_versions(__file__)[-1]


def facts(stack: Stack) -> Mapping[str, Any]:
    """Return everything known about the stack's TRL."""
    return versioned_facts(release_of(stack), __file__)


def kinds(stack: Stack) -> tuple[str, ...]:
    """Return the kinds of training that it supports."""
    return kinds_in(facts(stack))


def kinds_in(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kinds of training that a release has a config of its own for."""
    return tuple(name for name in found if name not in _NOT_KINDS)


def _of_constructors(found: Mapping[str, Any], kind: str | None) -> Iterator[dict[str, list[Any]]]:
    """Yield the settings that commands and trainers take themselves, as they did before configs took them over."""
    yield from (held for name, held in found.get("commands", {}).items() if kind in (None, name))
    for name, taken in found["constructors"].items():
        if kind in (None, name.removesuffix("Trainer").lower()):
            yield {key: value for key, value in taken.items() if kinds_of(value[0]) <= _SETTINGS}


def vocabulary(kind: str | None, stack: Stack) -> Vocabulary:
    """Return every key of one kind of training, or of all; without those of the command and its launcher."""
    return _vocabulary(kind, release_of(stack), training_arguments(stack))


@cache
def _vocabulary(kind: str | None, version: str, arguments: Vocabulary) -> Vocabulary:
    found = versioned_facts(version, __file__)
    own = [*_of_constructors(found, kind), *(found[name] for name in kinds_in(found) if kind in (None, name))]
    keys = {**found.get("keys", {}), **{key: value for one in own for key, value in one.items()}}
    return arguments | Vocabulary({"keys": keys, "memory": found["memory"], **strict_facts(__file__)})


def launcher_keys(stack: Stack) -> frozenset[str]:
    """Return the options of `accelerate launch` that a file may contain, because TRL's command passes them on."""
    return frozenset(facts(stack)["launch"])


def not_taken(document: Document, stack: Stack) -> frozenset[str]:
    """Return the arguments that a script passes to a trainer itself, and its release does not take."""
    home = None if document.script is None else document.script.homes.get("trainer")
    taken = {} if home is None else facts(stack).get("constructors", {}).get(home.name, {})
    return (
        frozenset(home.arguments.keys() - taken.keys())
        if home is not None and taken and "**" not in taken
        else frozenset()
    )


@cache
def own_words() -> frozenset[str]:
    """Return keys of TRL's own dataclasses, of every kind, that TrainingArguments does not have."""
    newest = versioned_facts(known_versions(__file__)[-1], __file__)
    own = [newest["keys"], *(newest[name] for name in kinds_in(newest))]
    return frozenset(key for one in own for key in one)


def strange_keys(run: RunSpec, words: Vocabulary) -> Iterator[StrangeKey]:
    """Yield keys that TRL (for this kind), its command, its launcher and a project's script do not read."""
    values, stack = run.config.document.values, run.target.stack
    project = project_of(values)
    known = COMMAND_KEYS | launcher_keys(stack) | (PROJECTS[project] if project else frozenset())
    everywhere = vocabulary(None, stack)
    for strange in unknown(written_names(run.config.document), words, "TRL", run.keys):
        if strange.key in known:
            continue
        since = gone_since(strange.key, run.objective.rl or "sft")
        if since:
            library, _, version = since.lower().rpartition(" ")
            if not stack.older_than(library, version):
                yield _gone(strange.key, since, words)
        elif strange.key in everywhere:
            kind = next(name for name in kinds(stack) if strange.key in vocabulary(name, stack))
            why = (
                f"{strange.key} is a key of `trl {kind}`, but this file is for "
                f"{run.objective.rl or 'supervised training'}"
            )
            yield StrangeKey(key=strange.key, why=why)
        elif strange.key in ALL_PROJECT_KEYS:
            owner = next(name for name, keys in PROJECTS.items() if strange.key in keys)
            yield StrangeKey(key=strange.key, why=f"{strange.key} is a key of {owner}'s own script, not of TRL")
        elif strange.now is not None or not stack.older_than("trl", known_versions(__file__)[0]):
            yield strange


def gone_since(key: str, kind: str) -> str:
    """Return the release that removed a key of a kind of training: `TRL 0.20`; "" if there is none."""
    own = [("TRL", __file__, section) for section in (kind, "keys", *KINDS)]
    for title, beside, section in (*own, ("transformers", arguments.__file__, "keys")):
        if found := spans(beside, section, key):
            return f"{title} {found[-1].gone.removesuffix('.0')}" if found[-1].gone else ""
    return ""


def _gone(key: str, since: str, words: Vocabulary) -> StrangeKey:
    now = GONE.get(key, "") if GONE.get(key) in words else ""
    means = f": write {now}" if now else ""
    return StrangeKey(key=key, why=f"{key} was removed in {since}{means}", now=now or None, drop=not now)
