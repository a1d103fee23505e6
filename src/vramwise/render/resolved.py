"""`check --show-resolved`: every effective setting and where its value comes from."""

from __future__ import annotations

from dataclasses import fields
from pathlib import PurePath

from vramwise.render.outward import style
from vramwise.types import Origin, RunSpec, TrainedBlocks, Unfollowed, ZeroSettings


def render_resolved(run: RunSpec, path: str) -> list[str]:
    """Return one aligned line per setting: name, value, origin."""
    rows = [("gpu", *_gpu(run)), *_stack(run)]
    rows += [(name, _shown(value), _why(run.origins[name], path)) for name, value in run.settings()]
    names = max(len(name) for name, _, _ in rows)
    values = min(44, max(len(value) for _, value, _ in rows))
    return [
        f"{style(name.ljust(names), bold=True)}  {value.ljust(values)}  {style(why, dim=True)}"
        for name, value, why in rows
    ]


def _gpu(run: RunSpec) -> tuple[str, str]:
    gpu = run.target.gpu
    return (gpu.name, "the target") if gpu else ("none", "use --gpu to check what depends on the card")


def _stack(run: RunSpec) -> list[tuple[str, str, str]]:
    releases = run.target.stack.releases.items()
    return [(name, release.version, release.origin.why) for name, release in releases]


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(item.name if isinstance(item, Unfollowed) else str(item) for item in value) or "none"
    if isinstance(value, ZeroSettings | TrainedBlocks):
        return ", ".join(f"{field.name} {_shown(getattr(value, field.name))}" for field in fields(value))
    return str(value) if value != "" else "torch's defaults"


def _why(origin: Origin, path: str) -> str:
    where = f"{PurePath(path).name}:{origin.place.line}" if origin.place else ""
    if origin.kind == "file":
        return where or origin.why
    if origin.kind == "assumed":
        return f"assumed: {origin.why}"
    return f"{origin.why} ({where})" if where else origin.why
