"""A run with some changes: the changes in a few words, the trainer's edits for them, the prediction and the speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vramwise.types import Change, Document, Edit, RunSpec
from vramwise.variants.prediction import Prediction
from vramwise.variants.verdict import is_tight

if TYPE_CHECKING:
    from vramwise.variants.speed import Speed

_LOSSES = {
    "stock": "the default loss",
    "liger_fused_linear": "Liger's fused loss",
    "liger": "Liger's loss",
    "cut": "cut cross entropy",
    "chunked": "the chunked loss",
}
_OFFLOADS = {
    "off": "activations kept on the card",
    "stream": "activations offloaded",
    "legacy": "older activation offloading",
    "hidden_states": "layer inputs offloaded",
    "staged": "layer inputs offloaded",
}
_BASES = {None: "the base not quantised", "4bit": "4-bit base", "8bit": "8-bit base"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Changes applied together. `document` and `run` include them.

    Without a prediction, `refused` says why, or none was requested. `by_hand`: values that a script computes or takes
    from its command line, which the user must change.

    A search also sets the rest. `spare_bytes`: free memory beyond the reserved memory and the margin; negative if it
    does not fit. `fell`: why it is rejected; "" if it fits.
    """

    changes: tuple[Change, ...]
    edits: tuple[Edit, ...] = ()
    commands: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    document: Document | None = None
    run: RunSpec | None = None
    prediction: Prediction | None = None
    refused: str = ""
    speed: Speed | None = None
    spare_bytes: int | None = None
    margin_bytes: int = 0
    fell: str = ""

    @property
    def attempt(self) -> Attempt:
        """The attempt itself, for programs written when a variant was not yet one."""
        return self

    @property
    def writable(self) -> Document | None:
        """The text with all changes; None if the user must make some of them, since a part would be another run."""
        return None if self.by_hand else self.document

    @property
    def title(self) -> str:
        """The titles of the changes."""
        return " + ".join(change.title for change in self.changes)

    @property
    def words(self) -> str:
        """The changes in a few words."""
        return in_few_words(self.changes)

    @property
    def safe(self) -> bool:
        """Whether training gives the same result with all changes."""
        return all(change.safe for change in self.changes)

    @property
    def fits(self) -> bool:
        """Whether it is predicted to fit; in a search: with its margin and without retrying allocations."""
        if self.prediction is None:
            return False
        return self.prediction.memory_fits is True if self.spare_bytes is None else not self.fell

    @property
    def reserved_bytes(self) -> int | None:
        """The peak of reserved memory with unlimited memory, or None."""
        return None if self.prediction is None else self.prediction.needs.highest_reserved_bytes

    @property
    def tight(self) -> bool:
        """Whether it fits with less to spare than drivers and other processes may take."""
        return self.fits and self.prediction is not None and is_tight(self.prediction)

    @property
    def seconds(self) -> float | None:
        """The seconds of an optimizer step; None if the card's rates are unknown."""
        return None if self.speed is None else self.speed.step_seconds


def _switch(name: str) -> Callable[[Any], str]:
    return lambda value: f"{name} {value if isinstance(value, str) else 'on' if value else 'off'}"


def _named(name: str) -> Callable[[Any], str]:
    return lambda value: f"{name} {value}"


# RunSpec's field → its new value in words. Fields that are not listed use the change's own title.
_WORDS: Mapping[str, Callable[[Any], str]] = {
    "gradient_checkpointing": _switch("checkpointing"),
    "activation_offloading": lambda value: _OFFLOADS.get(value, f"activation offloading {value}"),
    "layer_offloading": _switch("layer offloading"),
    "loss_kernel": lambda value: _LOSSES.get(value, f"{value} loss"),
    "liger": lambda value: "Liger's kernels" if value else "no Liger kernels",
    "fused_lora": lambda value: "LoRA kernels on" if value else "LoRA kernels off",
    "attn_implementation": str,
    "optimizer": str,
    "eval_batch_size": _named("eval batch"),
    "pad_to_sequence_len": lambda value: "rows padded to full length" if value else "rows padded to the longest",
    "sample_packing": _switch("packing"),
    "allocator": lambda value: "expandable segments" if "expandable_segments:True" in value else f"allocator {value}",
    "expert_quantization": lambda value: f"experts in {value}" if value else "experts not quantised",
    "quantization": lambda value: _BASES.get(value, f"{value} base"),
    "adapter": lambda value: {None: "no adapter", "lora": "LoRA", "qlora": "QLoRA"}.get(value, str(value)),
    "sequence_len": lambda value: f"rows of {value} tokens",
    "lora_r": _named("rank"),
    "evaluates": _switch("evaluation"),
    "sharding": lambda value: {"none": "not sharded"}.get(value, str(value).upper()),
    "precision": str,
    "weights_dtype": lambda value: f"weights in {value}",
}
_BATCH = ("micro_batch_size", "gradient_accumulation_steps")


def in_few_words(changes: Sequence[Change]) -> str:
    """Describe all changes, separated by commas; without changes, "your original file"."""
    words = dict.fromkeys(word for change in changes for word in _words(change))
    return ", ".join(words) or "your original file"


def _words(change: Change) -> Iterator[str]:
    fields = dict(change.fields)
    micro, accumulation = (fields.pop(name, None) for name in _BATCH)
    if micro is not None:
        fields.pop("eval_batch_size", None)  # follows the micro-batch
        yield f"micro {micro}" + (f" × accumulation {accumulation}" if accumulation is not None else "")
    if "gradient_checkpointing" in fields and "activation_offloading" in fields:
        offloads = fields.pop("activation_offloading")
        if offloads != "off":
            fields["gradient_checkpointing"] = f"with {_OFFLOADS.get(offloads, offloads)}"
    if fields.get("adapter") == "qlora":
        fields.pop("quantization", None)
    known = [name for name in fields if name in _WORDS]
    yield from (_WORDS[name](fields[name]) for name in known)
    if micro is None and not known:
        yield change.title[:1].lower() + change.title[1:]
