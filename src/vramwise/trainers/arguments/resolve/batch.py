"""Resolves batch sizes and the order of rows."""

from __future__ import annotations

from vramwise.trainers.arguments.values import Arguments


def resolve_batch(args: Arguments) -> None:
    """Fill micro_batch_size, gradient_accumulation_steps, effective_batch_size and the row order. Needs sharding."""
    ranks = args.values["data_parallel"]
    micro = args.take_count("micro_batch_size", "per_device_train_batch_size")
    if args.fields.config.get("accelerator_config.split_batches") is True and ranks > 1:
        micro = max(1, micro // ranks)
        why = f"accelerator_config.split_batches divides the batch over {ranks} ranks"
        args.derive("micro_batch_size", micro, why, key="per_device_train_batch_size")
    accumulation = args.take_count("gradient_accumulation_steps", "gradient_accumulation_steps")
    why = f"micro {micro} × accumulation {accumulation} × data-parallel ranks {ranks}"
    args.derive("effective_batch_size", micro * accumulation * ranks, why)
    _order(args)


def _order(args: Arguments) -> None:
    key = "train_sampling_strategy" if "train_sampling_strategy" in args.words else "group_by_length"
    grouped = args.value(key) in (True, "group_by_length")
    args.put("group_by_length", key, grouped)
    _shuffling(args, key)


def _shuffling(args: Arguments, key: str) -> None:
    """Fill the seed of accelerate's sampler, unless another order is requested."""
    asked = args.value(key)
    if asked not in (None, False, "random"):
        args.derive("shuffle_seed", None, f"{key} {asked}", key=key)
        return
    seeded = "data_seed" if isinstance(args.value("data_seed"), int) else "seed"
    seed = args.value(seeded)
    args.put("shuffle_seed", seeded, seed if isinstance(seed, int) else None)
