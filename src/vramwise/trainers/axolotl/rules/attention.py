"""Axolotl's own rules about attention: implementations, and the old flags for them."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, safe, set_key, unsafe
from vramwise.rules.rows import row
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.resolve.kernels import LEGACY_FLAGS
from vramwise.trainers.axolotl.schema import elsewhere, schema_of, suggest, value_history
from vramwise.types import Fix, RunSpec, Severity


@rule(
    id="legacy-attention-flag",
    severity=Severity.INFO,
    also=(Severity.WARNING, Severity.ERROR),
    bad="base_model: meta-llama/Llama-3.2-1B\nflash_attention: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: flash_attention_2\n",
)
def legacy_attention_flag(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """An old attention flag is set instead of `attn_implementation`.

    `flash_attention: true` and the similar flags are deprecated: Axolotl translates them to `attn_implementation` and
    will remove them. If several are set, the first in this order wins and the others are dropped: xformers, sage, flex,
    flash, sdp, eager. Axolotl refuses a flag beside `attn_implementation`, even if both mean the same. A single old
    flag is harmless and reported only with `--pedantic`, or if you name the rule with `--select`.
    """
    schema = schema_of(run)
    flags = [flag for flag in LEGACY_FLAGS if run.config.get(flag) and flag in schema.deprecations()]  # since 0.17
    chosen = run.config.get("attn_implementation")
    for flag in flags:
        name = LEGACY_FLAGS[flag]
        if chosen:
            yield _beside(flag, name, str(chosen))
        elif flag == flags[0]:
            yield Hit(
                f"{flag} is deprecated: use attn_implementation: {name}, which means the same",
                flag,
                safe(
                    f"Set attn_implementation: {name}",
                    insert_key("attn_implementation", name, beside=flag),
                    delete_key(flag),
                ),
                pedantic=True,
            )
        else:
            yield Hit(
                f"{flag} has no effect: {flags[0]} takes priority, so attention is {LEGACY_FLAGS[flags[0]]}",
                flag,
                safe(f"Remove {flag}, which has no effect", delete_key(flag)),
                severity=Severity.WARNING,
            )


def _beside(flag: str, name: str, chosen: str) -> Hit:
    offer = safe if name == chosen else unsafe
    return Hit(
        f"Axolotl refuses the deprecated {flag} beside attn_implementation: {chosen}",
        flag,
        offer(f"Keep attn_implementation: {chosen}", delete_key(flag)),
        severity=Severity.ERROR,
    )


_KEY = "attn_implementation"
# Common names for FlashAttention that lack the underscore or the version that Axolotl requires.
_CALLED_TODAY = {
    "fa2": "flash_attention_2",
    "flash_attention": "flash_attention_2",
    "flash_attn": "flash_attention_2",
    "flash_attn_2": "flash_attention_2",
    "flash_attention2": "flash_attention_2",
    "fa3": "flash_attention_3",
    "flash_attn_3": "flash_attention_3",
    "flash_attention3": "flash_attention_3",
}


@rule(
    id="unknown-attention",
    bad="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: flash\n",
    good="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: flash_attention_2\n",
)
def unknown_attention(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`attn_implementation` names an unknown backend.

    Axolotl accepts the full names (`flash_attention_2`, `sdpa`, `flex_attention`…) or the path of a kernel on the
    Hugging Face hub, which contains a slash. It refuses the short forms `flash`, `flex` and `sdp`, and any unknown
    name.
    """
    name = run.config.get(_KEY)
    schema = schema_of(run)
    known = schema.attn_implementations()
    if not isinstance(name, str) or "/" in name or name in known:
        return
    if when := elsewhere(value_history(_KEY, name), schema.version):
        yield Hit(f"{_KEY}: {name} {when}: Axolotl {schema.short} refuses it", _KEY)
        return
    short = schema.attention_facts()["refused_short_names"].get(name)
    if short:
        fix = safe(f"Use the full name: {short}", set_key(_KEY, short))
        yield Hit(f"{_KEY}: {name} is a short form, which Axolotl refuses: use {short}", _KEY, fix)
        return
    close = (_CALLED_TODAY[name],) if name in _CALLED_TODAY else suggest(name, known)
    hint = f"did you mean {' or '.join(close)}?" if close else f"supported: {', '.join(sorted(known))}"
    yield Hit(
        f"{_KEY}: {name} is not a backend that Axolotl supports; {hint}",
        _KEY,
        unsafe(f"Use {close[0]}", set_key(_KEY, close[0])) if len(close) == 1 else None,
    )


gemma4_hybrid_other_attention = row(
    id="gemma4-hybrid-other-attention",
    text="""`gemma4_hybrid_attn_impl` with a backend other than FlashAttention 2.

    The hybrid runs Gemma 4's sliding-window layers with FlashAttention 2 and its global layers with sdpa. Axolotl
    refuses any other `attn_implementation`. If the key is unset, Axolotl uses FlashAttention 2.
    """,
    bad="base_model: google/gemma-4-31B\ngemma4_hybrid_attn_impl: true\nattn_implementation: sdpa\n",
    good="base_model: google/gemma-4-31B\ngemma4_hybrid_attn_impl: true\nattn_implementation: flash_attention_2\n",
    when=lambda run: (
        run.config.get("gemma4_hybrid_attn_impl")
        and (run.config.get("attn_implementation") or "flash_attention_2") != "flash_attention_2"
    ),
    key="attn_implementation",
    message=lambda run: (
        f"Axolotl refuses gemma4_hybrid_attn_impl with attn_implementation: {run.config.get('attn_implementation')}: "
        "it needs flash_attention_2"
    ),
    fix=unsafe("Use flash_attention_2", set_key("attn_implementation", "flash_attention_2")),
)


