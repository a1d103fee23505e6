"""unknown-plugin"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import Schema, elsewhere, schema_of, suggest, value_history
from vramwise.types import Fix, RunSpec, Severity

_PREFIX = "axolotl.integrations."


@rule(
    id="unknown-plugin",
    severity=Severity.ERROR,
    also=(Severity.WARNING,),
    topic="config",
    bad="base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerKernelPlugin\n",
    good="base_model: meta-llama/Llama-3.2-1B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\n",
    beyond_trainer=(
        "Up to 0.20 a plugin whose module is missing is logged and dropped; a missing class or bare name ends the run."
    ),
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """`plugins` lists a plugin that Axolotl does not have.

    A class that is not in the module, or a name without a dot, ends the run with an exception. Since Axolotl 0.21 a
    module that cannot be found does too. Up to 0.20 Axolotl logs such a module, drops it and goes on training. The
    plugin's keys are then unknown and dropped too, so the memory-saving kernels and losses are not used.

    The rule checks only the names of Axolotl's own plugins and names without a dot. It ignores plugins of other
    packages.
    """
    schema = schema_of(run)
    for index, written in enumerate(run.config.get("plugins", ())):
        if schema.plugin_named(written) is not None:
            continue
        if "." not in written and not (":" in written and schema.since("0.21.0")):
            effect, severity = "a plugin name needs module and class, so this ends the run", Severity.ERROR
        elif not written.startswith(_PREFIX):
            continue
        elif _module_exists(schema, written):
            effect, severity = "the module has no such class, so this ends the run", Severity.ERROR
        elif schema.since("0.21.0"):
            effect, severity = "Axolotl cannot import it and stops", Severity.ERROR
        else:
            effect, severity = "Axolotl logs and drops it, and drops its keys", Severity.WARNING
        when = elsewhere(value_history("plugins", written), schema.version)
        close = () if when else _close(schema, written)
        hint = f"; did you mean {close[0]}?" if close else ""
        what = f"{when}, but this is {schema.short}" if when else "is not an Axolotl plugin"
        yield Hit(
            key=f"plugins.{index}",
            message=f"{written} {what}: {effect}{hint}",
            severity=severity,
            fix=_fix(index, close),
        )


def _module_exists(schema: Schema, written: str) -> bool:
    folder = written.removeprefix(_PREFIX).split(".")[0]
    return any(plugin.startswith(f"{_PREFIX}{folder}.") for plugin in schema.known_plugins())


def _close(schema: Schema, written: str) -> tuple[str, ...]:
    """The plugin that is meant: the only one of its folder, or one whose name resembles what was written."""
    folder = written.removeprefix(_PREFIX).split(".")[0]
    at_home = tuple(plugin for plugin in schema.known_plugins() if plugin.startswith(f"{_PREFIX}{folder}."))
    by_class = {plugin.rpartition(".")[2]: plugin for plugin in schema.known_plugins()}
    return at_home or tuple(by_class[name] for name in suggest(written.rpartition(".")[2], by_class))


def _fix(index: int, close: tuple[str, ...]) -> Fix | None:
    return unsafe(f"Use {close[0]}", set_key(f"plugins.{index}", close[0])) if len(close) == 1 else None
