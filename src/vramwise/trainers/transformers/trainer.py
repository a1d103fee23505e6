"""The embedded engine as a trainer of its own: the keys of Axolotl's files, run by transformers' plain Trainer.

What differs from Axolotl ends in fields: all weights keep the dtype they are loaded in, no kernels are put in place by
themselves, an evaluation happens only where one is scheduled, and the allocator is set before torch is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vramwise.allocator.variables import prepared_variables, settings_in_force
from vramwise.rules.base import Rule
from vramwise.trainers.axolotl.trainer import Axolotl
from vramwise.trainers.base import SideFiles, Spelling
from vramwise.trainers.experts import expert_masks
from vramwise.types import Change, Document, Origin, RunSpec, Target

# Of no concern here: no fp32 embeddings are kept, and the allocator is set by `vramwise train` itself.
MOOT = frozenset({"fp32-embeddings", "allocator-not-expandable"})

# Fields whose keys it does not take, and values of others.
_LACKING = frozenset({"fused_lora", "expert_quantization", "empty_cache_at_eval"})
_NOT = {
    "activation_offloading": ("stream", "legacy", "hidden_states"),
    "loss_kernel": ("chunked",),
    "precision": ("fp8",),
}


class PlainTransformers(Axolotl):
    """Transformers' own Trainer on a config in Axolotl's keys."""

    name = "transformers"
    title = "the embedded engine"

    def recognises(self, values: Mapping[Any, Any]) -> bool:
        """Never by itself: it is asked for."""
        return False

    def might_be(self, keys: frozenset[str]) -> bool:
        """Never by itself."""
        return False

    def resolve(self, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
        """The run as the embedded engine does it."""
        return as_plain_trainer(super().resolve(document, target, side_files))

    def spell(self, run: RunSpec, change: Change) -> Spelling | None:
        """The same keys, but for what this engine has none of: it would refuse the file."""
        return None if lacks(change) else super().spell(run, change)

    def rules(self) -> Sequence[Rule]:
        """The rules about the file, less those that this engine makes moot."""
        return [rule for rule in super().rules() if rule.id not in MOOT]


def lacks(change: Change) -> bool:
    """Whether the engine has nothing of the sort."""
    return bool(_LACKING & change.fields.keys()) or any(change.fields.get(name) in not_ for name, not_ in _NOT.items())


def as_plain_trainer(run: RunSpec) -> RunSpec:
    """The same settings under transformers' plain Trainer."""
    added = prepared_variables(run.target)
    settings, origin = settings_in_force(run.target, added, "vramwise train")
    masks, masks_why = expert_masks(run.target.stack)
    changed: dict[str, Any] = {
        "trainer": "transformers",
        "trainer_title": "the embedded engine",
        "added_variables": added,
        "fp32_embeddings": run.weights_dtype == "fp32",
        "loads_through": _way(run),
        "upcasts_at_load": (),
        "quantised_base_prepared": "no",
        "resets_load_peaks": False,
        "lora_kernels": False,
        "linear_targets_by_name": False,
        "varlen_sdpa": False,
        "expert_masks": masks,
        "fused_lora": (),
        "fused_lora_wide_grads": False,
        "embeddings_want_grads": False,
        "eval_on_start": False,
        "eval_empties_every": None,
        "empty_cache_steps": None,
        "collect_steps": None,
        "liger_before_build": False,
        "fsdp_one_root": False,
        "fsdp_adapters_apart": False,
        "allocator": settings,
    }
    why = {
        "fp32_embeddings": "the plain Trainer leaves weights as they were loaded",
        "loads_through": "a quantised base is read onto the card; any other into host memory, to be moved when ready",
        "upcasts_at_load": "the plain Trainer casts nothing",
        "quantised_base_prepared": "adapters go around the base as it is",
        "resets_load_peaks": "the peak figures begin with the process",
        "lora_kernels": "the plain Trainer has none",
        "linear_targets_by_name": "PEFT is given all-linear",
        "varlen_sdpa": "the plain Trainer builds a mask",
        "expert_masks": masks_why,
        "fused_lora": "the plain Trainer has none",
        "fused_lora_wide_grads": "the plain Trainer has none",
        "embeddings_want_grads": "only where blocks are checkpointed",
        "eval_on_start": "the plain Trainer evaluates where it is scheduled",
        "eval_empties_every": "the plain Trainer keeps the losses and the cache",
        "empty_cache_steps": "not passed on",
        "collect_steps": "not passed on",
    }
    if run.lora_target_linear:
        changed["lora_target_modules"] = ("all-linear",)
        why["lora_target_modules"] = "PEFT's own word for all linear layers"
    origins = {**run.origins, "allocator": origin}
    origins |= {name: Origin(kind="derived", why=text) for name, text in why.items()}
    return _without_unscheduled_eval(replace(run, **changed, origins=origins))


def _way(run: RunSpec) -> str:
    if run.quantization is not None:
        return "device"
    return "made" if run.loads_through == "made" else "host"


def _without_unscheduled_eval(run: RunSpec) -> RunSpec:
    """A run that holds samples out but schedules no evaluation has none, and needs no memory for it."""
    get = run.config.get
    strategy = get("eval_strategy", get("evaluation_strategy"))
    scheduled = get("eval_steps") or get("evals_per_epoch") or strategy not in (None, "no", False)
    run = replace(run, eval_scheduled=bool(scheduled))
    if not run.evaluates or scheduled:
        return run
    why = "samples are held out, but neither eval_steps, evals_per_epoch nor eval_strategy schedules an evaluation"
    origins = {**run.origins, "evaluates": Origin(kind="derived", why=why)}
    return replace(run, evaluates=False, eval_batch_size=None, eval_sequence_len=None, origins=origins)
