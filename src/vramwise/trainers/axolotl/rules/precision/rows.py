"""Axolotl rules with one condition and one message: precision."""

from __future__ import annotations

from functools import partial

from vramwise.rules.base import delete_key, insert_key, safe, set_key, unsafe
from vramwise.rules.rows import Case, row
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import Fix, RunSpec, Severity, join_key

_RECOMPUTED = "fsdp_config.activation_checkpointing"
_SKIP_UPCAST = "embeddings_skip_upcast"

_row = partial(row, topic="precision")

fp8_checkpointing_slow = _row(
    id="fp8-checkpointing-slow",
    severity=Severity.WARNING,
    text="""fp8 with FSDP's activation checkpointing can be slower than bf16.

    Checkpointing runs each block's forward pass twice. In fp8 this also repeats the scaling and casting of every input
    and weight. The repeated casts can cost more time than the fp8 products save.

    Turn FSDP's activation checkpointing off if the activations fit, or train in bf16.
    """,
    bad="fp8: true\ntorch_compile: true\nfsdp_version: 2\nfsdp_config:\n  activation_checkpointing: true\n",
    good="fp8: true\ntorch_compile: true\nfsdp_version: 2\nfsdp_config:\n  activation_checkpointing: false\n",
    when=lambda run: run.precision.compute == "fp8" and run.config.get(_RECOMPUTED) is True,
    key=_RECOMPUTED,
    message=(
        "fp8 with FSDP activation_checkpointing may be slower than bf16: it casts every block's inputs and weights "
        "twice"
    ),
    fix=lambda run: unsafe(
        "Keep activations: activation_checkpointing: false", set_key(join_key(run.config.path(_RECOMPUTED)), False)
    ),
)


def _upcast_anyway(run: RunSpec) -> str | None:
    if schema_of(run).since("0.20.0"):
        return "without a quantised base" if run.loading.quantization is None else None
    if run.sharding.kind.startswith("fsdp"):
        return "under FSDP"
    return None if run.config.get("load_in_4bit") else "without load_in_4bit"


skip_upcast_ignored = _row(
    id="skip-upcast-ignored",
    severity=Severity.INFO,
    text="""`embeddings_skip_upcast` has no effect here.

    While preparing a model, Axolotl holds embeddings and head in fp32 for a moment. With a large vocabulary that can be
    the peak of loading. `embeddings_skip_upcast` keeps them in 16 bit: up to 0.19 only with `load_in_4bit` and without
    FSDP, since 0.20 with every quantised base, where it is on by default. In a full fine-tune it has no effect.
    """,
    bad="adapter: lora\nembeddings_skip_upcast: true\n",
    good="adapter: qlora\nload_in_4bit: true\nembeddings_skip_upcast: true\n",
    beyond_trainer="Axolotl reads the key only if the base is quantised, and ignores it otherwise without warning.",
    when=lambda run: run.config.get(_SKIP_UPCAST) and _upcast_anyway(run),
    key=_SKIP_UPCAST,
    message=lambda run: f"{_SKIP_UPCAST} has no effect {_upcast_anyway(run)}",
    fix=safe(f"Remove {_SKIP_UPCAST}, which has no effect", delete_key(_SKIP_UPCAST)),
)

_GATHER = "fp8_enable_fsdp_float8_all_gather"

