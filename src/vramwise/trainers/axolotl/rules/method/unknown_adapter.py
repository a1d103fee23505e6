"""unknown-adapter"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, insert_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.plugins import lists_foreign_plugin, lists_plugin
from vramwise.trainers.axolotl.schema import Schema, elsewhere, schema_of, suggest, value_history
from vramwise.types import Fix, RunSpec, Severity

_NO_ADAPTER = frozenset({"none", "full", "fft", "false", "no"})


@rule(
    id="unknown-adapter",
    severity=Severity.ERROR,
    topic="method",
    bad="base_model: meta-llama/Llama-3.2-1B\nadapter: qloar\nload_in_4bit: true\n",
    good="base_model: meta-llama/Llama-3.2-1B\nadapter: qlora\nload_in_4bit: true\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`adapter` names an unknown adapter: neither built in nor from a listed plugin.

    Axolotl has `lora`, `qlora` and `llama-adapter`. Others, such as `mora`, come with a plugin that must be listed
    under `plugins`. Axolotl refuses any other name. Variants of LoRA are options, not adapters: `peft_use_dora`,
    `peft_use_rslora`. For a full fine-tune remove `adapter`; YAML reads the word None as text.

    The rule reports nothing if a plugin from another package is listed, which may provide the adapter.
    """
    adapter, schema = run.adapter.kind, schema_of(run)
    if not adapter or adapter in schema.adapters() or lists_foreign_plugin(run):
        return
    plugin = schema.plugin_adapters().get(adapter)
    if plugin is not None and lists_plugin(run, plugin.rsplit(".", 1)[1]):
        return
    hint, fix = _remedy(schema, adapter, plugin)
    yield Hit(key="adapter", message=f"Axolotl has no adapter '{adapter}': {hint}", fix=fix)


def _remedy(schema: Schema, adapter: str, plugin: str | None) -> tuple[str, Fix | None]:
    if plugin is not None:
        return f"it comes with {plugin}, which is not listed under plugins", None
    if when := elsewhere(value_history("adapter", adapter), schema.version):
        return f"it {when}, but this is {schema.short}", None
    folded = adapter.lower()
    if folded in ("dora", "rslora"):
        option = f"peft_use_{folded}"
        edits = (set_key("adapter", "lora"), insert_key(option, True, beside="adapter"))
        return f"it is an option of lora, {option}: true", unsafe(f"Use lora with {option}", *edits)
    if folded in _NO_ADAPTER:
        return "remove the key for a full fine-tune", unsafe("Fine-tune all weights", delete_key("adapter"))
    close = suggest(adapter, schema.adapters())
    if close:
        return f"did you mean {' or '.join(close)}?", unsafe(f"Use {close[0]}", set_key("adapter", close[0]))
    return f"supported are {', '.join(sorted(schema.adapters()))}", None
