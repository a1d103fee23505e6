"""Which part of a run a traceback comes from, judging by its functions, files and source lines.

`stages.txt` lists the calls of torch, transformers, PEFT, TRL, accelerate, DeepSpeed, Unsloth, bitsandbytes, vLLM and
the trainers; in anybody's own code the words of a function's name decide. The innermost call that is known wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple, cast

from vramwise.bundled import bundled_text
from vramwise.diagnosis.evidence import Frame, PhaseName, StageName


class Stage(NamedTuple):
    """A stage: the coarser part of the run ("-": that of the calls around it), and the words of a first line."""

    phase: str
    words: str


class Place(NamedTuple):
    """Where a traceback comes from; `inner`: what its innermost calls computed."""

    phase: PhaseName = ""
    stage: StageName = ""
    inner: StageName = ""


class _Row(NamedTuple):
    """Calls that show a stage: all given criteria must match."""

    stage: StageName
    file: re.Pattern[str] | None
    functions: frozenset[str]
    code: re.Pattern[str] | None

    def matches(self, frame: Frame) -> bool:
        return (
            (not self.functions or frame.function in self.functions)
            and (self.file is None or self.file.search(frame.file) is not None)
            and (self.code is None or self.code.search(frame.code) is not None)
        )


@cache
def _sections() -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = {}
    for line in bundled_text("stages.txt", __file__).splitlines():
        if line.startswith("## "):
            rows = found[line[3:]] = []
        elif line and not line.startswith("#"):
            rows.append(line.split("\t"))
    return found


@cache
def stages() -> dict[str, Stage]:
    """Return all stages by name."""
    return {name: Stage(phase, words) for name, phase, words in _sections()["stages"]}


def _rows(section: str) -> tuple[_Row, ...]:
    return tuple(
        _Row(
            cast(StageName, stage),
            None if file == "-" else re.compile(file),
            frozenset(() if names == "-" else names.split()),
            None if code == "-" else re.compile(code),
        )
        for stage, file, names, code in _sections()[section]
    )


_PARTS, _MOVES, _WORK = _rows("parts"), _rows("moves"), _rows("work")
_WORDS = [(cast(StageName, stage), words.split()) for stage, words in _sections()["words"]]
_INSTALLED = re.compile(r"(?:site|dist)-packages/|(?:^|/)(?:torch|transformers|accelerate|deepspeed|peft)/")
_CALLED = re.compile(r"(\w{1,80})\(")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MODEL_CALLS = frozenset(
    ("forward", "_call_impl", "_wrapped_call_impl", "__call__", "compute_loss", "model_forward", "new_forward")
)
_EVALUATES = frozenset(("eval", "eval-gather"))
# Work that says more of a step than the part that it belongs to, and work whose place within the step matters less.
_OF_ITS_OWN = ("unshard", "offload", "compile")
_INSIDE = ("vision", "log-probs")
_ZERO_OPTIMIZER = re.compile(r"zero/stage|zero_optimizer")
# The last calls of a traceback, among which its work is looked for.
_INNERMOST = 24


@lru_cache(maxsize=8)
def place_of(frames: tuple[Frame, ...]) -> Place:
    """Return the part of the run a traceback comes from; empty if it does not say."""
    calls = [frame._replace(file=frame.file.replace("\\", "/")) for frame in frames]
    if calls and (called := _CALLED.search(calls[-1].code)):
        calls.append(Frame("", called[1], ""))  # what the last line of a traceback that was cut calls
    at, part = _part(calls)
    inside = calls[at + 1 :]
    if part in ("", "train"):
        part = _outermost(inside, _MOVES) if not _computes(inside) else part
        part = part or _by_words(inside, of_work=False)
    if part in ("", "train") and at < 0:
        part = ""
    elif part == "":
        part = "train"
    work = () if part in _EVALUATES - {"eval"} else inside[-_INNERMOST:] or calls[-1:]
    found = list(dict.fromkeys(_works(work))) or ([word] if (word := _by_words(work, of_work=True)) else [])
    return _place(part, found, calls)


def _place(part: StageName, found: Sequence[StageName], calls: Sequence[Frame]) -> Place:
    """Return the place from a part of the run and the work in it, innermost first."""
    inner: StageName = found[0] if found else ""
    stage = part
    if part == "generate":
        evaluates = any(row.matches(frame) for frame in calls for row in _PARTS if row.stage in _EVALUATES)
        return Place("eval" if evaluates else "forward", part, inner)
    if part in ("", "train", "backward", "recompute") and inner in _OF_ITS_OWN:
        stage = inner
    if part in ("", "train"):
        if not inner and _computes(calls):
            stage = "forward"
        elif inner:
            stage = next((name for name in found if name in _INSIDE), inner)
    phase = stages()[stage].phase if stage else ""
    if stage == "log-probs" and inner not in ("loss", "log-probs"):
        phase = "forward"
    if phase == "-":
        phase = stages()[part].phase if part and stages()[part].phase != "-" else ""
        phase = "forward" if phase in ("", "train") and stage in _OF_ITS_OWN and _computes(calls) else phase
    return Place(cast(PhaseName, phase), stage, inner)


def _part(calls: Sequence[Frame]) -> tuple[int, StageName]:
    """Return the innermost call that names a part of the run, and the part; (-1, "") if none does.

    Loading a checkpoint's state is resuming, whatever it calls; moving a merged model to vLLM is more than merging.
    """
    for at in range(len(calls) - 1, -1, -1):
        part: StageName = next((row.stage for row in _PARTS if row.matches(calls[at])), "")
        if part:
            around = {row.stage for frame in calls[:at] for row in _PARTS if row.matches(frame)}
            for wider, narrower in _WIDER.items():
                if part in narrower and wider in around:
                    return at, wider
            return at, part
    return -1, ""


# Parts that the calls around them explain better.
_WIDER: dict[StageName, frozenset[StageName]] = {
    "resume": frozenset(("load", "to-device", "fsdp-init")),
    "reference": frozenset(("load", "to-device", "zero-init", "fsdp-init")),
    "optimizer-init": frozenset(("optimizer", "zero-init")),
    "weight-sync": frozenset(("merge", "save-gather", "load", "save", "vllm-start")),
    "vllm-wake": frozenset(("load", "generate")),
    "vllm-sampler": frozenset(("generate",)),
    "vllm-cache": frozenset(("generate",)),
    "vllm-profile": frozenset(("generate",)),
    "vllm-start": frozenset(("load", "generate")),
    "eval-gather": frozenset(("unshard",)),
}


def _computes(calls: Sequence[Frame]) -> bool:
    return any(frame.function in _MODEL_CALLS for frame in calls)


def _outermost(calls: Sequence[Frame], rows: Sequence[_Row]) -> StageName:
    return next((row.stage for row in rows for frame in calls if row.matches(frame)), "")


def _works(calls: Sequence[Frame]) -> Iterator[StageName]:
    for frame in reversed(calls):
        stage: StageName = next((row.stage for row in _WORK if row.matches(frame)), "")
        if stage:
            yield stage


def _by_words(calls: Sequence[Frame], *, of_work: bool) -> StageName:
    """Return what the words of the innermost telling function's name say."""
    for frame in reversed([call for call in calls if not _INSTALLED.search(call.file)]):
        name = f"_{_CAMEL.sub('_', frame.function).lower().strip('_')}_"
        for stage, words in _WORDS:
            if (stage in _WORK_NAMES) == of_work and any(f"_{word}_" in name for word in words):
                return stage
    return ""


_WORK_NAMES = frozenset(row.stage for row in _WORK)


def in_loss(frames: tuple[Frame, ...]) -> bool:
    """Whether the innermost calls compute logits or the loss."""
    return place_of(frames).inner in ("loss", "log-probs")


def in_eager_attention(frames: Sequence[Frame]) -> bool:
    """Whether the innermost calls compute eager attention scores."""
    return any(
        "eager_attention" in frame.function
        or (
            "attn_weights" in frame.code and ("matmul" in frame.code or "softmax" in frame.code or "mask" in frame.code)
        )
        for frame in frames[-6:]
    )


def in_zero_optimizer(frames: Sequence[Frame]) -> bool:
    """Whether the calls include DeepSpeed's sharded optimizer."""
    return any(
        "deepspeed" in frame.file.lower() and _ZERO_OPTIMIZER.search(frame.file.replace("\\", "/")) for frame in frames
    )
