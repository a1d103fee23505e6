"""Weights come to the card: straight from the files, by way of host memory, or made there.

From the files (transformers' `from_pretrained` with a device map): one block of the model's size is asked for and given
back, so that the weights come out of one segment; then tensor after tensor in the checkpoint's order: transformers
sorts the names, numbers by their value. Checkpoints of most mixtures hold each expert's matrices apart; they become one
3-D weight while loading. What is to be quantised arrives in the storage type first. By way of the host: parameter by
parameter in the model's order, adapters beside their modules. Made: as a model built from its config does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod

from vramwise.allocator.caching import NEWEST, CachingAllocator
from vramwise.allocator.run import play_timeline
from vramwise.allocator.settings import parse_settings
from vramwise.facts.context import CONTEXT_BYTES
from vramwise.ghost.dtypes import BY_NAME, FP32, DType
from vramwise.ghost.loading.adapters import adapter_beside, copy_saved, planned_adapters
from vramwise.ghost.loading.casts import KEPT_TOGETHER
from vramwise.ghost.loading.parameter import new_parameter, packed_4bit, quantise_4bit, quantise_8bit, rotary_buffers
from vramwise.ghost.sharding import Sharding
from vramwise.ghost.sharding.zero import cut_as_loaded
from vramwise.ghost.tape import Storage, Tape
from vramwise.ghost.weights import Weights
from vramwise.models.families.parts import Parameter as Described
from vramwise.models.parameters import parameters
from vramwise.types import ModelSpec, RunSpec
from vramwise.units import whole_number

# for each weight: one list of matrices, or two (gate and up)
Matrices = dict[str, list[list[Storage]]]


def read_experts(t: Tape, weight: Described, dtype: DType) -> Matrices:
    """Read the matrices of one weight: all gates, then all ups."""
    count = weight.shape[0]
    each = _bytes(weight, dtype) // _sources(weight) // count
    return {weight.name: [[Storage(t, each) for _ in range(count)] for _ in range(_sources(weight))]}


def read_layer(t: Tape, weights: Sequence[Described], dtype: DType) -> Matrices:
    """Read the matrices of all weights of a layer as they lie in the checkpoint: expert by expert.

    The last expert's are left to `read_last`, but for the first weight: it is merged as soon as its own are there.
    """
    found: Matrices = {weight.name: [[] for _ in range(_sources(weight))] for weight in weights}
    for _expert in range(weights[0].shape[0] - 1):
        _read_expert(t, weights, found, dtype)
    _read_expert(t, weights[:1], found, dtype)
    return found


def read_last(t: Tape, weights: Sequence[Described], found: Matrices, dtype: DType) -> None:
    """Read what `read_layer` left."""
    _read_expert(t, weights[1:], found, dtype)


def _read_expert(t: Tape, weights: Sequence[Described], found: Matrices, dtype: DType) -> None:
    for weight in weights:
        for matrices in found[weight.name]:
            matrices.append(Storage(t, _bytes(weight, dtype) // _sources(weight) // weight.shape[0]))


def merge_experts(
    t: Tape, weight: Described, lists: list[list[Storage]], dtype: DType, meanwhile: Callable[[], None] | None = None
) -> Storage:
    """Stack the matrices; gate and up are stacked apart and then laid side by side.

    Each list of matrices goes when the next one is taken up, from its last to its first, both stacks when their union
    is there. `meanwhile`: brings what is read while the first list is stacked.
    """
    nbytes = _bytes(weight, dtype)
    sources = len(lists)
    stacks: list[Storage] = []
    while lists:
        matrices = lists.pop(0)
        stacks.append(Storage(t, nbytes // sources))
        if meanwhile is not None:
            meanwhile()
            meanwhile = None
        while matrices:
            matrices.pop()
    return stacks.pop() if sources == 1 else Storage(t, nbytes)


def _bytes(weight: Described, dtype: DType) -> int:
    return prod(weight.shape) * dtype.size


def _sources(weight: Described) -> int:
    return 2 if weight.name.endswith("gate_up_proj") else 1


# Their checkpoints hold the experts' 3-D weights as they are.
_STORED_AS_ONE = ("gpt_oss", "llama4")


def stays_on_host(sharding: Sharding) -> bool:
    """Whether the card never holds the whole model: its weights are spread over ranks, or stay in host memory."""
    return sharding.weights or sharding.host_weights


def read_weights(t: Tape, weights: Weights, *, trainable: bool) -> None:
    """Bring the base weights to the card in the run's way."""
    if weights.run.loading.loads_through == "device" and not stays_on_host(weights.sharding):
        _read_to_device(t, weights, trainable=trainable)
    else:
        _make_on_device(t, weights, trainable=trainable)


