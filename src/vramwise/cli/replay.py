"""`vramwise replay`: replays a recorded run through the simulated allocator, with its own or other settings."""

from __future__ import annotations

import sys
from typing import Any

import click

from vramwise.cli.writing import say_all
from vramwise.facts.torch import parse_torch_version
from vramwise.opening.options import Options, PredictOptions
from vramwise.recordings.compared import Comparison, compare
from vramwise.recordings.reader import read_recording
from vramwise.recordings.recorded import timeline_of
from vramwise.recordings.recording import Recording
from vramwise.recordings.replay import ReplayResult, replay
from vramwise.render.compared import comparison_json, comparison_text
from vramwise.render.json_text import json_text
from vramwise.units import gib, mib, parse_size, readable
from vramwise.verbs.predict import opened


@click.command("replay")
@click.argument("path", metavar="FILE")
@click.option("--alloc-conf", metavar="SETTINGS", help="Replay with these allocator settings; '' for torch's defaults.")
@click.option(
    "--torch", metavar="VERSION", help="torch version of the allocator, e.g. 2.11 (default: the recording's)."
)
@click.option("--memory-limit", metavar="SIZE", help="Limit what the allocator may reserve, e.g. 29000MiB.")
@click.option("--device", type=click.IntRange(min=0), metavar="N", help="Device in the recording.")
@click.option("--config", metavar="CONFIG", help="Compare the recording with the predicted run of this config.")
@click.option("--gpu", metavar="NAME", help="With --config: the card that the run was recorded on.")
@click.option(
    "--with",
    "versions",
    metavar="PACKAGE==VERSION",
    multiple=True,
    help="With --config: version of a package that the run used. Repeatable.",
)
@click.option("--lengths", metavar="FILE", help="With --config: sample lengths in training order, as for predict.")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(
    path: str,
    alloc_conf: str | None,
    torch: str | None,
    memory_limit: str | None,
    device: int | None,
    config: str | None,
    gpu: str | None,
    versions: tuple[str, ...],
    lengths: str | None,
    output_format: str,
) -> None:
    """Replay a recording of torch's CUDA allocator.

    FILE is a snapshot written by torch.cuda.memory._dump_snapshot() or a trace (JSON); either may be gzipped. With
    --alloc-conf, it shows what the run would have reserved with other settings. With --config, it shows where the
    predicted run of a config first asks for other memory than the recorded one.

    Exit code: 0 replayed, 1 mismatches, differences or out of memory, 2 bad usage or unreadable input.
    """
    recording = read_recording(path, device)
    compared = None
    if config is not None:
        options = Options(gpu=gpu, versions=versions, torch=torch)
        compared = _compared(recording, config, options, PredictOptions(lengths=lengths))
    elif gpu or versions or lengths:
        raise click.UsageError("--gpu, --with and --lengths need --config")
    result = replay(
        recording,
        settings=alloc_conf,
        torch=None if torch is None else parse_torch_version(torch),
        limit_bytes=None if memory_limit is None else parse_size(memory_limit),
    )
    if output_format == "json":
        document = as_json(result)
        if compared is not None:
            document["comparison"] = comparison_json(compared)
        say_all(json_text(document, indent=2).split("\n"))
    else:
        say_all(as_text(result) if compared is None else [*comparison_text(compared), "", *as_text(result)])
    differs = compared is not None and bool(compared.differences)
    sys.exit(1 if result.failure or (result.checks and result.mismatches) or differs else 0)


def _compared(recording: Recording, config: str, options: Options, ask: PredictOptions) -> Comparison:
    prediction = opened(config, options, ask).prediction()
    recorded = timeline_of(recording, recording.torch or prediction.run.target.torch)
    return compare(prediction.timeline, recorded)


