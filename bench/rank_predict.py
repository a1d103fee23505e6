"""Predictions for the cases of `zero_rank.py`: peaks by phase, and what the allocator reserves."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "measured"), str(HERE.parent / "src")]

from rank_cases import SHAPES, zero_section  # noqa: E402
from truth import BUNDLED, H200, cases  # noqa: E402
from vramwise.allocator.repeats import unroll  # noqa: E402
from vramwise.allocator.run import simulate  # noqa: E402
from vramwise.allocator.settings import parse_settings  # noqa: E402
from vramwise.ghost.loops.batches import BatchShape  # noqa: E402
from vramwise.ghost.loops.sft import ghost_run  # noqa: E402
from vramwise.timeline import Action, Timeline  # noqa: E402
from vramwise.trainers.deepspeed import zero_settings  # noqa: E402
from vramwise.types import ModelSpec, RunSpec  # noqa: E402

MIB = 1024**2
_PHASES = {"loss": "forward", "clip": "step", "optimizer": "step"}


def described(case: dict[str, Any]) -> tuple[RunSpec, ModelSpec]:
    """The case in the words of the product."""
    base = {found.name: found for found in cases(BUNDLED)}["lora_llama8b_s1024_b1_nogc"]
    section = zero_section(case) if case["kind"] == "zero" else {}
    kind = f"zero{case['stage']}" if case["kind"] == "zero" else case["kind"]
    offloaded = bool(case.get("offload"))
    # DDP has its buckets even where its one rank is alone
    ranks = 2 if case["kind"] == "ddp" else case["ranks"]
    run = base.run.changed(
        sharding=kind,
        zero=zero_settings(section) if section else None,
        gpus=ranks,
        data_parallel=ranks,
        shard_ranks=ranks,
        autocast=case["kind"] != "zero",
        adapter="lora" if case["lora"] else None,
        lora_r=case["rank"] if case["lora"] else None,
        lora_dropout=0.0,
        quantization="4bit" if case["quantised"] else None,
        recompute=bool(case["checkpointing"]),
        gradient_checkpointing=bool(case["checkpointing"]),
        checkpointing_reentrant=case["checkpointing"] != "non-reentrant",
        optimizer=case["optimizer"],
        gradient_accumulation_steps=case["accumulation"],
        micro_batch_size=case["rows"],
        sequence_len=case["width"],
        offload_params=offloaded or "offload_param" in section,
        offload_optimizer=offloaded or "offload_optimizer" in section,
        reshard_after_forward=not case.get("keep"),
        fsdp_one_root=case.get("style", "accelerate") != "accelerate",
        fsdp_widens="trained" if case.get("style", "accelerate") == "accelerate" else "nothing",
        fsdp_adapters_apart=case.get("style") == "axolotl",
    )
    return run, replace(base.model, **SHAPES[case["shape"]])


def predict(case: dict[str, Any]) -> dict[str, Any]:
    """Peaks in MiB, the way `zero_rank.py` writes measured ones."""
    run, model = described(case)
    widths = [BatchShape(case["rows"], case["width"], False)]
    timeline, _ = ghost_run(run, model, widths=widths, steps=case["steps"], gpu=H200)
    report = simulate(timeline, parse_settings("", (2, 11)), torch=(2, 11))
    return {"name": case["name"], **peaks(timeline), "reserved": round(report.peak_reserved_bytes / MIB, 2)}


def peaks(timeline: Timeline, at: tuple[str, int] | None = None) -> dict[str, Any]:
    """The most that lives in each phase, and in each phase of each step; at one of them what it is made of."""
    timeline = unroll(timeline)
    live: dict[int, tuple[int, int]] = {}
    most: dict[str, float] = {}
    by_step: dict[str, float] = {}
    parts: dict[str, float] = {}
    phase, step, now = "load", 0, 0
    for event in timeline.events:
        if event.action == Action.PHASE:
            name, step = timeline.phases[event.tag]
            phase = _PHASES.get(name, name)
        elif event.action == Action.ALLOC:
            live[event.tensor] = (event.size_bytes, event.tag)
            now += event.size_bytes
        elif event.action == Action.FREE:
            now -= live.pop(event.tensor, (0, 0))[0]
        most[phase] = max(most.get(phase, 0.0), now / MIB)
        key = f"{phase} {step}" if step else phase
        if now / MIB > by_step.get(key, 0.0):
            by_step[key] = now / MIB
            if at == (phase, step):
                parts = _by_label(timeline, live)
    rounded = {name: round(value, 3) for name, value in most.items()}
    return {"allocated": rounded, "by_step": {k: round(v, 3) for k, v in by_step.items()}, "parts": parts}


def _by_label(timeline: Timeline, live: dict[int, tuple[int, int]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for size, tag in live.values():
        category, label = timeline.tags[tag]
        name = label if category in ("gradients", "optimizer", "temporary") else category
        name = "gathered" if "gathered" in label else name
        found[name] = found.get(name, 0.0) + size / MIB
    return {name: round(size, 2) for name, size in sorted(found.items(), key=lambda part: -part[1]) if size > 0.05}
