"""What a person says in words: the failure, when it came, what was tried, and the run.

Issue threads, one-line titles and forum posts describe a failure instead of showing its message, in English or Chinese,
with typos. Only sentences count: lines that a program printed are read elsewhere. Advice ("if you run out of memory")
is no report. Nothing here is as certain as a printed message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO, cast

from vramwise.diagnosis.evidence import (
    MemoryText,
    PhaseName,
    PlatformName,
    Quote,
    Setup,
    StageName,
    Stated,
    Symptom,
)
from vramwise.diagnosis.read.oom_figures import read_told_figures
from vramwise.diagnosis.read.phases import stages
from vramwise.diagnosis.read.prefixes import split_rank
from vramwise.diagnosis.read.said import said
from vramwise.diagnosis.read.told_setup import read_setup
from vramwise.units import GIB

# A longer text is a log: nobody writes so much about a failure.
_MOST_BYTES = 1 << 17
_LONGEST_SENTENCE = 500
_LONGEST_SETUP = 1 << 15
_MOST_SENTENCES = 2000

_ENDS = re.compile(r"(?<=[.!?;])\s+|[。！？；]|\s(?=[-*•]\s)")
# Lines that a program printed, and code: not sentences.
_PRINTED = re.compile(
    r"""^\s*(?:File\s["/~]|\{['"]|\d{1,3}%|at\s0x|frame\s\#|import\s|from\s\w+\simport|def\s|class\s
    |Traceback|\w+\s=\s\S|self\.|return\b|raise\b|[│╭╰❱]|-{2,}>|\^{2,}|~{2,}|(?:INFO|WARNING|DEBUG|ERROR)\b|\#\s?%%|!pip)
    |^\s*["'\-]{0,2}[a-z]\w{0,40}_\w{1,40}["']?\s?[=:]\s?\S{1,80}\s*$|^[\w\s]{1,60}\s=\s[\d,.]+\s*$|\d%\||it/s\]|s/it\]""",
    re.VERBOSE,
)
# Words that mean host memory beside the GPU's, too; the Chinese word alone is said of both.
_HOST = re.compile(
    r"(?i)\b(?:cpu|host|system|main)[ -]?(?:ram|memory)|主机内存|系统内存|all available ram|cpu ?内存|内存 ?oom"
)
_SURELY_HOST = re.compile(rf"(?i)\bram\b|{_HOST.pattern[4:]}")
_FAILED, _STATED, _CHANGES = said("failed"), said("stated"), said("changes")
_WHEN = cast(dict[StageName, re.Pattern[str]], said("when"))
_PLATFORMS = cast(dict[PlatformName, re.Pattern[str]], said("platforms"))
_WORDS = said("words")
_ADVICE, _NOT, _TROUBLE, _TRIED = (_WORDS[name] for name in ("advice", "not", "trouble", "tried"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prose:
    """What the sentences of a text say. `symptom`: the failure that they report."""

    symptom: Symptom | None = None
    stage: StageName = ""  # when "the error" happened
    stated: Stated = field(default_factory=Stated)
    setup: Setup = field(default_factory=Setup)
    platform: PlatformName = ""


class Beginning:
    """A stream whose first bytes are kept while it is read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._kept: list[bytes] = []
        self._size = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes of the stream."""
        data = self._stream.read(size)
        if self._size <= _MOST_BYTES:
            self._kept.append(data)
            self._size += len(data)
        return data

    def text(self) -> str:
        """Return what was read; "" if it is too long for a person's words."""
        if self._size > _MOST_BYTES:
            return ""
        whole = b"".join(self._kept)
        return whole.decode("utf-16" if whole[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8", "replace")


def read_prose(text: str) -> Prose:
    """Return what the sentences of a text say."""
    sentences = list(_sentences(text))
    if not text.strip():
        return Prose()
    reports = [(kind, quote) for quote in sentences if (kind := _failed(quote.text))]
    stated = _stated(sentences)
    setup = read_setup(text[:_LONGEST_SETUP])
    # What works is not what failed.
    if stated.works_with_shorter_rows is not None:
        setup = replace(setup, sequence_len=None)
    if stated.works_with_smaller_batch is not None:
        setup = replace(setup, micro_batch=None)
    return Prose(
        symptom=_symptom(reports, sentences, text),
        stage=_when_it_happened(sentences),
        stated=stated,
        setup=setup,
        platform=next((name for name, pattern in _PLATFORMS.items() if pattern.search(text)), ""),
    )


def _sentences(text: str) -> Iterator[Quote]:
    count = 0
    for number, line in enumerate(text.splitlines(), 1):
        said_by = split_rank(line)[1]
        if not said_by.strip() or _PRINTED.search(said_by[:_LONGEST_SENTENCE]):
            continue
        for part in _ENDS.split(said_by[: 8 * _LONGEST_SENTENCE]):
            if part and part.strip():
                yield Quote(number, part.strip()[:_LONGEST_SENTENCE])
                count += 1
        if count >= _MOST_SENTENCES:
            return


def _failed(sentence: str) -> str:
    """Return the kind of failure that a sentence reports; "" if it reports none."""
    if _ADVICE.search(sentence):
        return ""
    trouble = _TROUBLE.search(sentence) is not None
    for kind, pattern in _FAILED.items():
        match = pattern.search(sentence)
        if match is None or _NOT.search(sentence, 0, match.start()):
            continue
        if kind in ("host-told", "host-shared-memory") and not trouble:
            continue
        if kind == "host-told" and _WORDS["gpu"].search(sentence) and not _HOST.search(sentence):
            continue
        return kind
    return ""


def names_memory(text: str) -> bool:
    """Whether a message says that memory ran out, in whatever spelling."""
    return _FAILED["cuda-oom"].search(text[:_LONGEST_SENTENCE]) is not None


def _symptom(reports: list[tuple[str, Quote]], sentences: list[Quote], text: str) -> Symptom | None:
    """Return the failure that the sentences report: of host memory, if any says so, otherwise the first."""
    if not reports:
        return None
    if any(kind == "cuda-oom" for kind, _ in reports):
        reports = [one for one in reports if one[0] != "host-told" or _SURELY_HOST.search(one[1].text)] or reports
    kind, quote = next((one for one in reports if one[0].startswith("host-")), reports[0])
    memory: MemoryText | None = read_told_figures(text) if kind == "cuda-oom" else None
    lines = {one.line for of, one in reports if of == kind}
    beside = [one for of, one in reports if of == kind] + [one for one in sentences if one.line in lines]
    stages_said = [when for one in beside if (when := _when(one.text))]
    stage: StageName = stages_said[0] if stages_said else ""
    phase = stages()[stage].phase if stage else ""
    at = next((match for one in beside if (match := _WORDS["step"].search(one.text))), None)
    step = None if at is None else int(next(filter(None, at.groups())))
    return Symptom(
        kind=kind,
        quote=quote,
        memory=memory,
        told=True,
        stage=stage,
        phase=cast(PhaseName, "" if phase == "-" else phase),
        step=step,
    )


def _when(sentence: str) -> StageName:
    """Return the stage that a sentence names; "" if it tells what makes memory grow."""
    if _STATED["grows_at_save"].search(sentence):
        return ""
    bare = _WORDS["not-when"].sub("", sentence)
    return next((stage for stage, pattern in _WHEN.items() if pattern.search(bare)), "")


def _when_it_happened(sentences: list[Quote]) -> StageName:
    """Return the stage of the first sentence that says when an error came."""
    happened = _WORDS["happened"]
    for quote in sentences:
        if happened.search(quote.text) and not _ADVICE.search(quote.text) and (stage := _when(quote.text)):
            return stage
    return ""


def _stated(sentences: list[Quote]) -> Stated:
    found: dict[str, Quote] = {}
    tried: dict[str, Quote] = {}
    host_bytes = None
    for quote in sentences:
        text = quote.text
        for name, pattern in _STATED.items():
            if name not in found and (match := pattern.search(text)) and not _NOT.search(text, 0, match.start()):
                found[name] = quote
        if _FAILED["host-told"].search(text) and _TROUBLE.search(text):
            found.setdefault("host_memory", quote)
        if host_bytes is None and (size := _WORDS["host-size"].search(text)):
            number, unit = [group for group in size.groups() if group is not None][:2]
            host_bytes = int(float(number) * GIB * (1024 if unit.upper() == "T" else 1))
        if _TRIED.search(text):
            tried.update(
                (name, quote) for name, pattern in _CHANGES.items() if name not in tried and pattern.search(text)
            )
    return Stated(host_bytes=host_bytes, tried=tried, **found)
