"""Ghost runs and allocator runs that were made already, by what decides them.

Variants of a run often ask for the same bytes in the same order: another allocator, another text of the same meaning,
rows padded to the width that was taken for granted anyway. What was worked out once is not worked out again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from vramwise.allocator.quick.stretches import Stretches
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import AllocatorSettings, TorchVersion
from vramwise.ghost.loops.batches import BatchShape, largest
from vramwise.ghost.loops.sft import ghost_run
from vramwise.timeline import MemoryReport, Timeline
from vramwise.types import SETTINGS, ModelSpec, RunSpec
from vramwise.variants.effort import EVENTS_READ, Effort, ghost_units

# Loading has its own transients, and its cache is emptied before the first step: its peak is told apart from the run's.
LOADING = frozenset({"load"})

# What a ghost run never looks at: the file, the allocator (but where a second model is loaded, which asks for less by
# what is idle), and what has become shapes before it begins.
UNSEEN_BY_THE_GHOST = frozenset(
    {
        "base_model",
        *("effective_batch_size", "pad_to_sequence_len", "pad_multiple", "constant_shapes", "group_by_length"),
        *("packing_fill", "packed_together", "shuffle_seed", "labels_on"),
        *("long_rows", "allocator", "unfollowed", "flash_installed", "flash_needs_sinks"),
    }
)
SEEN_BY_THE_GHOST = tuple(name for name in SETTINGS if name not in UNSEEN_BY_THE_GHOST)


@dataclass(slots=True)
class Simulations:
    """What was worked out so far, for one subject and all its variants, and what that took."""

    effort: Effort = field(default_factory=Effort)
    _ghosts: dict[Hashable, tuple[Timeline, tuple[str, ...]]] = field(default_factory=dict)
    # The timeline is kept beside its report, so that its id stays its own.
    _reports: dict[Hashable, tuple[MemoryReport, Timeline]] = field(default_factory=dict)
    # what was found out about the timeline simulated last: it is often simulated again, on the card
    _last: tuple[Timeline, Stretches] | None = None

    def ghost(
        self, run: RunSpec, model: ModelSpec, widths: Sequence[BatchShape], evals: Sequence[BatchShape], steps: int
    ) -> tuple[Timeline, tuple[str, ...]]:
        """The run's requests, and what had to be assumed."""
        gpu = run.target.gpu
        evals = evals or [largest(run, evaluation=True)] * 2  # what a ghost run without them takes
        values = tuple([run.value(name) for name in SEEN_BY_THE_GHOST])
        allocator = run.allocator.settings if run.objective.spare_model or run.objective.reference == "model" else None
        key = (values, allocator, run.target.torch, gpu, model, tuple(widths), tuple(evals), steps)
        if key not in self._ghosts:
            self._ghosts[key] = ghost_run(run, model, widths=widths, eval_widths=evals, steps=steps, gpu=gpu)
            self.effort.spend(ghost_units(self._ghosts[key][0]))
        return self._ghosts[key]

    def simulated(
        self,
        timeline: Timeline,
        settings: AllocatorSettings,
        torch: TorchVersion,
        *,
        total_bytes: int | None = None,
        limit_bytes: int | None = None,
        outside_bytes: int = 0,
    ) -> MemoryReport:
        """What the allocator makes of it; loading apart."""
        key = (id(timeline), settings, torch, total_bytes, limit_bytes, outside_bytes)
        if key not in self._reports:
            report = simulate(
                timeline,
                settings,
                torch=torch,
                total_bytes=total_bytes,
                limit_bytes=limit_bytes,
                outside_bytes=outside_bytes,
                apart=LOADING,
                stretches=self._stretches(timeline),
                count=self.effort.spend,
            )
            self._reports[key] = (report, timeline)
            self.effort.spend(len(timeline.events) // EVENTS_READ)
        return self._reports[key][0]

    def _stretches(self, timeline: Timeline) -> Stretches:
        if self._last is None or self._last[0] is not timeline:
            self._last = (timeline, Stretches(timeline))
        return self._last[1]
