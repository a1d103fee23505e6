"""unknown-attention"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, safe, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import elsewhere, schema_of, suggest, value_history
from vramwise.types import RunSpec, Severity

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
    severity=Severity.ERROR,
    topic="attention",
    bad="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: flash\n",
    good="base_model: meta-llama/Llama-3.2-1B\nattn_implementation: flash_attention_2\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
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
        yield Hit(key=_KEY, message=f"{_KEY}: {name} {when}: Axolotl {schema.short} refuses it")
        return
    short = schema.attention_facts()["refused_short_names"].get(name)
    if short:
        fix = safe(f"Use the full name: {short}", set_key(_KEY, short))
        yield Hit(key=_KEY, message=f"{_KEY}: {name} is a short form, which Axolotl refuses: use {short}", fix=fix)
        return
    close = (_CALLED_TODAY[name],) if name in _CALLED_TODAY else suggest(name, known)
    hint = f"did you mean {' or '.join(close)}?" if close else f"supported: {', '.join(sorted(known))}"
    yield Hit(
        key=_KEY,
        message=f"{_KEY}: {name} is not a backend that Axolotl supports; {hint}",
        fix=unsafe(f"Use {close[0]}", set_key(_KEY, close[0])) if len(close) == 1 else None,
    )
