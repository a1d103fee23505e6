"""Recognises whose file this is: a training config of a known trainer, another tool's file, or an unknown one.

Recognition uses only the keys. Other files are left alone: no findings, no edits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from vramwise.trainers.base import Trainer
from vramwise.trainers.registry import all_identities, trainer_named
from vramwise.trainers.signs import Sign, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A file that is not a training config. `kind` is a short word for programs, `what` a phrase for people."""

    kind: str
    what: str


# The most specific first: keys that only one tool writes. Trainers add those of their own tools.
_SIGNS = (
    Sign(kind="kubernetes", what="a Kubernetes manifest", any_of=words("apiVersion"), all_of=words("kind")),
    Sign(kind="workflow", what="a CI workflow", any_of=words("jobs"), all_of=words("on jobs")),
    Sign(kind="compose", what="a Compose file", any_of=words("services")),
    Sign(kind="mkdocs", what="an MkDocs file", any_of=words("site_name")),
    Sign(kind="dvc", what="a DVC pipeline", any_of=words("stages")),
    Sign(kind="mergekit", what="a mergekit file", any_of=words("merge_method slices")),
    Sign(
        kind="deepspeed",
        what="a DeepSpeed config",
        any_of=words("zero_optimization train_micro_batch_size_per_gpu zero_allow_untested_optimizer"),
    ),
    Sign(
        kind="accelerate",
        what="an accelerate config",
        any_of=words("compute_environment distributed_type machine_rank num_machines main_training_function"),
    ),
    Sign(kind="filter", what="a filter of datasets", any_of=words("pass_rate_min pass_rate_max")),
)
NOBODYS = Foreign(kind="other", what="not a training config")


_KEY = re.compile(r"""^["']?([A-Za-z_][\w.\-]{0,80})["']?[ \t]*:(?=\s|$)""", re.MULTILINE | re.ASCII)


def unreadable_as(text: str) -> Foreign | None:
    """Return whose file an unreadable text is; None if it may be meant as a training config.

    Other tools' YAML has tags, several documents or unusual keys, which is not a mistake there.
    """
    keys = frozenset(_KEY.findall(text))
    return None if any(one.might_be(keys) for one in all_identities()) else _sign_of(set(keys))


def recognise(values: Mapping[Any, Any]) -> Trainer | Foreign:
    """Return the trainer that a file belongs to, or what else the file is."""
    keys = {key for key in values if isinstance(key, str)}
    # YAML 1.1 reads the key `on` of a workflow as true
    keys |= {"on"} if True in values else set()
    for one in all_identities():
        if one.recognises(values):
            return trainer_named(one.name)
    return _sign_of(keys)


def _sign_of(keys: set[str]) -> Foreign:
    for sign in chain(_SIGNS, *(one.other_files for one in all_identities())):
        if keys & sign.any_of and keys >= sign.all_of:
            return Foreign(kind=sign.kind, what=sign.what)
    return NOBODYS
