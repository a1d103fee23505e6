"""The embedded engine as a trainer of its own: the keys of Axolotl's files, run by transformers' plain Trainer.

What differs from Axolotl ends in fields: all weights keep the dtype they are loaded in, no kernels are put in place by
themselves, an evaluation happens only where one is scheduled, and the allocator is set before torch is imported.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vramwise.allocator.variables import prepared_variables, settings_in_force
from vramwise.trainers.axolotl.trainer import TRAINER as AXOLOTL
from vramwise.trainers.axolotl.trainer import unknown_key
from vramwise.trainers.transformers.recognise import IDENTITY
from vramwise.types import SETTINGS, Change, Origin, RunSpec

# Fields whose keys it does not take, and values of others.
_LACKING = frozenset({"fused_lora", "expert_quantization", "empty_cache_at_eval"})
_NOT = {
    "activation_offloading": ("stream", "legacy", "hidden_states"),
    "loss_kernel": ("chunked",),
    "precision": ("fp8",),
}


def lacks(change: Change) -> bool:
    """Whether the engine has nothing of the sort."""
    return bool(_LACKING & change.fields.keys()) or any(change.fields.get(name) in not_ for name, not_ in _NOT.items())


def as_plain_trainer(run: RunSpec) -> RunSpec:
    """The same settings under transformers' plain Trainer."""
    added = prepared_variables(run.target)
    settings, origin = settings_in_force(run.target, added, "vramwise train")
    wide = run.precision.weights_dtype == "fp32"
    changed: dict[str, tuple[Any, str]] = {
        **{name: (setting.neutral, setting.plain) for name, setting in SETTINGS.items() if setting.plain},
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


TRAINER = replace(
    AXOLOTL,
    identity=IDENTITY,
    resolve=lambda document, target, files: as_plain_trainer(AXOLOTL.resolve(document, target, files)),
    # what this engine does not have would make it refuse the file
    spell=lambda run, change: None if lacks(change) else AXOLOTL.spell(run, change),
    key_unknown=lambda key, stack: unknown_key(key, stack, IDENTITY.title),
    rules=lambda: [rule for rule in AXOLOTL.rules() if not rule.moot_when_embedded],
)
