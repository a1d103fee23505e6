"""Document → RunSpec for Axolotl 0.18–0.19: what the run will really do, with the reason for every value.

Follows Axolotl's schema defaults and its own normalisation (sources: docs/axolotl.md). Does not know the model: where
Axolotl looks at the model's config (head size, mixture of experts), the common case is taken and said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.allocator.variables import effective_allocator
from vramwise.trainers.axolotl.batch import resolve_batch, resolve_eval, resolve_shapes
from vramwise.trainers.axolotl.dtypes import resolve_dtypes
from vramwise.trainers.axolotl.method import resolve_memory_savers, resolve_method
from vramwise.trainers.axolotl.sharding import resolve_sharding
from vramwise.trainers.fields import Fields
from vramwise.types import Config, RunSpec, Target


def resolve_axolotl(config: Config, target: Target, deepspeed: Mapping[str, Any] | None = None) -> RunSpec:
    """Resolve every field. `deepspeed` is the content of the file that `deepspeed:` names, where it could be read."""
    fields = Fields(config)
    fields.take("base_model", None)
    resolve_sharding(fields, target, deepspeed)
    resolve_batch(fields, target)
    resolve_method(fields, target)
    resolve_dtypes(fields, target)
    resolve_memory_savers(fields, target)
    resolve_shapes(fields)
    resolve_eval(fields)
    settings, origin = effective_allocator(target)
    fields.put("allocator", settings, origin)
    return RunSpec(trainer="axolotl", config=config, target=target, origins=fields.origins, **fields.values)