def as_json(result: ReplayResult) -> dict[str, Any]:
    """Return the result for `--format json`."""
    mismatch, failure = result.first_mismatch, result.failure
    return {
        "version": 1,
        "file": result.name,
        "device": result.device,
        "torch": f"{result.torch[0]}.{result.torch[1]}",
        "settings": result.settings,
        "recorded_settings": result.recorded_settings,
        "own_settings": result.own_settings,
        "limit_bytes": result.limit_bytes,
        "events": result.events,
        "events_left_out": result.events_left_out,
        "allocations": result.allocations,
        "mismatches": result.mismatches,
        "first_mismatch": None
        if mismatch is None
        else {
            "event": mismatch.event,
            "requested_bytes": mismatch.requested_bytes,
            "reserved_bytes": mismatch.reserved_bytes,
            "recorded_reserved_bytes": mismatch.recorded_reserved_bytes,
        },
        "peak_allocated_bytes": result.peak_allocated_bytes,
        "peak_reserved_bytes": result.peak_reserved_bytes,
        "recorded_peak_reserved_bytes": result.recorded_peak_reserved_bytes,
        "initial_reserved_bytes": result.initial_reserved_bytes,
        "retries": result.retries,
        "recorded_out_of_memory": result.recorded_failures,
        "recorded_out_of_memory_served": result.failures_served,
        "out_of_memory": None
        if failure is None
        else {
            "event": failure.event,
            "requested_bytes": failure.requested_bytes,
            "allocated_bytes": failure.allocated_bytes,
            "reserved_bytes": failure.reserved_bytes,
        },
    }


def as_text(result: ReplayResult) -> list[str]:
    """Return the conclusion, then the figures behind it."""
    lines = [_verdict(result), ""]
    lines += [
        f"peak reserved   {gib(result.peak_reserved_bytes):>10}   recorded {gib(result.recorded_peak_reserved_bytes)}",
        f"peak allocated  {gib(result.peak_allocated_bytes):>10}",
        f"settings        {_shown(result.settings)}",
    ]
    if not result.own_settings:
        lines.append(f"recorded under  {_shown(result.recorded_settings)}")
    if result.initial_reserved_bytes:
        lines.append(f"at the start    {mib(result.initial_reserved_bytes)} reserved before the recording began")
    if result.retries:
        lines.append(f"retries         {result.retries}: the cache was released to make room")
    if result.recorded_failures:
        lines.append(f"out of memory   {result.recorded_failures} in the recording{_served(result)}")
    lines.append(
        f"torch           {result.torch[0]}.{result.torch[1]}, device {result.device}, {result.events:,} events"
    )
    if result.events_left_out:
        lines.append(
            f"left out        the first {result.events_left_out:,} events, because there are too many; the memory in "
            "use before is reconstructed, so some allocations may differ"
        )
    return lines


def _verdict(result: ReplayResult) -> str:
    failure, mismatch = result.failure, result.first_mismatch
    if failure is not None:
        return (
            f"runs out of memory at event {failure.event}: {mib(failure.requested_bytes)} requested with "
            f"{gib(failure.allocated_bytes)} allocated and {gib(failure.reserved_bytes)} reserved"
        )
    if not result.checks:
        return _what_if(result)
    if mismatch is not None:
        return (
            f"{result.mismatches:,} of {result.allocations:,} allocations differ from the recording, first at event "
            f"{mismatch.event}: {mib(mismatch.reserved_bytes)} reserved, not {mib(mismatch.recorded_reserved_bytes)}"
        )
    return f"all {result.allocations:,} allocations replayed, reserved bytes as recorded after each"


def _what_if(result: ReplayResult) -> str:
    reserved, recorded = result.peak_reserved_bytes, result.recorded_peak_reserved_bytes
    limit = "" if result.limit_bytes is None else f" within {gib(result.limit_bytes)}"
    start = f"with {_shown(result.settings)}{limit} this run would have reserved"
    if reserved == recorded:
        return f"{start} the same {gib(reserved)}"
    sign = "+" if reserved > recorded else "−"
    return f"{start} {gib(reserved)} instead of {gib(recorded)} ({sign}{readable(abs(reserved - recorded))})"


def _served(result: ReplayResult) -> str:
    return f"; {result.failures_served} of these requests would succeed" if result.failures_served else ""


def _shown(settings: str) -> str:
    return settings or "torch's default settings"