def bits_of(run: RunSpec, parameter: Described) -> str | None:
    """Return how a weight is quantised, if it is."""
    if parameter.kind == "linear":
        return run.loading.quantization
    apart = len(parameter.shape) == 3 and ".experts." in parameter.name
    return run.loading.expert_quantization if apart else None


def _read_to_device(t: Tape, weights: Weights, *, trainable: bool) -> None:
    run, model = weights.run, weights.model
    base = BY_NAME[run.precision.weights_dtype]
    # Older releases of transformers quantise experts as they do all weights: a dense model is read as ever.
    apart = run.loading.expert_quantization is not None and bool(model.num_experts or not run.loading.warms_up)
    if not apart and run.loading.warms_up:
        _warm_up(t, weights, _bytes_on_card(weights, base))
    reader = _Reader(t, weights, trainable=trainable)
    for parameter in checkpoint_order(model):
        reader.take(parameter)
    weights.buffers += rotary_buffers(t, model, computed_on_device=False)
    if weights.block.scaled_embeddings == "inside":
        weights.buffers.append(Storage(t, base.size))  # the factor that embeddings are scaled by
    if apart:
        t.empty_cache()


@lru_cache(maxsize=64)
def checkpoint_order(model: ModelSpec) -> Sequence[Described]:
    """Return the model's parameters in the order in which transformers reads them: names, with numbers by value."""
    return tuple(sorted(parameters(model), key=lambda parameter: _natural(parameter.name)))


def _is_merged(model: ModelSpec, parameter: Described) -> bool:
    """Return whether the checkpoint holds the weight as one tensor an expert."""
    return len(parameter.shape) == 3 and parameter.kind == "experts" and model.family not in _STORED_AS_ONE


def _natural(name: str) -> list[tuple[int, int | str]]:
    numbers = ((part, whole_number(part)) for part in name.split("."))
    return [(1, part) if number is None else (0, number) for part, number in numbers]


