"""Which loop a run's objective needs."""

from __future__ import annotations

from vramwise.ghost.loops.dpo import DpoRun
from vramwise.ghost.loops.grpo import GrpoRun
from vramwise.ghost.loops.kto import KtoRun
from vramwise.ghost.loops.orpo import OddsRun
from vramwise.ghost.loops.reward import ProcessRewardRun, RewardRun
from vramwise.ghost.loops.sft import Run
from vramwise.ghost.loops.value_head import ValueHeadRun
from vramwise.ghost.loops.whole_log_softmax import WholeDpoRun, WholeKtoRun
from vramwise.types import RunSpec

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
}
# Where log-probabilities come through the log-softmax of all logits.
_WHOLE: dict[str, type[Run]] = {"dpo": WholeDpoRun, "kto": WholeKtoRun}


def loop_of(run: RunSpec) -> type[Run]:
    """The loop of that run."""
    kinds = _LOOPS | _WHOLE if run.objective.log_probs == "whole" else _LOOPS
    return kinds[run.objective.kind]
