"""Loading: the model's weights in transformers' order, adapters after them, and what of it is trained.

The order is that of a model built from its config and moved to the device, then wrapped by PEFT. Adapters are first
made in the base weights' type and then copied to fp32.
"""

from __future__ import annotations

from vramwise.facts.lora_targets import ALL_LINEAR, LoraTarget, lora_targets
from vramwise.facts.parameters import parameters
from vramwise.families import block_of, layout_of
from vramwise.ghost.dtypes import BY_NAME, FP32, DType
from vramwise.ghost.quantise import quantise_4bit, quantise_8bit
from vramwise.ghost.sharding import Sharding
from vramwise.ghost.sharding.fsdp_units import gathered_dtype, padded_share, shard_dtype
from vramwise.ghost.sharding.zero import cut_as_loaded
from vramwise.ghost.tape import Parameter, Storage, Tape
from vramwise.types import ModelSpec, RunSpec


class Weights:
    """Every parameter by name, in the order of `model.parameters()`."""

    __slots__ = (
        "adapters",
        "block",
        "buffers",
        "by_name",
        "magnitudes",
        "model",
        "packed_bytes",
        "quantised",
        "replaced",
        "run",
        "shapes",
        "sharding",
        "targets",
    )

    def __init__(self, model: ModelSpec, run: RunSpec, sharding: Sharding) -> None:
        self.model = model
        self.block = block_of(model)
        self.run = run
        self.buffers: list[Storage] = []
        self.by_name: dict[str, Parameter] = {}
        # quantised weights: their blocks of memory, and the shapes they stand for
        self.quantised: dict[str, list[Storage]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        # what quantised weights are when they are gathered
        self.packed_bytes: dict[str, int] = {}
        self.adapters: dict[str, tuple[Parameter, Parameter]] = {}
        self.replaced: list[Parameter] = []
        self.magnitudes: dict[str, Parameter] = {}
        self.sharding = sharding
        self.targets: dict[str, LoraTarget] = {}

    def get(self, name: str) -> Parameter | None:
        """A parameter by transformers' name, or None where the model has none of that name."""
        return self.by_name.get(name)

    def trainable(self) -> list[Parameter]:
        """The trained parameters, in the model's order: an adapter stands where its module stands."""
        found: list[Parameter] = []
        names = [name for name, _shape, _kind, _layer in parameters(self.model)]
        if self.model.tie_word_embeddings and "lm_head.weight" in self.by_name:
            names.append("lm_head.weight")
        for name in names:
            parameter = self.by_name.get(name)
            if parameter is not None and parameter.node is not None:
                found.append(parameter)
            pair = self.adapters.get(name.removesuffix(".weight"))
            if pair is not None:
                found += pair
                magnitude = self.magnitudes.get(name.removesuffix(".weight"))
                if magnitude is not None:
                    found.append(magnitude)
        return found


_RECAST = ("norm", "embedding", "lm_head")


def _recast(t: Tape, weights: Weights, dtype: DType, kinds: tuple[str, ...] = _RECAST) -> None:
    """Norms, embeddings and head to another type, module by module, after everything was loaded."""
    for name, _shape, kind, _layer in parameters(weights.model):
        if kind in kinds:
            parameter = weights.by_name[name]
            t.mark("weights", name)
            held = parameter.storage
            before = parameter.dtype if weights.sharding.fsdp is None else parameter.state_dtype
            if held is not None:
                parameter.storage = Storage(t, held.nbytes // before.size * dtype.size)
            del held
            parameter.state_dtype = dtype
            if weights.sharding.fsdp is None:
                parameter.dtype = dtype


def _parameter(
    t: Tape, weights: Weights, name: str, shape: tuple[int, ...], dtype: DType, *, trainable: bool
) -> Parameter:
    """A parameter, or this rank's share of it."""
    sharding = weights.sharding
    if sharding.ranks == 1 and not sharding.host_weights:
        return Parameter(t, name, shape, dtype, trainable=trainable)
    numel = 1
    for side in shape:
        numel *= side
    fsdp = sharding.fsdp
    if fsdp is not None:
        return _fsdp_parameter(t, weights, name, shape, dtype, trainable=trainable)
    if sharding.zero is not None:
        return _zero_parameter(t, weights, name, shape, dtype, trainable=trainable)
    stored = 0 if sharding.host_weights else sharding.share(numel, of=sharding.weights)
    made = Parameter(t, name, shape, dtype, trainable=trainable, stored=stored)
    made.local = sharding.share(numel, of=sharding.grads)
    return made


def _zero_parameter(
    t: Tape, weights: Weights, name: str, shape: tuple[int, ...], dtype: DType, *, trainable: bool
) -> Parameter:
    """Whole, but for weights of the model itself under ZeRO 3; quantised models are cut later."""
    zero, run = weights.sharding.zero, weights.run
    adapter = trainable and run.adapter is not None
    if zero is None or zero.stage < 3 or adapter or run.quantization is not None:
        return Parameter(t, name, shape, dtype, trainable=trainable)
    made = Parameter(t, name, shape, dtype, trainable=trainable, stored=0)
    made.storage = cut_as_loaded(t, made.numel, dtype, zero)
    return made


def _fsdp_parameter(
    t: Tape, weights: Weights, name: str, shape: tuple[int, ...], dtype: DType, *, trainable: bool
) -> Parameter:
    """A rank's share in the type it is kept in; to its users it is of the type it is gathered in."""
    sharding = weights.sharding
    assert sharding.fsdp is not None
    local = padded_share(shape, sharding.ranks)
    kept = shard_dtype(sharding.fsdp, dtype, trainable=trainable)
    made = Parameter(t, name, shape, gathered_dtype(sharding.fsdp, dtype), trainable=trainable, stored=0)
    made.storage = None if sharding.host_weights else Storage(t, local * kept.size)
    made.local = local
    made.state_dtype = kept
    return made


def load(t: Tape, model: ModelSpec, run: RunSpec, sharding: Sharding) -> Weights:
    """Allocate the weights, and the adapters where the run has them."""
    weights = Weights(model, run, sharding)
    base = BY_NAME[run.weights_dtype]
    full = run.adapter is None
    buffers_due = True
    for name, shape, kind, _layer in parameters(model):
        if kind == "lm_head" and buffers_due:
            weights.buffers += _rotary_buffers(t, model, run.quantization is not None)
            buffers_due = False
        t.mark("weights", name)
        bits = _bits(run, name, shape, kind)
        if bits is not None:
            _load_quantised(t, weights, name, shape, base, bits)
            continue
        weights.by_name[name] = _parameter(t, weights, name, shape, base, trainable=full)
        if kind == "embedding" and weights.block.scaled_embeddings == "inside":
            weights.buffers.append(Storage(t, base.size))  # the factor that embeddings are scaled by
    if buffers_due:
        weights.buffers += _rotary_buffers(t, model, run.quantization is not None)
    if model.tie_word_embeddings:
        # the head is made before it is tied to the embeddings
        t.mark("weights", "lm_head before it is tied")
        Storage(t, model.vocab_size * model.hidden_size * base.size)
    if run.quantization is not None and not full:
        # PEFT's preparation: what is not quantised goes to fp32; the trainers take it back afterwards
        kinds = _RECAST if run.upcasts_embeddings_at_load else ("norm",)
        _recast(t, weights, FP32, kinds)
        t.empty_cache()
        _recast(t, weights, base, kinds)
    if run.fp32_embeddings:
        _recast(t, weights, FP32)
    if not full:
        _add_adapters(t, weights, base)
    return weights


def _bits(run: RunSpec, name: str, shape: tuple[int, ...], kind: str) -> str | None:
    """How a weight is quantised, if it is."""
    if kind == "linear":
        return run.quantization
    return run.expert_quantization if len(shape) == 3 and ".experts." in name else None


def _load_quantised(t: Tape, weights: Weights, name: str, shape: tuple[int, ...], base: DType, bits: str) -> None:
    """Quantise a weight. 4-bit ones are sharded as others are, their scales are not; 8-bit ones stay whole."""
    weights.shapes[name] = shape
    if bits == "8bit":
        weights.quantised[name] = quantise_8bit(t, shape, base)
        return
    kept = weights.quantised[name] = quantise_4bit(t, shape, base)
    sharding = weights.sharding
    if sharding.weights or sharding.host_weights:
        weights.packed_bytes[name] = packed = kept[0].nbytes
        if sharding.zero is not None:
            return  # whole until the engine takes the model over
        del kept[0]
        if not sharding.host_weights:
            kept.append(Storage(t, sharding.share(packed, of=True)))


def _rotary_buffers(t: Tape, model: ModelSpec, quantised: bool) -> list[Storage]:
    """The inverse frequencies and their copy, computed on the device."""
    if model.rotary_fraction == 0:
        return []
    t.mark("weights", "rotary frequencies")
    nbytes = max(int(model.head_dim * model.rotary_fraction) // 2, 1) * 4
    if quantised:
        return [Storage(t, nbytes), Storage(t, nbytes)]
    moved = Storage(t, nbytes)
    copied = Storage(t, nbytes)
    del moved
    range_ = Storage(t, nbytes)
    Storage(t, 8)
    del copied
    divided = Storage(t, nbytes)
    kept = [Storage(t, nbytes)]
    del divided
    del range_
    kept.append(Storage(t, nbytes))
    return kept


def _add_adapters(t: Tape, weights: Weights, base: DType) -> None:
    run, model = weights.run, weights.model
    assert run.lora_r is not None
    wanted = ALL_LINEAR if run.lora_target_linear or not run.lora_target_modules else run.lora_target_modules
    targets = lora_targets(model, wanted)
    first: list[Parameter] = []
    for target in targets:
        rank = run.lora_r * target.rank_factor * target.experts
        shapes: list[tuple[str, tuple[int, ...]]] = [
            ("A", (rank, target.in_features)),
            ("B", (target.out_features, rank)),
        ]
        if run.use_dora:
            shapes.append(("magnitude", (target.out_features,)))
        for letter, shape in shapes:
            name = f"{target.name}.lora_{letter}"
            t.mark("weights", name)
            if letter == "magnitude":
                _weight_norm(t, target, base)
            first.append(Parameter(t, name, shape, base, trainable=False))
    for position in range(len(first)):
        made = first[position]
        t.mark("weights", made.name)
        wide = _parameter(t, weights, made.name, made.shape, FP32, trainable=True)
        del made
        first[position] = wide
        del wide
    _copy_saved_modules(t, weights)
    each = 3 if run.use_dora else 2
    for position, target in enumerate(targets):
        group = first[position * each : (position + 1) * each]
        weights.adapters[target.name] = (group[0], group[1])
        weights.targets[target.name] = target
        if run.use_dora:
            weights.magnitudes[target.name] = group[2]


def _copy_saved_modules(t: Tape, weights: Weights) -> None:
    """PEFT's modules_to_save: a trainable copy, in the type of the original, which stays where it is.

    A tied head has no weight of its own: copied, it gets one, and copying the embeddings leaves the head with the
    original.
    """
    wanted = weights.run.lora_modules_to_save
    if not wanted:
        return
    layout = layout_of(weights.model)
    embedding = f"{layout.inside(weights.model, layout.embedding)}.weight"
    if weights.model.tie_word_embeddings:
        weights.by_name["lm_head.weight"] = weights.by_name[embedding]
    for name in [*weights.by_name]:
        if not name.removesuffix(".weight").removesuffix(".bias").endswith(wanted):
            continue
        original = weights.by_name[name]
        t.mark("weights", name)
        weights.replaced.append(original)
        if weights.sharding.fsdp is None:
            weights.by_name[name] = Parameter(t, name, original.shape, original.dtype, trainable=True)
        else:
            weights.by_name[name] = _fsdp_parameter(
                t, weights, name, original.shape, original.state_dtype, trainable=True
            )


def _weight_norm(t: Tape, target: LoraTarget, base: DType) -> None:
    """The first magnitudes: norms of the merged weight."""
    nbytes = target.in_features * target.out_features * base.size
    merged = Storage(t, nbytes)
    t.workspace()
    scaled = Storage(t, nbytes)
    summed = Storage(t, nbytes)
    del scaled
    del merged, summed
