"""Which loop a run's objective needs, and its construction."""

from __future__ import annotations

from vramwise.ghost.loops.classes import ClassesRun, TokenClassesRun
from vramwise.ghost.loops.dpo import DpoRun
from vramwise.ghost.loops.grpo import GrpoRun
from vramwise.ghost.loops.kto import KtoRun
from vramwise.ghost.loops.orpo import OddsRun
from vramwise.ghost.loops.plan import local_model
from vramwise.ghost.loops.reward import ProcessRewardRun, RewardRun
from vramwise.ghost.loops.seq2seq import Seq2SeqRun
from vramwise.ghost.loops.sft import Run
from vramwise.ghost.loops.value_head import ValueHeadRun
from vramwise.ghost.loops.whole_log_softmax import WholeDpoRun, WholeKtoRun
from vramwise.ghost.sharding import sharding_of
from vramwise.ghost.shortcuts import Shortcuts
from vramwise.ghost.tape import Tape
from vramwise.types import ModelSpec, RunSpec

_LOOPS: dict[str, type[Run]] = {
    "tokens": Run,
    "dpo": DpoRun,
    "kto": KtoRun,
    "orpo": OddsRun,
    "cpo": OddsRun,
    "reward": RewardRun,
    "value": ValueHeadRun,
    "process_reward": ProcessRewardRun,
    "grpo": GrpoRun,
    "classes": ClassesRun,
    "token_classes": TokenClassesRun,
}
# Loops that compute log-probabilities through the log-softmax of all logits.
_WHOLE: dict[str, type[Run]] = {"dpo": WholeDpoRun, "kto": WholeKtoRun}


def begin(t: Tape, run: RunSpec, model: ModelSpec, *, plainly: bool = False) -> Run:
    """Return the run on one rank, loaded and ready to train; `plainly`: without shortcuts."""
    kinds = _LOOPS | _WHOLE if run.objective.log_probs == "whole" else _LOOPS
    kind = kinds[run.objective.kind]
    if kind is Run and model.reads == "both":
        kind = Seq2SeqRun
    loop = kind(t, run, local_model(run, model), sharding_of(run))
    if not plainly:
        loop.shortcuts = Shortcuts(loop)
    return loop
