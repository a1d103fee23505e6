"""Resolves a Document to a RunSpec for Axolotl 0.5–0.21: what the run really does, with a reason for every value.

Follows the schema defaults of the stack's version and its normalisation (sources: docs/axolotl.md). Does not know the
model: if Axolotl looks at the model's config (head size, mixture of experts), the common case is assumed and reported.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.trainers.axolotl.resolve.adapter import resolve_method
from vramwise.trainers.axolotl.resolve.allocator import added_variables
from vramwise.trainers.axolotl.resolve.batch import resolve_batch
from vramwise.trainers.axolotl.resolve.evaluation import resolve_eval
from vramwise.trainers.axolotl.resolve.kernels import resolve_varlen
from vramwise.trainers.axolotl.resolve.objective import resolve_preference
from vramwise.trainers.axolotl.resolve.precision import resolve_dtypes
from vramwise.trainers.axolotl.resolve.savings import resolve_memory_savers
from vramwise.trainers.axolotl.resolve.shapes import resolve_shapes
from vramwise.trainers.axolotl.resolve.sharding import resolve_sharding, spread_by_file
from vramwise.trainers.axolotl.schema import schema_in
from vramwise.trainers.axolotl.schema.values import axolotl_config
from vramwise.trainers.base import SideFiles
from vramwise.trainers.fields import Fields, resolved
from vramwise.types import Config, Document, RunSpec, Target, Unfollowed


def resolve_axolotl(document: Document, target: Target, files: SideFiles) -> RunSpec:
    """Return the run. `files`: the readable files that the config and the launcher name."""
    config = axolotl_config(document, target.stack)
    fields = Fields(config, "Axolotl")
    fields.take("base_model", None)
    resolve_sharding(fields, target, files)
    resolve_batch(fields, target)
    resolve_method(fields, target)
    resolve_dtypes(fields, target)
    resolve_memory_savers(fields, target)
    resolve_preference(fields, target)
    resolve_shapes(fields, schema_in(target.stack))
    resolve_varlen(fields, schema_in(target.stack))
    resolve_eval(fields, schema_in(target.stack))
    fields.derive("liger_before_build", True, "Axolotl has Liger replace classes before the model is built")
    fields.derive("trained_blocks", None, "unfrozen_parameters lists what is trained, if it is set")
    fields.derive("packing_fill", "full", "rows are taken to be full")
    fields.derive("packed_together", 1000, "rows are taken to be full")
    fields.derive("labels_on", "all", "no loss of its takes less for fewer labels")
    fields.derive("shuffle_seed", None, "the order of rows is not followed")
    fields.derive("packed_mask", "built", "transformers makes the mask of packed rows from their positions")
    found = tuple(_unfollowed(config))
    fields.derive("unfollowed", found, "; ".join(one.why for one in found) or "other fields tell what is not followed")
    own = fields.values["sharding"] == "fsdp2" and spread_by_file(fields)
    if own or "fsdp_one_root" not in fields.values:
        fields.derive("fsdp_one_root", own, "Axolotl's own FSDP 2" if own else "no FSDP 2")
        widens, why = ("nothing", "Axolotl's own FSDP 2 leaves them") if own else ("trained", "accelerate casts them")
        fields.derive("fsdp_widens", widens, why)
    apart = own and not schema_in(target.stack).since("0.21.0")
    why = "Axolotl before 0.21 shards each by itself" if apart else "adapters are parts of their blocks' units"
    fields.derive("fsdp_adapters_apart", apart, why if own else "no FSDP 2")
    added = added_variables(target)
    return resolved(fields, target, trainer="axolotl", title="Axolotl", added=added, whose="the axolotl command")


def _unfollowed(config: Config) -> Iterator[Unfollowed]:
    """Yield what images change: Axolotl neither cuts nor drops rows with images (`utils/collators/mm_chat.py`)."""
    if config.get("processor_type"):
        why = "rows with images are not cut to sequence_len, and neither their patches nor their tokens are counted"
        yield Unfollowed(name="images", less=False, why=why)
        yield Unfollowed(name="row lengths", less=True, why="rows may also be shorter than sequence_len")
