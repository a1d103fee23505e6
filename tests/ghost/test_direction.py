"""The allocator reads what a ghost run wrote: it never calls back into the room that made it."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from truth import BUNDLED, cases
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import parse_settings
from vramwise.ghost.loops.sft import ghost_run

CASE = next(case for case in cases(BUNDLED) if case.run.adapter.kind == "lora")


def rooms_called(work):
    """How often the allocator called a function of each room."""
    found = Counter()

    def note(frame, event, _):
        if event == "call" and frame.f_back is not None:
            caller, called = (Path(one.f_code.co_filename).parts for one in (frame.f_back, frame))
            if "allocator" in caller and "vramwise" in called:
                found[called[called.index("vramwise") + 1]] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return found


def test_the_allocator_calls_nothing_of_the_ghost():
    run = CASE.run.changed(evaluates=True, eval_batch_size=1, gradient_accumulation_steps=3)
    timeline, _ = ghost_run(run, replace(CASE.model, num_hidden_layers=9), steps=3)
    for settings in ("expandable_segments:True", "", "garbage_collection_threshold:0.6"):
        called = rooms_called(lambda text=settings: simulate(timeline, parse_settings(text, (2, 11))))
        assert called["allocator"] > 100
        assert called.keys() <= {"allocator", "collecting.py", "timeline.py"}
