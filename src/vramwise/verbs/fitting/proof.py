"""The proof that nothing fits: what the weights alone need, whatever else changes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vramwise.models.parameters import parameter_count
from vramwise.opening.subject import Subject


def proof_bytes(subject: Subject, allow: Sequence[str], room_bytes: int) -> int:
    """Return what the weights alone need, if that proves that nothing fits which these words permit; otherwise 0."""
    needed = weights_alone_bytes(subject, allow)
    return needed if needed > room_bytes else 0


def weights_alone_bytes(subject: Subject, allow: Sequence[str]) -> int:
    """Return the least memory of the weights, and of their gradients if all are trained.

    It holds for all variants that these words permit. 0 if parts of the weights may be elsewhere.
    """
    run, model = subject.run, subject.model
    whole = run.sharding.kind == "ddp" or run.batch.gpus == 1  # a single card holds every shard
    if model is None or run.savings.layer_offloading or run.sharding.offload_params or not whole:
        return 0
    quantised = run.loading.quantization is not None or "qlora" in allow or model.num_experts
    adapted = run.adapter.kind is not None or "lora" in allow
    # some weights are frozen, gradient shards may be elsewhere, or the optimizer frees gradients one by one
    partly = (
        run.adapter.unfrozen
        or run.adapter.trained_blocks is not None
        or run.unfollowed
        or re.search("layer|lomo", run.optimizer.name)
    )
    whole_gradients = not partly and run.sharding.kind in ("none", "ddp")
    each = 0.5 if quantised else 2 if adapted or not whole_gradients else 4
    return int(each * parameter_count(model))