class _Reader:
    """Takes the weights as their tensors arrive.

    Four threads of transformers read ahead. Experts' matrices of a layer arrive one after the other; while those of its
    first weight are stacked, the rest of the layer arrives, and lies between the stacks. What is quantised is read one
    by one.
    """

    def __init__(self, t: Tape, weights: Weights, *, trainable: bool) -> None:
        self._t = t
        self._weights = weights
        self._base = BY_NAME[weights.run.precision.weights_dtype]
        self._trainable = trainable
        self._experts: Matrices = {}

    def take(self, parameter: Described) -> None:
        """Make a parameter, if it is not there yet."""
        t, weights, name = self._t, self._weights, parameter.name
        if name in weights.by_name or name in weights.quantised:
            return
        t.mark("weights", name)
        bits = bits_of(weights.run, parameter)
        arrived = self._arrive(parameter, quantised=bits is not None)
        if bits is None:
            weights.by_name[name] = new_parameter(
                t, weights, name, parameter.shape, self._base, trainable=self._trainable, arrived=arrived
            )
            return
        # transformers before 5.0 hands it to bitsandbytes by way of the host: it is on the card twice then
        again = weights.run.loading.halves_warm_up
        _quantise(t, weights, parameter, self._base, bits, None if again else arrived)
        del arrived
        if parameter.kind == "experts":
            t.empty_cache()

    def _arrive(self, parameter: Described, *, quantised: bool) -> Storage | None:
        """A weight that is on the card before it becomes a parameter: to be quantised, or put together of experts."""
        t, weights, base = self._t, self._weights, self._base
        if _is_merged(weights.model, parameter):
            return self._merge(parameter)
        if quantised and not _packed_in_checkpoint(weights):
            return Storage(t, parameter.numel * base.size)
        return None

    def _merge(self, parameter: Described) -> Storage:
        t, base, meanwhile = self._t, self._base, None
        if self._weights.run.loading.quantization is not None:
            self._experts = read_experts(t, parameter, base)
        elif parameter.name not in self._experts:
            layer = [other for other in checkpoint_order(self._weights.model) if other.layer == parameter.layer]
            together = [other for other in layer if _is_merged(self._weights.model, other)]
            self._experts = read_layer(t, together, base)
            meanwhile = partial(self._read_on, layer, together)
        return merge_experts(t, parameter, self._experts.pop(parameter.name), base, meanwhile)

    def _read_on(self, layer: list[Described], together: list[Described]) -> None:
        """Read the rest of a layer."""
        read_last(self._t, together, self._experts, self._base)
        for other in layer:
            if other not in together:
                self.take(other)


def _packed_in_checkpoint(weights: Weights) -> bool:
    return weights.model.checkpoint_quantization == "bitsandbytes_4bit"


def _bytes_on_card(weights: Weights, base: DType) -> int:
    """Return what the weights will take, as transformers counts it: tied weights once, quantised ones at their width.

    Before 5.0 all are counted as the model is built, in 16 bits.
    """
    total = 0
    as_built = weights.run.loading.halves_warm_up
    for parameter in parameters(weights.model):
        bits = None if as_built else bits_of(weights.run, parameter)
        numel = parameter.numel
        total += numel * base.size if bits is None else numel if bits == "8bit" else numel // 2
    return total


def _quantise(
    t: Tape, weights: Weights, parameter: Described, base: DType, bits: str, arrived: Storage | None = None
) -> None:
    """Quantise a weight. 4-bit ones are sharded as others are, their scales are not; 8-bit ones stay whole."""
    name, shape = parameter.name, parameter.shape
    weights.shapes[name] = shape
    if bits == "8bit":
        weights.quantised[name] = quantise_8bit(t, shape)
        return
    packed_already = _packed_in_checkpoint(weights) and weights.run.loading.loads_through == "device"
    nested = weights.run.loading.nested_scales
    kept = packed_4bit(t, shape) if packed_already else quantise_4bit(t, shape, base, arrived, nested=nested)
    weights.quantised[name] = kept
    sharding = weights.sharding
    if stays_on_host(sharding):
        weights.packed_bytes[name] = packed = kept[0].nbytes
        if sharding.zero is not None and weights.run.loading.loads_through != "host":
            return  # whole until the engine takes the model over
        del kept[0]
        if sharding.zero is not None:
            return
        if not sharding.host_weights:
            kept.append(Storage(t, sharding.share(packed, of=True)))


