"""Which loop a run's objective needs, and its construction."""

from __future__ import annotations

from importlib import import_module

from vramwise.errors import VramwiseError
from vramwise.ghost.loops.sft import Run
from vramwise.ghost.loops.steps import local_model
from vramwise.ghost.sharding import sharding_of
from vramwise.ghost.shortcuts import Shortcuts
from vramwise.ghost.tape import Tape
from vramwise.types import ModelSpec, RunSpec

# Module and class, imported only when a run needs them.
_LOOPS = {
    "tokens": "sft.Run",
    "dpo": "dpo.DpoRun",
    "kto": "dpo.KtoRun",
    "orpo": "dpo.OddsRun",
    "cpo": "dpo.OddsRun",
    "reward": "heads.RewardRun",
    "value": "heads.ValueHeadRun",
    "process_reward": "heads.ProcessRewardRun",
    "grpo": "grpo.GrpoRun",
    "classes": "heads.ClassesRun",
    "token_classes": "heads.TokenClassesRun",
}
# Loops that compute log-probabilities through the log-softmax of all logits.
_WHOLE = {"dpo": "dpo.WholeDpoRun", "kto": "dpo.WholeKtoRun"}
_BOTH = "seq2seq.Seq2SeqRun"


def begin(t: Tape, run: RunSpec, model: ModelSpec, *, plainly: bool = False) -> Run:
    """Return the run on one rank, loaded and ready to train; `plainly`: without shortcuts.

    Raises VramwiseError for an objective that is not modelled for models with an encoder and a decoder.
    """
    kinds = _LOOPS | _WHOLE if run.objective.log_probs == "whole" else _LOOPS
    objective = run.objective.kind
    both = model.reads == "both"
    if both and objective != "tokens":
        training = f"rl: {run.objective.rl}" if run.objective.rl else f"training for {objective.replace('_', ' ')}"
        raise VramwiseError(f"{training} is not supported for {model.model_type}, which has an encoder and a decoder")
    kind = _loop(_BOTH if both else kinds[objective])
    loop = kind(t, run, local_model(run, model), sharding_of(run))
    if not plainly:
        loop.shortcuts = Shortcuts(loop)
    return loop


def _loop(name: str) -> type[Run]:
    module, _, found = name.partition(".")
    loop: type[Run] = getattr(import_module(f"vramwise.ghost.loops.{module}"), found)
    return loop
