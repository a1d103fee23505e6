"""grpo-batch-not-divisible"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from vramwise.rules.base import Hit, insert_key, rule, set_key, unsafe
from vramwise.timeline import MemoryReport
from vramwise.trainers.axolotl.schema import schema_of
from vramwise.types import Fix, RunSpec, Severity

_GENERATIONS = "trl.num_generations"
_EXPLICIT = "trl.generation_batch_size"
_ACCUMULATION = "gradient_accumulation_steps"


@rule(
    id="grpo-batch-not-divisible",
    severity=Severity.ERROR,
    topic="batch",
    bad="rl: grpo\nmicro_batch_size: 2\ngradient_accumulation_steps: 3\ntrl:\n  num_generations: 4\n",
    good="rl: grpo\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\ntrl:\n  num_generations: 4\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """GRPO's generation batch is not a whole number of groups of answers.

    GRPO generates `trl.num_generations` answers per prompt and compares them within the group. The generation batch is
    `trl.generation_batch_size`, or by default micro_batch_size × gradient_accumulation_steps (× GPUs since 0.21). It
    must be a multiple of `trl.num_generations`, and on several GPUs large enough for one whole group per GPU. A single
    answer per prompt has nothing to be compared with.

    The fix raises accumulation to the next value that works. This changes the effective batch.
    """
    size = run.config.get(_GENERATIONS)
    if run.objective.rl != "grpo" or not isinstance(size, int) or isinstance(size, bool):
        return
    if size < 2:
        message = f"Axolotl refuses {_GENERATIONS} {size}: GRPO compares at least 2 answers per prompt"
        yield Hit(key=_GENERATIONS, message=message)
        return
    batch, words = _generation_batch(run)
    least = size * run.batch.gpus if run.batch.gpus > 1 else size
    if batch % size:
        message = f"{words} is not a multiple of num_generations {size} (remainder {batch % size}): incomplete groups"
    elif batch < least:
        message = (
            f"{words} < num_generations {size} × gpus {run.batch.gpus} = {least}: Axolotl requires one whole group "
            "per GPU"
        )
    else:
        return
    yield Hit(key=_GENERATIONS, message=message, fix=_fix(run, size, least))


def _generation_batch(run: RunSpec) -> tuple[int, str]:
    explicit = run.config.get(_EXPLICIT)
    if isinstance(explicit, int):
        return explicit, f"{_EXPLICIT} {explicit}"
    micro, accumulation, gpus = run.batch.micro_batch_size, run.batch.gradient_accumulation_steps, _counted_gpus(run)
    batch, words = micro * accumulation * gpus, f"micro {micro} × accumulation {accumulation}"
    return batch, f"{words}{f' × gpus {gpus}' if gpus > 1 else ''} = {batch}"


def _counted_gpus(run: RunSpec) -> int:
    """Up to 0.20 Axolotl ignores the number of processes, by which TRL multiplies."""
    return run.batch.gpus if schema_of(run).since("0.21.0") else 1


def _fix(run: RunSpec, size: int, least: int) -> Fix:
    if isinstance(run.config.get(_EXPLICIT), int):
        batch = max(least, -(-int(run.config.get(_EXPLICIT)) // size) * size)
        return unsafe(f"Generate {batch} answers at a time", set_key(_EXPLICIT, batch))
    micro = run.batch.micro_batch_size * _counted_gpus(run)
    stride = size // gcd(size, micro)  # the smallest accumulation that makes whole groups
    wanted = max(run.batch.gradient_accumulation_steps, -(-least // micro))
    accumulation = -(-wanted // stride) * stride
    beside = "micro_batch_size" if "micro_batch_size" in run.config else "rl"
    return unsafe(
        f"Set accumulation to {accumulation}: a generation batch of {micro * accumulation}",
        insert_key(_ACCUMULATION, accumulation, beside=beside),
    )
