"""The weights of a run while it lasts, and which of them are trained. How they come to the card is `loading`."""

from __future__ import annotations

from vramwise.errors import VramwiseError
from vramwise.ghost.model.linear import Float8Linear, Linear, Projection
from vramwise.ghost.sharding import Sharding
from vramwise.ghost.tape import Parameter, Storage
from vramwise.models.families import block_of
from vramwise.models.lora_targets import LoraTarget
from vramwise.models.parameters import linear_modules, parameters
from vramwise.models.patterns import pattern_of
from vramwise.types import ModelSpec, RunSpec, TrainedBlocks


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
        "rotations",
        "run",
        "said",
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
        self.rotations: dict[str, Parameter] = {}  # OFT's
        self.replaced: list[Parameter] = []
        self.magnitudes: dict[str, Parameter] = {}
        self.sharding = sharding
        self.targets: dict[str, LoraTarget] = {}
        self.said: list[str] = []  # what the run does by itself, in sentences

    def get(self, name: str) -> Parameter | None:
        """Return a parameter by transformers' name, or None where the model has none of that name."""
        return self.by_name.get(name)

    def rows(self, name: str) -> int:
        """Return how many rows a weight has, quantised or not; 0 where there is none."""
        found = self.get(name)
        return (self.shapes.get(name) or (0,))[0] if found is None else found.shape[0]

    @property
    def compiled(self) -> bool:
        """Whether the model's layers run compiled: those that the trainer has no kernels of its own for."""
        kernels = self.run.kernels
        return kernels.compiled_layers and self.model.model_type not in kernels.fused_layers

    def multiplier(self, weight: Parameter, bias: Parameter | None) -> Projection:
        """Return a linear layer of this weight, in fp8 if accelerate converts it.

        It converts every one whose sides are multiples of 16, except the model's first and last.
        """
        if self.run.precision.compute == "fp8" and not any(side % 16 for side in weight.shape):
            every = linear_modules(self.model)
            if weight.name.removesuffix(".weight") not in (every[0].name, every[-1].name):
                return Float8Linear(weight, bias, self.run.precision.fp8_scaling)
        return Linear(weight, bias)

    def trainable(self) -> list[Parameter]:
        """Return the trained parameters, in the model's order: an adapter stands where its module stands."""
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
            rotation = self.rotations.get(name.removesuffix(".weight"))
            if rotation is not None:
                found.append(rotation)
        return found


# Each is matched with the name of every parameter.
_MOST_PATTERNS = 1_000


def freeze_except(weights: Weights, patterns: tuple[str, ...]) -> None:
    """Take the gradient from every parameter whose name none of the regular expressions matches from its start.

    A frozen one stays in the type it was loaded in; adapters are named as PEFT names them.
    """
    if len(patterns) > _MOST_PATTERNS:
        raise VramwiseError(
            f"parameters to train: at most {_MOST_PATTERNS:,} expressions are supported, not {len(patterns):,}"
        )
    wanted = [pattern_of(pattern, "parameters to train") for pattern in patterns]
    for name, parameter in _named(weights):
        if not any(pattern.match(name) for pattern in wanted):
            parameter.node = None
        elif parameter.node is None:
            parameter.require_grad()


def freeze_blocks(weights: Weights, blocks: TrainedBlocks) -> None:
    """Take the gradient from every parameter outside of these blocks, and of the modules that are named."""
    parts = [f".{number}." for number in blocks.numbers(weights.model.num_hidden_layers)]
    wanted = [part + module for part in parts for module in blocks.modules or ("",)]
    for name, parameter in weights.by_name.items():
        if not any(part in name for part in (*wanted, *blocks.others)):
            parameter.node = None


def _named(weights: Weights) -> list[tuple[str, Parameter]]:
    """Return parameters under the names they have once the model is wrapped."""
    if not weights.adapters:
        return list(weights.by_name.items())
    start, found = "base_model.model.", []
    for name, parameter in weights.by_name.items():
        module, _, last = name.rpartition(".")
        inside = f"{module}.base_layer.{last}" if module in weights.adapters else name
        found.append((f"{start}{inside}", parameter))
    for module, pair in weights.adapters.items():
        found += [
            (f"{start}{module}.lora_{letter}.default.weight", one) for letter, one in zip("AB", pair, strict=True)
        ]
    for module, magnitude in weights.magnitudes.items():
        found.append((f"{start}{module}.lora_magnitude_vector.default.weight", magnitude))
    return found
