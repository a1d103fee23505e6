"""Resolves how memory is saved: checkpointing and its form, offloading, tiling, compilation."""

from __future__ import annotations

from vramwise.trainers.axolotl.schema import Schema, schema_in
from vramwise.trainers.fields import Fields
from vramwise.types import Target

_KWARGS = "gradient_checkpointing_kwargs"
# With these, older versions do not fill in `use_reentrant: true` either.
_NEVER_REENTRANT = ("rl", "unfrozen_parameters", "selective_checkpointing")


def resolve_memory_savers(fields: Fields, target: Target) -> None:
    """Fill checkpointing, offloading, tiling and compilation. Needs the method and the loading."""
    config = fields.config
    written = config.get("gradient_checkpointing", False)
    asked = bool(written)
    if isinstance(written, str):
        fields.derive("gradient_checkpointing", True, f"{written}: old spelling", key="gradient_checkpointing")
    else:
        fields.take("gradient_checkpointing", False)
    offload = _activation_offloading(fields, written, schema_in(target.stack))
    _recompute(fields, asked, offload, target)
    _emptying(fields)
    fields.take("layer_offloading", False)
    fields.take("tiled_mlp", False)
    fields.take("tiled_mlp_pieces", None, key="tiled_mlp_num_shards", why="by the sequence's length")
    options = any(config.get(f"torch_compile_{key}") for key in ("regional", "backend", "options"))
    mode = "other" if options else config.get("torch_compile_mode") or "default"
    fields.derive("compile_mode", mode, "torch.compile's mode", key="torch_compile_mode")
    compiles = config.get("torch_compile", False)
    if compiles == "auto":
        version = f"{target.torch[0]}.{target.torch[1]}"
        on = schema_in(target.stack).since("0.21.0") or target.torch >= (2, 5)  # 0.21 no longer checks torch's version
        fields.derive("torch_compile", on, f"auto on torch {version}", key="torch_compile")
    else:
        fields.take("torch_compile", False)


def _emptying(fields: Fields) -> None:
    """Fill empty_cache_steps and collect_steps: `gc_steps` alone sets both; with a newer key, only the callback."""
    config, old = fields.config, "gc_steps"
    written = config.get(old)
    alone = written is not None and not (config.get("torch_empty_cache_steps") or config.get("gc_collect_steps"))
    if alone and written > 0:
        fields.derive("empty_cache_steps", written, f"{old} stands for it", key=old)
    else:
        fields.take("empty_cache_steps", None, key="torch_empty_cache_steps")
    if fields.values["empty_cache_steps"] is not None and fields.values["empty_cache_steps"] < 1:
        fields.derive("empty_cache_steps", None, "no number of steps", key="torch_empty_cache_steps")
    if config.get("gc_collect_steps"):
        fields.take("collect_steps", None, key="gc_collect_steps")
    else:
        fields.derive("collect_steps", written or None, old if written else "no garbage collection", key=old)


def _activation_offloading(fields: Fields, checkpointing: object, schema: Schema) -> str:
    written = fields.config.get("activation_offloading", False)
    if isinstance(checkpointing, str) and not schema.since("0.12.0"):
        # its own checkpoint function (utils/gradient_checkpointing, later monkeypatch/gradient_checkpointing)
        why = f"gradient_checkpointing: {checkpointing} is the older offloading in Axolotl {schema.short}"
        return str(fields.derive("activation_offloading", "legacy", why, key="gradient_checkpointing"))
    if checkpointing in ("offload", "offload_disk"):
        why = f"gradient_checkpointing: {checkpointing} streams activations to host memory"
        return str(fields.derive("activation_offloading", "stream", why, key="gradient_checkpointing"))
    if written == "disk":
        why = "disk really runs the streamer to host memory"
        return str(fields.derive("activation_offloading", "stream", why, key="activation_offloading"))
    mode = {True: "stream", False: "off"}.get(written, written)
    if not written:
        return str(fields.derive("activation_offloading", "off", "not set"))
    return str(fields.derive("activation_offloading", mode, "activation_offloading", key="activation_offloading"))


def _recompute(fields: Fields, asked: bool, offload: str, target: Target) -> None:
    config = fields.config
    by_fsdp = "fsdp_config.activation_checkpointing"
    if config.get(by_fsdp) is True:
        fields.derive("recompute", True, "FSDP recomputes every block", key=by_fsdp)
        fields.derive("checkpointing_reentrant", False, "accelerate's wrapper never is", key=by_fsdp)
        return
    replaces = offload in ("stream", "legacy")
    adapter = fields.values["adapter"]
    if asked and replaces and adapter and adapter not in ("lora", "qlora", "mixlora"):
        fields.derive("recompute", False, "the trainer leaves it to offloading, and nothing else turns it on")
    else:
        fields.derive("recompute", asked, "gradient_checkpointing", key="gradient_checkpointing")
    if asked and replaces and not adapter:
        why = "with offloading and no adapter torch's own wrapper checkpoints: it is not reentrant"
        fields.derive("checkpointing_reentrant", False, why, key="activation_offloading")
    elif asked and offload == "legacy":
        why = "the older offloading uses its own checkpoint function, which runs a backward pass inside backward"
        fields.derive("checkpointing_reentrant", True, why, key="activation_offloading")
    elif asked and replaces and fields.values["quantised_base_prepared"] != "no":
        # the trainer's own switch, which would set the form, is off with offloading
        why = "preparing the quantised base, PEFT turns checkpointing on again and leaves its form to torch"
        fields.derive("checkpointing_reentrant", True, why, key="activation_offloading")
    else:
        _reentrant(fields, schema_in(target.stack))


def _reentrant(fields: Fields, schema: Schema) -> None:
    config, name = fields.config, "checkpointing_reentrant"
    written = config.get(f"{_KWARGS}.use_reentrant")
    fills_in = schema.since("0.21.0") and config.get("rl") is None and config.get("unfrozen_parameters") is None
    if written is not None:
        fields.derive(name, bool(written), "use_reentrant is written", key=_KWARGS)
    elif config.get("activation_offloading") == "hidden_states":
        fields.derive(name, False, "Axolotl's default with activation_offloading: hidden_states")
    elif fills_in:
        zero3 = fields.values["sharding"] == "zero3"
        why = f"Axolotl {schema.short}'s default" + (" under ZeRO 3" if zero3 else "; up to 0.20 it was reentrant")
        fields.derive(name, zero3, why)
    elif config.get(_KWARGS) is not None:
        fields.derive(name, True, "kwargs without use_reentrant: torch's default", key=_KWARGS)
    elif except_for := [one for one in _NEVER_REENTRANT if config.get(one)]:
        fields.derive(name, False, f"Axolotl's default with {except_for[0]}")
    else:
        fields.derive(name, True, f"Axolotl {schema.short}'s default for SFT; since 0.21 it is non-reentrant")
