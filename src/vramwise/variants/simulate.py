"""Does the work of a simulation: ghost runs, and timelines through the allocator. `simulations.py` keeps the results.

Each is run only once for equal inputs.
"""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.allocator.quick.stretches import Stretches
from vramwise.allocator.run import simulate
from vramwise.allocator.settings import AllocatorSettings, TorchVersion
from vramwise.ghost.loops.batches import BatchShape, largest
from vramwise.ghost.loops.sft import ghost_run
from vramwise.timeline import MemoryReport, Timeline
from vramwise.types import SETTINGS, ModelSpec, RunSpec
from vramwise.variants.effort import EVENTS_READ, ghost_units
from vramwise.variants.simulations import Simulations

# Loading has its own transients, and its cache is emptied before the first step, so its peak is kept separate.
LOADING = frozenset({"load"})

# Others are the file's, the allocator's (unless a second model is loaded, which requests less if memory is idle), or
# are already expressed as shapes.
SEEN_BY_THE_GHOST = tuple(name for name, setting in SETTINGS.items() if setting.ghost)


def ghost_of(
    simulations: Simulations,
    run: RunSpec,
    model: ModelSpec,
    widths: Sequence[BatchShape],
    evals: Sequence[BatchShape],
    steps: int,
    capacity_bytes: int | None,
) -> tuple[Timeline, tuple[str, ...]]:
    """Return the timeline of the run and the assumptions that it made.

    `capacity_bytes`: what the allocator may reserve; few runs go by it.
    """
    capacity_bytes = capacity_bytes if run.loading.embedding_leaves_below else None
    gpu = run.target.gpu
    evals = evals or [largest(run, evaluation=True)] * 2  # the default of a ghost run
    values = tuple([run.value(name) for name in SEEN_BY_THE_GHOST])
    allocator = run.allocator.settings if run.objective.spare_model or run.objective.reference == "model" else None
    key = (values, allocator, run.target.torch, gpu, model, tuple(widths), tuple(evals), steps, capacity_bytes)
    if key not in simulations.ghosts:
        made = ghost_run(
            run, model, widths=widths, eval_widths=evals, steps=steps, gpu=gpu, capacity_bytes=capacity_bytes
        )
        simulations.ghosts[key] = made
        simulations.effort.spend(ghost_units(made[0]))
    return simulations.ghosts[key]


def report_of(
    simulations: Simulations,
    timeline: Timeline,
    settings: AllocatorSettings,
    torch: TorchVersion,
    *,
    total_bytes: int | None = None,
    limit_bytes: int | None = None,
    outside_bytes: int = 0,
) -> MemoryReport:
    """Return the memory report of a timeline, with loading separate."""
    key = (id(timeline), settings, torch, total_bytes, limit_bytes, outside_bytes)
    if key not in simulations.reports:
        report = simulate(
            timeline,
            settings,
            torch=torch,
            total_bytes=total_bytes,
            limit_bytes=limit_bytes,
            outside_bytes=outside_bytes,
            apart=LOADING,
            stretches=_stretches(simulations, timeline),
            count=simulations.effort.spend,
        )
        simulations.reports[key] = (report, timeline)
        simulations.effort.spend(len(timeline.events) // EVENTS_READ)
    return simulations.reports[key][0]


def _stretches(simulations: Simulations, timeline: Timeline) -> Stretches:
    if simulations.last is None or simulations.last[0] is not timeline:
        simulations.last = (timeline, Stretches(timeline))
    return simulations.last[1]