fp8_options_without_fp8 = _row(
    id="fp8-options-without-fp8",
    also=(Severity.WARNING,),
    text="""fp8 options are set, but fp8 is off.

    Axolotl refuses `fp8_config` without `fp8: true`. It accepts `fp8_enable_fsdp_float8_all_gather` without
    `fp8: true`, but the key has no effect: training and all-gathers run in bf16.

    Add `fp8: true`, or remove the options.
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\nfp8_config:\n  recipe: rowwise\n",
    good="base_model: meta-llama/Llama-3.2-1B\nfp8: true\nfp8_config:\n  recipe: rowwise\n",
    when=lambda run: not run.config.get("fp8"),
    cases=(
        Case(
            when=lambda run: run.config.get("fp8_config") is not None,
            key="fp8_config",
            message="Axolotl refuses fp8_config without fp8: true",
            fix=unsafe("Train without fp8: remove fp8_config", delete_key("fp8_config")),
        ),
        Case(
            when=_GATHER,
            severity=Severity.WARNING,
            key=_GATHER,
            message=f"{_GATHER} has no effect while fp8 is not true: weights are gathered in 16 bit",
            fix=safe(f"Remove {_GATHER}, which has no effect", delete_key(_GATHER)),
        ),
    ),
)

fp8_all_gather_without_fsdp2 = _row(
    id="fp8-all-gather-without-fsdp2",
    text="""fp8 all-gather is on without FSDP2 and tensorwise scaling, which it needs.

    `fp8_enable_fsdp_float8_all_gather` sends sharded weights as fp8, half the traffic of bf16. Only FSDP2 keeps
    parameters separate so that it can cast them before sending, and only the `tensorwise` recipe has one scale for a
    whole tensor. Otherwise Axolotl refuses the file.

    Add an `fsdp_config` (up to 0.19 with `fsdp_version: 2` at the top level beside it) and leave `fp8_config.recipe` at
    tensorwise, or remove the key.
    """,
    bad="fp8: true\ntorch_compile: true\nfp8_enable_fsdp_float8_all_gather: true\n",
    good="fp8: true\ntorch_compile: true\nfp8_enable_fsdp_float8_all_gather: true\n"
    "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
    when=_GATHER,
    key=_GATHER,
    fix=unsafe("Gather weights in 16 bit: remove the key", delete_key(_GATHER)),
    cases=(
        Case(
            when=lambda run: schema_of(run).since("0.20.0") and not run.config.get("fsdp_config"),
            message=f"Axolotl refuses {_GATHER} without fsdp_config: it needs FSDP2",
        ),
        Case(
            when=lambda run: not schema_of(run).since("0.20.0") and str(run.config.get("fsdp_version")) != "2",
            message=lambda run: (
                f"Axolotl refuses {_GATHER} with fsdp_version {run.config.get('fsdp_version', 'not set')}: it needs "
                "FSDP2"
            ),
        ),
        Case(
            when=lambda run: (
                not schema_of(run).since("0.20.0")
                and str(run.config.get("fsdp_version")) == "2"
                and run.config.document.values.get("fsdp_version") is None
            ),
            message=(
                f"Axolotl refuses {_GATHER} with fsdp_version 2 inside fsdp_config: its check looks only at the top "
                "level"
            ),
            fix=safe("Set fsdp_version: 2 at the top level", insert_key("fsdp_version", 2, beside="fsdp_config")),
        ),
        Case(
            when=lambda run: run.config.get("fp8_config.recipe", "tensorwise") != "tensorwise",
            key="fp8_config.recipe",
            message=lambda run: (
                f"Axolotl refuses {_GATHER} with fp8_config.recipe {run.config.get('fp8_config.recipe')}: it needs "
                "tensorwise scaling"
            ),
        ),
    ),
)


def _fp16_outright(run: RunSpec) -> Fix | None:
    if not run.adapter.kind:
        return None
    beside = "bf16" if "bf16" in run.config else "adapter"
    edits = (insert_key("bf16", False, beside=beside), insert_key("fp16", True, beside="bf16"))
    return unsafe("Set fp16: true and bf16: false", *edits)


bf16_auto_emulated = _row(
    id="bf16-auto-emulated",
    severity=Severity.INFO,
    needs={"gpu"},
    text="""`bf16: auto` on a card without bf16 may use emulated bf16.

    `auto` is meant to fall back to fp16 on cards older than Ampere. Axolotl relies on torch's `is_bf16_supported()`,
    which also returns true if bf16 is only emulated. A T4 or V100 can therefore run in bf16, very slowly and without
    warning.

    With an adapter, set `fp16: true` and `bf16: false` to be sure. A full fine-tune has no good 16-bit choice on such a
    card: fp16 weights fail with the gradient scaler (see `fp16-full-finetune`).
    """,
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: auto\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: lora\nbf16: false\nfp16: true\n",
    options="--gpu t4",
    beyond_trainer="Axolotl relies on torch's test, which counts emulated bf16 as support.",
    when=lambda run: (
        run.target.gpu is not None
        and not run.target.gpu.bf16
        and run.base_model
        and run.config.get("bf16", "auto" if "bf16" not in run.config else False) == "auto"
        and not run.config.get("fp16")
        and not run.config.get("fp8")
    ),
    key="bf16",
    message=lambda run: (
        f"bf16: auto on {run.target.gpu and run.target.gpu.name} is meant to become fp16, but torch counts "
        "emulated bf16 as support: Axolotl may use that, which is very slow"
    ),
    fix=_fp16_outright,
)
