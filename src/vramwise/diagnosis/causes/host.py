"""What a run needs of host memory: copies of the model for each process, offloaded state, by the log or the config."""

from __future__ import annotations

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.circumstances import circumstances
from vramwise.units import readable

# Adam's two values and the fp32 weights of offloaded training, and the gradients that are copied to the host.
_OFFLOADED_STATE_BYTES = 12
_OFFLOADED_GRADIENT_BYTES = 2


def host_budget(case: Case) -> tuple[str, ...]:
    """Return how much host memory the run needs, in sentences; empty if the size of the model is unknown."""
    count = case.parameters
    if not count:
        return ()
    words, processes = circumstances(case), max(1, case.cards)
    one, single = readable(2 * count), readable(4 * count)
    several = processes > 1
    said = [
        f"{count:,} parameters take {one} of host memory in bf16 ({single} in fp32)"
        + (f" in each process that loads them: {readable(2 * count * processes)} for {processes}" if several else "")
    ]
    if "offloading" in words:
        trained = case.number("trainable_params") or (count if case.run is None or not case.run.adapter.kind else 0)
        state = trained * (_OFFLOADED_STATE_BYTES + _OFFLOADED_GRADIENT_BYTES)
        if state:
            said.append(f"the offloaded optimizer state, fp32 weights and gradients take {readable(state)} more")
    elif case.log.setup.method == "full" and case.symptom.phase not in ("load", "save") and case.run is None:
        least, most = readable(8 * count), readable(16 * count)
        said.append(f"if training is offloaded to it, weights, gradients and AdamW's state take {least} to {most}")
    if "host-saving" in words:
        said.append(f"a full state that one process gathers for saving takes {one} to {single} more")
    return tuple(said)
