"""DeepSpeed's ZeRO as one rank sees it: which stage, what lives on the host, and the sizes that it works in.

Written after DeepSpeed 0.18.9 and 0.19.8; where they differ it is a field of `ZeroSettings`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vramwise.ghost.dtypes import BY_NAME, FP32, DType
from vramwise.ghost.tape import Storage, Tape
from vramwise.types import RunSpec, ZeroSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Zero:
    """How ZeRO is set up."""

    stage: int
    ranks: int
    settings: ZeroSettings
    # what the engine casts the whole model to
    compute: DType
    optimizer: str
    host_weights: bool
    host_states: bool
    # the engine casts nothing where weights were cut as they were loaded: adapters stay in fp32
    leaves_adapters: bool
    # shares on the host take the type of the model's first weight, which the trainer has made fp32
    wide_host_weights: bool
    # adapters' frozen weights that checkpointing gathers anew stay until all of backward is done
    holds_recomputed: bool
    # gradients are looked through for what is no number; older releases make copies for it
    checks_by_copies: bool

    def share(self, numel: int) -> int:
        """Return a rank's part of a weight: all ranks have the same number of elements."""
        return -(-numel // self.ranks)

    def sized(self, hidden: int) -> Zero:
        """Return the same with every size known: transformers fills `auto` by the model's width."""
        given = self.settings
        square = hidden * hidden
        settings = replace(
            given,
            reduce_bucket=square if given.reduce_bucket is None else given.reduce_bucket,
            prefetch=int(0.9 * square) if given.prefetch is None else given.prefetch,
            keeps_under=10 * hidden if given.keeps_under is None else given.keeps_under,
        )
        return replace(self, settings=settings)


def zero_of(run: RunSpec, ranks: int) -> Zero | None:
    """Return ZeRO of a run, if it has one. One rank alone has an engine too: flat weights and their copy in fp32."""
    if not run.sharding.is_zero:
        return None
    stage = int(run.sharding.kind[-1])
    settings = run.sharding.zero or ZeroSettings(overlaps=stage == 3)
    compute = BY_NAME[run.precision.compute] if run.precision.compute in ("bf16", "fp16") else FP32
    checks = compute is not FP32 and (run.precision.compute == "fp16" or (stage < 3 and settings.checks_sums))
    offloaded = run.sharding.offload_params and stage == 3
    return Zero(
        stage=stage,
        ranks=ranks,
        settings=settings,
        compute=compute,
        optimizer=_OWN.get((settings.optimizer or "").lower(), run.optimizer.name),
        host_weights=offloaded,
        host_states=run.sharding.offload_optimizer,
        leaves_adapters=stage == 3 and run.loading.quantization is None and settings.leaves_adapters,
        wide_host_weights=offloaded and run.sharding.host_weights_wide,
        holds_recomputed=settings.holds_recomputed,
        checks_by_copies=checks and settings.checks_by_copies,
    )


# What DeepSpeed makes of a name in its config, in the words of a run's `optimizer`: its Adam is one kernel, as fused.
_OWN = {
    "adam": "adamw_torch_fused",
    "adamw": "adamw_torch_fused",
    "lion": "lion_32bit",
    "sgd": "sgd",
    "adagrad": "adagrad",
    "rmsprop": "rmsprop",
}


def cut_as_loaded(t: Tape, numel: int, dtype: DType, zero: Zero) -> Storage | None:
    """Return what stays here of a weight that is loaded under ZeRO 3: it is made whole, and cut at once."""
    whole = Storage(t, numel * dtype.size)  # noqa: F841 - it goes when its share is there
    return None if zero.host_weights else Storage(t, zero.share(numel) * dtype.size)