def _attention_key(run: RunSpec) -> str:
    return run.origins["attn_implementation"].key or "attn_implementation"


def _pad(run: RunSpec) -> Fix:
    beside = "sequence_len" if "sequence_len" in run.config else _attention_key(run)
    return safe("Pad every batch to sequence_len", insert_key("pad_to_sequence_len", True, beside=beside))


sage_without_padding = row(
    id="sage-without-padding",
    severity=Severity.WARNING,
    text="""SageAttention on rows of varying length.

    SageAttention quantises attention block by block. Axolotl's authors have seen the loss explode on unpacked rows that
    are padded only to the longest row of the batch. Rows padded to `sequence_len` and packed rows train normally.
    """,
    bad="attn_implementation: sage\nadapter: lora\nsequence_len: 2048\n",
    good="attn_implementation: sage\nadapter: lora\nsequence_len: 2048\npad_to_sequence_len: true\n",
    when=lambda run: (
        run.kernels.attn_implementation == "sage"
        and not run.shapes.sample_packing
        and not run.shapes.pad_to_sequence_len
    ),
    key=_attention_key,
    message="sage attention needs sample_packing or pad_to_sequence_len: without them the loss can explode",
    fix=_pad,
)


def _without_varlen(run: RunSpec) -> str:
    major, minor = run.target.torch
    reasons = (
        (not run.shapes.sample_packing, "it only affects packed rows, and sample_packing is off"),
        (run.target.torch < (2, 10), f"it needs torch 2.10 or newer, and this is torch {major}.{minor}"),
        (
            run.kernels.attn_implementation != "sdpa",
            f"it needs sdpa, and attention is {run.kernels.attn_implementation}",
        ),
    )
    return "; ".join(reason for applies, reason in reasons if applies)


sdpa_varlen_ignored = row(
    id="sdpa-varlen-ignored",
    severity=Severity.WARNING,
    text="""`sdpa_varlen` is on but has no effect.

    `sdpa_varlen` lets sdpa process packed rows without building a mask of sequence_len × sequence_len for each row. It
    needs packed rows, torch 2.10 or newer and the sdpa backend. Otherwise it is ignored, and packed rows under sdpa
    need the full mask.

    If it is unset, Axolotl turns it on wherever it works. On an older torch, use flash_attention_2 for packed rows or
    upgrade torch.
    """,
    bad="attn_implementation: sdpa\nsdpa_varlen: true\nsample_packing: true\n",
    good="attn_implementation: sdpa\nsdpa_varlen: true\nsample_packing: true\n",
    options="--torch 2.9",
    good_options="--torch 2.10",
    when=lambda run: run.config.get("sdpa_varlen") and _without_varlen(run),
    key="sdpa_varlen",
    message=lambda run: f"sdpa_varlen: true has no effect: {_without_varlen(run)}",
    fix=safe("Delete sdpa_varlen", delete_key("sdpa_varlen")),
)


@rule(
    id="better-transformer-misused",
    also=(Severity.WARNING,),
    bad="base_model: meta-llama/Llama-3.2-1B\nflash_optimum: true\nbf16: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nflash_optimum: true\nbf16: false\nbfloat16: true\n",
)
def better_transformer_misused(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """BetterTransformer (`flash_optimum`) with mixed precision, an adapter or fp32 weights.

    BetterTransformer replaces the model's attention with a fast path that does not support mixed precision. Axolotl
    refuses it with `bf16` or `fp16` on, and `bf16` is on by default (`auto`). In fp32 it has no fast kernel. It also
    replaces the modules that an adapter is attached to.

    Today transformers' own attention is as fast. Remove `flash_optimum`, or set `bf16: false` with `bfloat16: true`.
    """
    if run.config.get("flash_optimum") is not True:
        return
    key, fix = "flash_optimum", unsafe("Use transformers' own attention", delete_key("flash_optimum"))
    bf16 = run.config.get("bf16", "auto" if "bf16" not in run.config else False)
    mixed = [f"{name}: {str(on).lower()}" for name, on in (("bf16", bf16), ("fp16", run.config.get("fp16"))) if on]
    if mixed:
        default = "" if run.config.get("bf16") or not bf16 else " (the default)"
        yield Hit(
            f"Axolotl refuses flash_optimum with {', '.join(mixed)}{default}: BetterTransformer does not support mixed "
            "precision",
            key,
            fix,
        )
    if run.adapter.kind:
        yield Hit(
            f"flash_optimum with adapter: {run.adapter.kind}: BetterTransformer replaces the modules that the adapter "
            "is attached to",
            key,
            fix,
            severity=Severity.WARNING,
        )
    if run.config.get("float16") is not True and run.config.get("bfloat16") is not True:
        message = "flash_optimum without bfloat16 or float16: BetterTransformer has no fast kernel for fp32"
        yield Hit(message, key, fix, severity=Severity.WARNING)
