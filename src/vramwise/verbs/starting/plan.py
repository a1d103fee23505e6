"""The plan of a new run before any search: row length, rows per step, duration.

`New` is the result of the search: the config and the decisions behind it, or what is missing if nothing fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from vramwise.opening.options import NewOptions
from vramwise.opening.subject import Subject
from vramwise.trainers.starting import Format, Precision, ScriptWriter, Source, Start, Starter
from vramwise.trainers.wishes import Wishes
from vramwise.types import Finding, GpuSpec, ModelSpec
from vramwise.variants.duration import Duration
from vramwise.variants.lengths import NO_DATA, Data, Lengths
from vramwise.variants.prediction import Prediction
from vramwise.variants.speed import Speed

# Methods in order of preference.
METHODS = {"full": "full fine-tuning", "lora": "LoRA", "qlora": "QLoRA"}
# Rows are long enough for this share of the samples.
COVERED = 0.99
_MULTIPLE = 64
# The usual length of recipes: used without data, and as the maximum for packed rows of short samples.
USUAL_LENGTH = 2048
# Nothing is held out of fewer samples than this.
_ENOUGH_TO_HOLD_OUT = 200
_HELD_OUT, _MOST_HELD_OUT = 0.05, 500
# Small datasets are trained for several epochs.
_FEW, _PASSES = 5000, 3
_RATES = {None: 2e-5, "lora": 2e-4, "qlora": 2e-4}
_PREFERENCE_RATES = {None: 5e-7, "lora": 5e-6, "qlora": 5e-6}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of a run: their length, the number per step, and how many samples are longer than a row."""

    length: int
    a_step: int  # over all GPUs
    samples_a_row: float = 1.0
    longer: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is known before a search.

    `starter` writes the config, or `writer` a Python script. `data`: the lengths of the data, if it was read.
    `fragments`: the trainer has no key for expandable segments, so rows of many lengths leave gaps.
    """

    ask: NewOptions
    model: ModelSpec
    gpu: GpuSpec
    gpus: int
    source: Source
    starter: Starter
    writer: ScriptWriter | None = None
    data: Data = NO_DATA
    fragments: bool = False

    @property
    def script(self) -> bool:
        """Whether a Python script is written."""
        return self.writer is not None

    @property
    def lengths(self) -> Lengths | None:
        """The lengths of the samples."""
        return self.data.train

    @property
    def format(self) -> Format:
        """The format of the data, named or not."""
        return self.source.format

    @property
    def _kind(self) -> str:
        return "dpo-" if self.format == "pairs" else ""

    def described(self, method: str) -> str:
        """Describe the training: `LoRA of meta-llama/Llama-3.1-8B`."""
        words = METHODS[method]
        kind = f"DPO with {words}" if self.format == "pairs" else words[:1].upper() + words[1:]
        return f"{kind} of {self.ask.model}"

    @property
    def cards(self) -> str:
        """The card and, if there are several, their number."""
        return self.gpu.name if self.gpus == 1 else f"{self.gpus} × {self.gpu.name}"

    @property
    def packs(self) -> bool:
        """Whether rows may hold several samples."""
        return self.format != "pairs"

    def rows(self, *, packed: bool) -> Rows:
        """Return rows that hold 99 % of the samples whole; packed rows are longer if samples are short.

        A step contains as many samples as requested, packed or not.
        """
        tokens = self.lengths.tokens if self.lengths else ()
        length = self.ask.sequence_len or min(self._covering(tokens), self.model.max_position_embeddings)
        per_gpu = max(1, ceil(self.ask.batch / self.gpus))
        longer = sum(one > length for one in tokens)
        if not packed or not tokens:
            return Rows(length=length, a_step=per_gpu * self.gpus, longer=longer)
        mean = sum(min(one, length) for one in tokens) / len(tokens)
        if self.ask.sequence_len is None:
            filled = int(per_gpu * mean) // _MULTIPLE * _MULTIPLE
            length = max(length, min(USUAL_LENGTH, filled, self.model.max_position_embeddings))
        held = max(1.0, length / mean)
        return Rows(length=length, a_step=_power_of_two(per_gpu / held) * self.gpus, samples_a_row=held, longer=longer)

    def _covering(self, tokens: Sequence[int]) -> int:
        if not tokens:
            return USUAL_LENGTH
        ordered = sorted(tokens)
        needed = ordered[min(len(ordered) - 1, ceil(COVERED * len(ordered)) - 1)]
        return max(_MULTIPLE, -(-needed // _MULTIPLE) * _MULTIPLE)

    @property
    def samples(self) -> int | None:
        """How many samples there are."""
        return None if self.lengths is None else len(self.lengths.tokens)

    @property
    def held_out(self) -> float:
        """The share of samples to evaluate on."""
        if self.samples is None:
            return _HELD_OUT
        if self.samples < _ENOUGH_TO_HOLD_OUT:
            return 0.0
        return max(0.001, round(min(_HELD_OUT, _MOST_HELD_OUT / self.samples), 3))

    @property
    def epochs(self) -> int:
        """Passes over the data."""
        few = self.samples is not None and self.samples < _FEW
        return self.ask.epochs or (_PASSES if few else 1)

    def precision(self, method: str) -> Precision:
        """Return the compute dtype; without bf16, full fine-tuning needs fp32."""
        if self.gpu.bf16:
            return "bf16"
        return "fp32" if method == "full" else "fp16"

    def start(self, method: str, *, packed: bool, attention: str | None) -> Start:
        """Return the starting config of a method, from which a search begins."""
        rows = self.rows(packed=packed)
        adapter = None if method == "full" else method
        rates = _PREFERENCE_RATES if self.format == "pairs" else _RATES
        wishes = Wishes(
            model=self.ask.model,
            adapter=adapter,
            rank=self.ask.rank if adapter else None,
            sequence_len=rows.length,
            micro_batch=1,
            accumulation=rows.a_step // self.gpus,
            optimizer="adamw_torch_fused",
            checkpointing=True,
            attention=attention,
            packing=packed if self.packs else None,
            eval_batch=1 if self.held_out else None,
        )
        return Start(
            wishes=wishes,
            source=self.source,
            held_out=self.held_out,
            epochs=self.epochs,
            learning_rate=rates[adapter],
            precision=self.precision(method),
            gpus=self.gpus,
            script=self.script,
            output_dir=f"./outputs/{self.ask.model.rstrip('/').rpartition('/')[2]}-{self._kind}{method}",
        )


def _power_of_two(number: float) -> int:
    """Return the nearest power of two, at least 1, so that it divides evenly into micro-batches."""
    power = 1
    while power * 2**0.5 < number:
        power *= 2
    return power


@dataclass(frozen=True, slots=True, kw_only=True)
class Better:
    """A better method that does not fit: the memory it needs, how much is missing, and the smallest card for it."""

    method: str
    needs_bytes: int
    short_bytes: int
    card: GpuSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class New:
    """A new config. `text` is "" if nothing fits; then `closest` and `smaller_model` say what comes closest.

    `subject` is the config as read from its text. `better`: the next better method, which does not fit. `findings`:
    what `check` finds in it. `companions`: further files that it needs, by path. `requirements`: what else must be true
    for it to start and is not known here. `closest`: the method that misses by least. `smaller_model`: a model of the
    same family that fits. `proof_bytes`: what the weights alone need with the leanest method, if that proves that
    nothing fits; otherwise 0, after `tries` predictions.
    """

    plan: Plan
    method: str
    subject: Subject
    prediction: Prediction
    text: str = ""
    script: bool = False
    packed: bool = False
    speed: Speed | None = None
    duration: Duration | None = None
    launch: str = ""
    companions: Mapping[str, str] = field(default_factory=dict)
    requirements: Sequence[str] = ()
    better: Better | None = None
    findings: Sequence[Finding] = ()
    closest: Better | None = None
    smaller_model: str = ""
    proof_bytes: int = 0
    tries: int = 0

    @property
    def fits(self) -> bool:
        """Whether there is a config that is predicted to fit."""
        return bool(self.text)

    @property
    def only_stops(self) -> bool:
        """Whether the closest result would fit but the trainer refuses it."""
        return self.closest is not None and not self.closest.short_bytes and bool(self.subject.stops)
