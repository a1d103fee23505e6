"""Whose file is this? A training config of a trainer we know, somebody else's file, or nobody's we have heard of.

Recognised by keys alone. What is not ours is left alone: no findings, no edit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vramwise.trainers.base import Trainer
from vramwise.trainers.registry import all_trainers


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A file that is not a training config we read. `kind` is a short word for programs, `what` for people."""

    kind: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sign:
    """Somebody else's file: it has one of `any_of`, and all of `all_of`."""

    kind: str
    what: str
    any_of: frozenset[str]
    all_of: frozenset[str] = frozenset()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MODEL = _words("model_name_or_path")
# The most telling first: what one tool alone writes.
_SIGNS = (
    _Sign(kind="kubernetes", what="a Kubernetes manifest", any_of=_words("apiVersion"), all_of=_words("kind")),
    _Sign(kind="workflow", what="a CI workflow", any_of=_words("jobs"), all_of=_words("on jobs")),
    _Sign(kind="compose", what="a Compose file", any_of=_words("services")),
    _Sign(kind="mkdocs", what="an MkDocs file", any_of=_words("site_name")),
    _Sign(kind="dvc", what="a DVC pipeline", any_of=_words("stages")),
    _Sign(kind="mergekit", what="a mergekit file", any_of=_words("merge_method slices")),
    _Sign(
        kind="deepspeed",
        what="a DeepSpeed config",
        any_of=_words("zero_optimization train_micro_batch_size_per_gpu zero_allow_untested_optimizer"),
    ),
    _Sign(
        kind="accelerate",
        what="an accelerate config",
        any_of=_words("compute_environment distributed_type machine_rank num_machines main_training_function"),
    ),
    _Sign(kind="filter", what="a filter of datasets", any_of=_words("pass_rate_min pass_rate_max")),
    _Sign(
        kind="llamafactory-other",
        what="a LLaMA-Factory file for export or inference",
        any_of=_words("export_dir infer_backend vllm_enforce_eager api_host"),
        all_of=_MODEL,
    ),
    _Sign(
        kind="llamafactory-megatron",
        what="a LLaMA-Factory file for Megatron",
        any_of=_words("tensor_model_parallel_size pipeline_model_parallel_size expert_model_parallel_size"),
        all_of=_MODEL,
    ),
    _Sign(
        kind="llamafactory-other",
        what="a LLaMA-Factory file that trains nothing",
        any_of=_words("stage finetuning_type template cutoff_len dataset_dir neat_packing quantization_bit"),
        all_of=_MODEL,
    ),
    _Sign(
        kind="llamafactory-v1",
        what="a file of LLaMA-Factory's new core (USE_V1=1)",
        any_of=_words("model_class kernel_config dist_config peft_config"),
        all_of=_words("model"),
    ),
    _Sign(
        kind="trl",
        what="a file with some arguments of TRL or transformers, too few to tell whose it is",
        any_of=_words(
            "dataset_name dataset_mixer dataset_mixture dataset_config per_device_train_batch_size use_peft max_length "
            "num_train_epochs torch_dtype dtype"
        ),
        all_of=_MODEL,
    ),
    _Sign(
        kind="trl",
        what="a file with some arguments of TRL or transformers, too few to tell whose it is",
        any_of=_words("per_device_train_batch_size per_device_eval_batch_size"),
    ),
)
NOBODYS = Foreign(kind="other", what="no training config")


_KEY = re.compile(r"""^["']?([A-Za-z_][\w.\-]{0,80})["']?[ \t]*:(?=\s|$)""", re.MULTILINE | re.ASCII)


def unreadable_as(text: str) -> Foreign | None:
    """Whose file a text is that cannot be read as a config; None where it may be meant as one of ours.

    Other tools' YAML has tags, several documents or keys that no config has: that is their business, not a mistake.
    """
    keys = frozenset(_KEY.findall(text))
    return None if any(trainer.might_be(keys) for trainer in all_trainers()) else _sign_of(set(keys))


def recognise(values: Mapping[Any, Any]) -> Trainer | Foreign:
    """The trainer a file belongs to, or whose else it is."""
    keys = {key for key in values if isinstance(key, str)}
    # YAML 1.1 reads the key `on` of a workflow as true
    keys |= {"on"} if True in values else set()
    for trainer in all_trainers():
        if trainer.recognises(values):
            return trainer
    return _sign_of(keys)


def _sign_of(keys: set[str]) -> Foreign:
    for sign in _SIGNS:
        if keys & sign.any_of and keys >= sign.all_of:
            return Foreign(kind=sign.kind, what=sign.what)
    return NOBODYS
