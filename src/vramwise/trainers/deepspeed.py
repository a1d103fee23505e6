"""What a DeepSpeed config means for memory: the ZeRO stage, offloading, and the sizes that ZeRO uses.

Knows the contents of the files that trainers ship (`deepspeed_configs/zero*.json`), for configs that name one of them
without the file being here. A size of `auto` is None: it depends on the model's width.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from vramwise.types import ZeroSettings

_SHIPPED = re.compile(r"(?:^|/)zero([123])(?:_bf16)?(?:_cpuoffload_(all|params))?(?:_torch_compile)?\.json$")
_ON_HOST = {"device": "cpu"}
_SHIPPED_ZERO: dict[int, dict[str, Any]] = {
    1: {"stage": 1, "overlap_comm": True},
    2: {"stage": 2, "offload_optimizer": _ON_HOST, "contiguous_gradients": True, "overlap_comm": True},
    3: {
        "stage": 3,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 0,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "max_live_parameters": 0,
        "max_reuse_distance": 0,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeed:
    """The ZeRO stage (None: unknown), what is in host memory, and ZeRO's own settings."""

    stage: int | None
    offload_params: bool
    offload_optimizer: bool
    settings: ZeroSettings
    why: str


def read_deepspeed(value: Any, content: Mapping[str, Any] | None) -> DeepSpeed:
    """Read a DeepSpeed config.

    `value` is the config's `deepspeed:` entry, `content` the parsed file that it names, if that exists.
    """
    if isinstance(value, Mapping):
        return _from_mapping(value, "inline deepspeed block")
    if content is not None:
        return _from_mapping(content, f"read from {value}")
    match = _SHIPPED.search(str(value))
    if match is None:
        why = f"{value} is not available: stage unknown"
        return DeepSpeed(
            stage=None, offload_params=False, offload_optimizer=False, settings=zero_settings({"stage": 2}), why=why
        )
    zero = dict(_SHIPPED_ZERO[int(match[1])])
    if match[2] is not None:
        zero["offload_param"] = _ON_HOST
    if match[2] == "all":
        zero["offload_optimizer"] = _ON_HOST
    return _from_mapping({"zero_optimization": zero}, f"{str(value).rsplit('/', 1)[-1]} as trainers ship it")


def _from_mapping(content: Mapping[str, Any], why: str) -> DeepSpeed:
    zero = content.get("zero_optimization")
    zero = zero if isinstance(zero, Mapping) else {}
    stage = zero.get("stage", 0)
    return DeepSpeed(
        stage=stage if type(stage) is int else None,  # True is an int in Python, but not a stage
        offload_params=_offloads(zero.get("offload_param")),
        offload_optimizer=_offloads(zero.get("offload_optimizer")) or zero.get("cpu_offload") is True,
        settings=zero_settings(zero, optimizer=content.get("optimizer"), types=content.get("data_types")),
        why=why,
    )


def zero_settings(zero: Mapping[str, Any], *, optimizer: Any = None, types: Any = None) -> ZeroSettings:
    """Return `zero_optimization` with DeepSpeed's defaults for missing values; stage 3 overlaps by default."""
    named = optimizer.get("type") if isinstance(optimizer, Mapping) else None
    overlaps = zero.get("overlap_comm")
    unset = ZeroSettings()
    return ZeroSettings(
        optimizer=named if isinstance(named, str) else None,
        reduce_bucket=_size(zero, "reduce_bucket_size", unset.reduce_bucket),
        overlaps=overlaps if isinstance(overlaps, bool) else zero.get("stage") == 3,
        contiguous=zero.get("contiguous_gradients") is not False,
        prefetch=_size(zero, "prefetch_bucket_size", unset.prefetch),
        keeps_under=_size(zero, "param_persistence_threshold", unset.keeps_under),
        most_live=_size(zero, "max_live_parameters", unset.most_live) or 0,
        reuse_distance=_size(zero, "max_reuse_distance", unset.reuse_distance) or 0,
        sub_group=_size(zero, "sub_group_size", unset.sub_group) or 0,
        wide_sums=isinstance(types, Mapping) and types.get("grad_accum_dtype") in ("fp32", "float32"),
    )


# the release assumed if none is known
_LATEST = (0, 19, 8)


def as_released(settings: ZeroSettings, release: tuple[int, ...]) -> ZeroSettings:
    """Return the settings with the behaviour of this DeepSpeed release; empty: the newest known."""
    known = release or _LATEST
    return replace(
        settings,
        release=release,
        checks_sums=known >= (0, 19, 3),
        checks_by_copies=known < (0, 19, 6),
        leaves_adapters=known >= (0, 19, 2),
        holds_recomputed=known >= (0, 19, 3),
    )


def _size(zero: Mapping[str, Any], name: str, unset: int | None) -> int | None:
    """Return a number of elements, written with or without the `stage3_` prefix; None for `auto`."""
    value = zero.get(f"stage3_{name}", zero.get(name))
    if value == "auto":
        return None
    if isinstance(value, str):
        try:
            value = float(value)  # YAML reads 1e9 as text
        except ValueError:
            return unset
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        return unset
    return int(value)


def _offloads(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("device") in ("cpu", "nvme")


class Filled(Protocol):
    """A run whose settings are being filled in: Fields, or the arguments of a trainer."""

    @property
    def values(self) -> dict[str, Any]:
        """The settings so far."""
        ...

    def derive(self, name: str, value: Any, why: str, /, *, key: str | None = None) -> Any:
        """Set a value that follows from others."""
        ...

    def assume(self, name: str, value: Any, why: str, /) -> Any:
        """Set a value that is left open."""
        ...


def resolve_zero(args: Filled, zero: DeepSpeed, release: tuple[int, ...], key: str) -> None:
    """Fill sharding, zero and offload_* from a DeepSpeed config, for a release of DeepSpeed."""
    if zero.stage is None:
        args.assume("sharding", "zero2", f"{zero.why}; ZeRO 2 assumed")
    else:
        kind = f"zero{zero.stage}" if zero.stage in (1, 2, 3) else "ddp"
        args.derive("sharding", kind, zero.why, key=key)
    settings = as_released(zero.settings, release)
    if args.values["sharding"] == "zero3" and not release:
        newest = ".".join(map(str, _LATEST))
        why = f"DeepSpeed {newest}, the newest known; before 0.19.3 it frees frozen weights that are recomputed"
        args.assume("zero", settings, why)
    elif args.values["sharding"] != "ddp":
        args.derive("zero", settings, zero.why, key=key)
    resolve_offload(args, params=zero.offload_params, optimizer=zero.offload_optimizer, why=zero.why, key=key)


def resolve_offload(args: Filled, *, params: bool, optimizer: bool, why: str, key: str | None) -> None:
    """Fill offload_params and offload_optimizer."""
    args.derive("offload_params", params, why, key=key)
    args.derive("offload_optimizer", optimizer, why, key=key)
