"""The embedded engine as a trainer of its own: the keys of Axolotl's files, run by transformers' plain Trainer.

What differs from Axolotl ends in fields: all weights keep the dtype they are loaded in, no kernels are put in place by
themselves, an evaluation happens only where one is scheduled, and the allocator is set before torch is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vramwise.allocator.variables import prepared_variables, settings_in_force
from vramwise.rules.base import Rule
from vramwise.trainers.axolotl.trainer import Axolotl
from vramwise.trainers.base import SideFiles, Spelling
from vramwise.types import Change, Document, Origin, RunSpec, Target, neutral

# Fields whose keys it does not take, and values of others.
_LACKING = frozenset({"fused_lora", "expert_quantization", "empty_cache_at_eval"})
_NOT = {
    "activation_offloading": ("stream", "legacy", "hidden_states"),
    "loss_kernel": ("chunked",),
    "precision": ("fp8",),
}


# What Axolotl does to a run and the plain Trainer does not: the neutral value, for this reason.
_UNTOUCHED = {
    "upcasts_at_load": "the plain Trainer casts nothing",
    "quantised_base_prepared": "adapters go around the base as it is",
    "resets_load_peaks": "the peak figures begin with the process",
    "lora_kernels": "the plain Trainer has none",
    "fused_lora": "the plain Trainer has none",
    "fused_lora_wide_grads": "the plain Trainer has none",
    "fused_lora_in_place": "the plain Trainer has none",
    "fused_lora_squared": "the plain Trainer has none",
    "fused_lora_traced": "the plain Trainer has none",
    "saved_pair_tied": "PEFT copies each module",
    "compiled_layers": "the plain Trainer compiles no layers",
    "tables_each_layer": "the plain Trainer has none",
    "head_in_fp32": "the plain Trainer leaves the head as it is",
    "warms_up": "transformers' own way of loading",
    "halves_warm_up": "as transformers since 5.0",
    "copies_to_half": "weights are read in their type",
    "multiplies_first": "nothing is multiplied",
    "embedding_leaves_below": "embeddings stay on the card",
    "fused_layers": "the plain Trainer has none",
    "packed_attention": "the plain Trainer has none",
    "linear_targets_by_name": "all-linear is passed to PEFT",
    "embeddings_want_grads": "only if blocks are checkpointed",
    "varlen_sdpa": "the plain Trainer builds a mask",
    "liger_before_build": "Liger replaces methods of the model once it is built",
    "eval_on_start": "the plain Trainer evaluates on schedule",
    "eval_empties_every": "the plain Trainer keeps the losses and the cache",
    "empty_cache_steps": "not passed on",
    "collect_steps": "not passed on",
    "fsdp_one_root": "FSDP 2 as accelerate wraps it",
    "fsdp_widens": "FSDP 2 as accelerate wraps it",
    "fsdp_adapters_apart": "FSDP 2 as accelerate wraps it",
    "host_weights_wide": "no weight is cast before DeepSpeed takes them",
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
        return [rule for rule in super().rules() if not rule.moot_when_embedded]


def lacks(change: Change) -> bool:
    """Whether the engine has nothing of the sort."""
    return bool(_LACKING & change.fields.keys()) or any(change.fields.get(name) in not_ for name, not_ in _NOT.items())


def as_plain_trainer(run: RunSpec) -> RunSpec:
    """The same settings under transformers' plain Trainer."""
    added = prepared_variables(run.target)
    settings, origin = settings_in_force(run.target, added, "vramwise train")
    wide = run.precision.weights_dtype == "fp32"
    changed: dict[str, tuple[Any, str]] = {
        **{name: (neutral(name)[0], why) for name, why in _UNTOUCHED.items()},
        "fp32_embeddings": (wide, "the plain Trainer leaves weights as they were loaded"),
        "loads_through": (
            _way(run),
            "a quantised base is read onto the card; any other into host memory, to be moved when ready",
        ),
    }
    if run.adapter.lora_target_linear:
        changed["lora_target_modules"] = (("all-linear",), "PEFT's own word for all linear layers")
    origins = {name: Origin(kind="derived", why=why) for name, (_, why) in changed.items()}
    plain = run.changed(
        trainer="transformers",
        trainer_title="the embedded engine",
        added_variables=added,
        allocator=settings,
        origins={**run.origins, **origins, "allocator": origin},
        **{name: value for name, (value, _) in changed.items()},
    )
    return _without_unscheduled_eval(plain)


def _way(run: RunSpec) -> str:
    if run.loading.quantization is not None:
        return "device"
    return "made" if run.loading.loads_through == "made" else "host"


def _without_unscheduled_eval(run: RunSpec) -> RunSpec:
    """A run that holds samples out but schedules no evaluation has none, and needs no memory for it."""
    get = run.config.get
    strategy = get("eval_strategy", get("evaluation_strategy"))
    scheduled = get("eval_steps") or get("evals_per_epoch") or strategy not in (None, "no", False)
    run = run.changed(eval_scheduled=bool(scheduled))
    if not run.evaluation.evaluates or scheduled:
        return run
    why = "samples are held out, but neither eval_steps, evals_per_epoch nor eval_strategy schedules an evaluation"
    origins = {**run.origins, "evaluates": Origin(kind="derived", why=why)}
    return run.changed(evaluates=False, eval_batch_size=None, eval_sequence_len=None, origins=origins)