def _make_on_device(t: Tape, weights: Weights, *, trainable: bool) -> None:
    """As a model built from its config and moved to the device: in the model's order, the head before it is tied."""
    run, model = weights.run, weights.model
    base = BY_NAME[run.precision.weights_dtype]
    computed = run.loading.quantization is None
    buffers_due = True
    for parameter in parameters(model):
        if parameter.kind == "lm_head" and buffers_due:
            weights.buffers += rotary_buffers(t, model, computed_on_device=computed)
            buffers_due = False
        t.mark("weights", parameter.name)
        bits = bits_of(run, parameter)
        if bits is not None:
            _quantise(t, weights, parameter, base, bits)
            continue
        made = new_parameter(t, weights, parameter.name, parameter.shape, base, trainable=trainable)
        weights.by_name[parameter.name] = made
        del made
        if parameter.kind == "embedding" and weights.block.scaled_embeddings == "inside":
            weights.buffers.append(Storage(t, base.size))  # the factor that embeddings are scaled by
    if buffers_due:
        weights.buffers += rotary_buffers(t, model, computed_on_device=computed)
    if model.tie_word_embeddings:
        # the head is made before it is tied to the embeddings
        t.mark("weights", "lm_head before it is tied")
        numel, zero = model.vocab_size * model.hidden_size, weights.sharding.zero
        share = cut_as_loaded(t, numel, base, zero) if zero is not None and zero.stage == 3 else None
        Storage(t, numel * base.size)
        del share


def move_to_device(t: Tape, weights: Weights) -> None:
    """Move a finished model: parameters in the model's order, each module's adapter behind it, buffers last."""
    run, model = weights.run, weights.model
    base, trainable = BY_NAME[run.precision.weights_dtype], run.adapter.kind is None
    planned = planned_adapters(weights)
    wide = {*run.loading.upcasts_at_load} if run.loading.upcasts_stay else set()
    wide |= KEPT_TOGETHER if run.precision.fp32_embeddings else set()
    for parameter in parameters(model):
        t.mark("weights", parameter.name)
        dtype = FP32 if wide & {parameter.kind, parameter.name} else base
        made = new_parameter(t, weights, parameter.name, parameter.shape, dtype, trainable=trainable)
        weights.by_name[parameter.name] = made
        del made
        copy_saved(t, weights, parameter.name)
        adapter_beside(t, weights, parameter.name, planned)
    for name in [*planned]:  # of a head that is tied, which is no parameter of its own
        adapter_beside(t, weights, name, planned)
    weights.buffers += rotary_buffers(t, model, computed_on_device=False)


# The warm-up leaves this much of the card's free memory alone.
_LEFT_BY_THE_WARM_UP = int(1.2 * 1024**3)
# If no more than this is missing, nothing is asked for.
_WORTH_ASKING = int(1.5 * 1024**3)
_PROBE_BYTES = 8
_SMALL_SEGMENT = 2 * 1024**2


def _warm_up(t: Tape, weights: Weights, total: int) -> None:
    """Ask for what the weights will take (`total`), less what is idle, and give it back at once.

    Before it accelerate asks each card with a number how much it has, which leaves a segment in the cache. On one of
    several ranks the card is given, and not asked. What is idle before the first model is one small segment at most; a
    second model finds what the casts of the first left behind in segments that are partly used.
    """
    t.mark("weights", "warm-up of the allocator")
    idle = 0 if t.count == 0 else _idle_bytes(t, weights.run.allocator.settings)
    if weights.sharding.ranks == 1:
        Storage(t, _PROBE_BYTES)
        idle = idle or _SMALL_SEGMENT
    wanted = _request(total, idle)
    if t.hardware.memory_bytes is not None:
        wanted = min(wanted, t.hardware.memory_bytes - CONTEXT_BYTES - _LEFT_BY_THE_WARM_UP)
    if weights.run.loading.halves_warm_up:
        wanted //= 2
    if wanted > 0:
        Storage(t, wanted // 2 * 2)


def _request(total: int, idle: int) -> int:
    missing = total - idle
    if missing > idle:
        return missing
    return idle + 1 if missing > _WORTH_ASKING else 0


def _idle_bytes(t: Tape, settings: str) -> int:
    """Reserved and not allocated, after all that was asked for so far."""
    allocator = CachingAllocator(parse_settings(settings, NEWEST))
    play_timeline(t.timeline(), allocator)
    return allocator.reserved_bytes - allocator.allocated_bytes
