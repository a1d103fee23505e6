"""unknown-optimizer"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, delete_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import Schema, elsewhere, schema_of, suggest, value_history
from vramwise.types import RunSpec, Severity

# Common names, or names of transformers 4 or an earlier Axolotl, and the current name.
_CALLED_TODAY = {
    "adam": "adamw_torch",
    "adamw": "adamw_torch",
    "adamw_hf": "adamw_torch",
    "adamw_apex_fused": "adamw_torch_fused",
    "ademamix_32bit": "ademamix",
    "adopt": "adopt_adamw",
    "came": "came_pytorch",
    "lion": "lion_32bit",
    "lion_pytorch": "lion_32bit",
    "paged_adamw": "paged_adamw_32bit",
}


@rule(
    id="unknown-optimizer",
    severity=Severity.ERROR,
    topic="optimizer",
    bad="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_fuse\nlearning_rate: 0.0002\n",
    good="base_model: meta-llama/Llama-3.2-1B\noptimizer: adamw_torch_fused\nlearning_rate: 0.0002\n",
    beyond_trainer="Axolotl's schema accepts any text; transformers refuses the name after the model has loaded.",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """The optimizer is unknown to Axolotl and transformers.

    Axolotl checks only that `optimizer` is text. It passes any name that is not one of its own optimizers to
    transformers, which looks it up when it builds the trainer, after the data has been tokenised and the model loaded.
    A typo wastes that whole start. An empty `optimizer:` fails the same way. If the key is missing, the default is
    adamw_torch_fused. Names differ between versions of Axolotl: `muon_8bit` comes with 0.21, `scao` with 0.20.
    """
    if "optimizer" not in run.config:
        return
    name = run.config.document.values.get("optimizer")
    if name is None:
        yield Hit(
            key="optimizer",
            message="optimizer is empty: transformers stops after loading the model",
            fix=unsafe("Delete optimizer: the default is adamw_torch_fused", delete_key("optimizer")),
        )
    elif isinstance(name, str) and name not in schema_of(run).optimizers():
        yield _unknown(schema_of(run), name)


def _unknown(schema: Schema, name: str) -> Hit:
    if when := elsewhere(value_history("optimizer", name), schema.version):
        message = f"optimizer {name!r} {when}: Axolotl {schema.short} stops after loading the model"
        return Hit(key="optimizer", message=message)
    working = schema.optimizers() - schema.optimizer_group("raises_later")
    close = (_CALLED_TODAY[name],) if name in _CALLED_TODAY else suggest(name, working)
    sure = close if len(close) == 1 else tuple(found for found in close if _is_a_slip(name, found))
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return Hit(
        key="optimizer",
        message=f"optimizer {name!r} is unknown: the run stops after loading the model{hint}",
        fix=unsafe(f"Use {sure[0]}", set_key("optimizer", sure[0])) if len(sure) == 1 else None,
    )


def _is_a_slip(written: str, meant: str) -> bool:
    """Whether the names differ only in case and separators, or by one letter too many or too few."""
    long, short = (name.lower().replace("-", "").replace("_", "") for name in (written, meant))
    if len(long) < len(short):
        long, short = short, long
    if len(long) == len(short):
        return long == short
    return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))
