"""Resolves a Document to a RunSpec for LLaMA-Factory 0.9.4 and 0.9.5, with a reason for every value.

Follows `get_train_args` and the code that loads, prepares and trains the model (sources: docs/llamafactory.md).
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.allocator.variables import settings_in_force
from vramwise.trainers.arguments import (
    Arguments,
    arguments_config,
    resolve_absent,
    resolve_batch,
    resolve_sharding,
    resolved,
)
from vramwise.trainers.base import SideFiles
from vramwise.trainers.fields import Fields
from vramwise.trainers.llamafactory.keys import facts, vocabulary
from vramwise.trainers.llamafactory.resolve.adapter import resolve_method
from vramwise.trainers.llamafactory.resolve.evaluation import resolve_evaluation
from vramwise.trainers.llamafactory.resolve.objective import resolve_preference
from vramwise.trainers.llamafactory.resolve.precision import resolve_dtypes
from vramwise.trainers.llamafactory.resolve.savings import resolve_attention, resolve_loss, resolve_memory_savers
from vramwise.trainers.llamafactory.resolve.shapes import resolve_shapes
from vramwise.trainers.llamafactory.resolve.sharding import added_variables, with_shipped
from vramwise.trainers.llamafactory.resolve.unfollowed import resolve_unfollowed
from vramwise.types import Document, RunSpec, Target

NAME = "llamafactory"
TITLE = "LLaMA-Factory"
COMMAND = "llamafactory-cli"


def resolve_llamafactory(document: Document, target: Target, files: SideFiles) -> RunSpec:
    """Return the run."""
    words = vocabulary(target.stack)
    fields = Fields(arguments_config(document, words), TITLE)
    args = Arguments(fields, words)
    args.put("base_model", "model_name_or_path", args.text("model_name_or_path"))
    resolve_sharding(args, target, with_shipped(files), newest_accelerate=(1, 11))
    resolve_batch(args)
    _order(args)
    media = frozenset(facts(target.stack)["media_templates"])
    resolve_method(args, media=args.value("template") in media)
    resolve_dtypes(args, target)
    resolve_memory_savers(args)
    resolve_attention(args)
    resolve_loss(args)
    resolve_preference(args)
    resolve_shapes(args)
    resolve_evaluation(args)
    args.derive("upcasts_stay", True, "nothing is cast back")
    resolve_unfollowed(args, media, target.stack)
    resolve_absent(args, target)
    added = added_variables(target, document.values)
    run = resolved(fields, target, trainer=NAME, title=TITLE, added=added, whose=COMMAND)
    # a duplicate key is refused and reported by its own rule: neither value counts
    run = replace(run, duplicate_keys=())
    if not added or target.alloc_conf is not None:
        return run
    # torchrun is started with this variable, whatever its value was
    inherited = {name: value for name, value in target.alloc_env.items() if name not in added}
    settings, origin = settings_in_force(replace(target, alloc_env=inherited), added, COMMAND)
    return run.changed(allocator=settings, origins={**run.origins, "allocator": origin})


def _order(args: Arguments) -> None:
    for key in ("disable_shuffling", "streaming"):
        if args.value(key):
            args.derive("shuffle_seed", None, f"{key}: rows keep their order", key=key)
