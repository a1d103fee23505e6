"""A made-up trainer of JSON-like files: `scratch_model`, `rows`, `tokens`, `half`. No rules of its own."""

from vramwise.allocator.variables import settings_in_force
from vramwise.rules.base import insert_key, set_key
from vramwise.trainers.base import Spelling, Trainer
from vramwise.trainers.fields import Fields
from vramwise.types import Config, Schedule

from .recognise import IDENTITY

KEYS = {"micro_batch_size": "rows", "sequence_len": "tokens", "gradient_checkpointing": "recompute"}


def resolve(document, target, side_files):
    fields = Fields(Config(document, document.values, {}), IDENTITY.title)
    fill(fields, target)
    return fields.run(target, trainer=IDENTITY.name, title=IDENTITY.title, added={})


def fill(fields, target):
    fields.take("base_model", None, key="scratch_model")
    rows = fields.at_least_one("micro_batch_size", 1, key="rows")
    fields.derive("effective_batch_size", rows, "one micro-batch a step")
    fields.take("sequence_len", 512, key="tokens")
    half = fields.config.get("half", False)
    fields.derive("precision", "bf16" if half else "fp32", "half", key="half")
    fields.derive("weights_dtype", "bf16" if half else "fp32", "half", key="half")
    fields.derive("fp32_embeddings", not half, "all weights are of one type")
    fields.derive("optimizer", "adamw_torch", "the only one")
    recompute = fields.take("gradient_checkpointing", False, key="recompute")
    fields.derive("recompute", recompute, "recompute")
    settings, origin = settings_in_force(target, {}, IDENTITY.title)
    fields.put("allocator", settings, origin)
    fields.derive("unfollowed", (), "all of it is followed")
    fields.neutral_section("batch", "shapes", "evaluation", "precision", "loading", "adapter")
    fields.neutral_section("objective", "optimizer", "savings", "kernels", "sharding", "allocator")


def spell(run, change):
    if not change.fields.keys() <= KEYS.keys():
        return None
    words = {KEYS[field]: value for field, value in change.fields.items()}
    edits = (
        set_key(key, value) if key in run.config else insert_key(key, value, beside="scratch_model")
        for key, value in words.items()
    )
    return Spelling(edits=tuple(edits))


TRAINER = Trainer(
    identity=IDENTITY,
    side_files=lambda document: (),
    datasets=lambda document: (),
    schedule=lambda document: Schedule(),
    resolve=resolve,
    spell=spell,
    words={},
    type_errors=lambda document, stack: (),
    key_unknown=lambda key, stack: None,
    rules=lambda: (),
)
