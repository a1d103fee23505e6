"""Out of memory: the witnesses. Each looks at a case for one cause and says how sure it is, and why.

A confidence is a judgement, not a frequency: 0.9 and more where the evidence is direct (a traceback inside the
optimizer at the first step, a replay that serves the request), about 0.7 where arithmetic or position points one way,
0.5 and less where it is merely compatible. The ghost run raises or lowers it afterwards (`causes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vramwise.diagnosis.case import Case
from vramwise.diagnosis.causes import moment as moment_causes
from vramwise.diagnosis.causes import request as request_causes
from vramwise.diagnosis.causes import room as room_causes
from vramwise.diagnosis.evidence import Cause

Witness = Callable[[Case], Iterator[Cause]]

# Where two are equally sure, the earlier one goes first.
WITNESSES: tuple[Witness, ...] = (
    room_causes.other_process,
    room_causes.fragmentation,
    moment_causes.growing,
    request_causes.logits,
    request_causes.eager_attention,
    moment_causes.optimizer_state,
    moment_causes.evaluation,
    moment_causes.saving,
    moment_causes.loading,
    moment_causes.long_tail,
    room_causes.impossible_request,
    room_causes.oversized_batch,
    room_causes.outside_torch,
    room_causes.capacity,
)
