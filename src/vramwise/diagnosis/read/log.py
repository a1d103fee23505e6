"""Turn a log into facts: what failed, where in the run, on which rank, and which settings the log shows.

Streamed: memory does not grow with the log. A failure that the run recovered from (training went on for two steps or
more) is kept apart from one that ended it. Causes are not decided here.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import replace
from typing import BinaryIO, cast

from vramwise.diagnosis.evidence import Frame, LogFacts, PhaseName, Quote, Setting, Symptom
from vramwise.diagnosis.read.oom_figures import read_memory_text, read_told_figures
from vramwise.diagnosis.read.phases import Place, place_of, stages
from vramwise.diagnosis.read.prefixes import split_rank, unboxed, unlogged, unquoted
from vramwise.diagnosis.read.progress import BAR_WORDS, FIGURE_WORDS, Progress
from vramwise.diagnosis.read.prose import Beginning, Prose, names_memory, read_prose
from vramwise.diagnosis.read.reported import FAILURES, Found, announced, mentioned, reported
from vramwise.diagnosis.read.settings_texts import SETTING_WORDS, read_settings, telling_keys
from vramwise.diagnosis.read.speakers import TRAINER_WORDS, named_libraries, named_trainers, shows_training_loop
from vramwise.diagnosis.read.stream import RawLine, Totals, Words, interesting_lines
from vramwise.diagnosis.read.tracebacks import CALL_WORDS, calls_on, code_above, may_name_call
from vramwise.units import whole_number

# Each text of the tables contains one of these or follows an exception's name; fewer words search faster.
_FAILURE_WORDS = (
    *(b"Error", b"rror:", b"Exception", b"Interrupt", b"OutOf", b"ut of memory", b"Out Of Memory", b"OUT_OF_MEMORY"),
    *(b"_FAILED", b"NCCL WARN", b"Failed to CUDA", b"exitcode", b"xit code", b"exit status", b"exits with", b"SIGKILL"),
    *(b"Kill", b"killed", b"oom-kill", b"oom_kill", b"TERM_MEMLIMIT", b"insufficient shared", b" metadata: {"),
    *(b"divisible by", b"undo_layout(", b"dispatched on the CPU", b"terminate called", b"Segmentation fault"),
    *(
        b"Watchdog caught",
        b"watchdog got stuck",
        b"transport/shm",
        b"_dynamo hit",
        b"flex_attention called",
        b"closing signal SIG",
        b"failed with OOM",
        b"warming up sampler",
        b"available RAM",
        b"than is available",
        b"ray-oom-",
    ),
    *(
        b"RAY_memory",
        b"emory cgroup",
        b"emory limit",
        b"signal 9",
        b"TIME LIMIT",
        b"LimitHit",
        b"_dynamo.exc",
        b"Timeout:",
        b"unrecognized arg",
        b"invalid choice",
    ),
)
_MARK_WORDS = (
    b"*****",
    b"Loading checkpoint",
    b"eval_loss",
    b"train_runtime",
    b"aving",
    b"esuming",
    b"Continuing training",
)
WORDS = Words(
    failures=_FAILURE_WORDS,
    marks=(*CALL_WORDS, *_MARK_WORDS, *SETTING_WORDS),
    sampled=(*BAR_WORDS, *FIGURE_WORDS, *TRAINER_WORDS),
    precise=tuple(dict.fromkeys(text.word.encode() for text in FAILURES)),
)

_RESUMED = re.compile(r"(?i)(?:resuming (?:training )?|continuing training )from (?:checkpoint|global step)")
_SAVING = re.compile(r"\bSaving\b.{0,200}(?:checkpoint|model)|(?i:\b(?:for|now) saving\b)")
# A progress bar without a line end.
_BAR = re.compile(r"^.{0,400}\d/\d{1,9} \[[^\]]{0,80}\]")
_MOST_FRAMES = 200
_MOST_SYMPTOMS = 64
_MOST_MENTIONS = 8
_LONGEST_QUOTE = 600
_AFTER = ("aftermath", "nccl-timeout", "launcher-kill")
_OF_MEMORY = ("cuda-oom", "cuda-oom-warning", "fsdp-clone-oom")
_TELLS_LITTLE = ("exception", *_AFTER)
# Failures whose text says where they happened.
_STAGES = {
    "fsdp-clone-oom": Place("save", "save-gather"),
    "bnb-8bit-save": Place("save", "save-gather"),
    "vllm-cumem": Place("", "vllm-wake"),
    "vllm-share": Place("load", "vllm-start"),
    "vllm-cache": Place("load", "vllm-cache"),
}
# A signal of compiled code, which the kernel does not send for lack of memory.
_CRASHED = re.compile(r"code\)?\s{0,4}[:=]\s{0,4}-(?:11|6|4)\b")
# Warnings of settings; in a run that goes on they are none of its failures.
_WARNINGS = ("exception", "flex-uncompiled")
# Texts that belong to a failure reported before them.
_PART_OF = {"recompute-metadata": "recompute-differs", "saved-metadata": "recompute-differs"}


def read_log(stream: BinaryIO, name: str) -> LogFacts:
    """Read a log to its end and return its facts."""
    reader = _LogReader()
    totals = Totals()
    begun = Beginning(stream)
    for line in interesting_lines(cast(BinaryIO, begun), WORDS, totals):
        reader.line(line)
    return reader.facts(name, totals, read_prose(begun.text()))


def _completed(symptom: Symptom, prose: Prose) -> Symptom:
    """Return the symptom with the moment that a person's sentence names, if the log does not show it."""
    told, stage = prose.symptom, prose.stage
    if symptom.stage not in ("", "train") or symptom.kind in _TELLS_LITTLE:
        return symptom
    if told is not None:
        symptom = replace(symptom, step=told.step if symptom.step is None else symptom.step)
        if told.kind.startswith("host-") == symptom.kind.startswith("host-"):
            stage = told.stage or stage
    if not stage:
        return symptom
    phase = stages()[stage].phase
    return replace(symptom, stage=stage, phase=cast(PhaseName, "" if phase == "-" else phase))


def _tells(frames: tuple[Frame, ...]) -> int:
    """Return how much the calls of a traceback say of its place in the run."""
    place = place_of(frames)
    return (place.stage not in ("", "train")) + bool(place.inner)


class _LogReader:
    """Accumulates the facts line by line."""

    def __init__(self) -> None:
        self.progress = Progress()
        self.settings: dict[str, Setting] = {}
        self.keys_written: set[str] = set()
        self.trainers: set[str] = set()
        self.libraries: set[str] = set()
        self.training_loop = False
        self.symptoms: list[Symptom] = []
        self.recovered: list[Symptom] = []
        self.ranks: set[int] = set()
        self.mentions: list[tuple[Symptom, int | None]] = []  # with the steps done before
        self.finished = False
        self.dropped = 0
        self._frames: dict[int | None, deque[Frame]] = {}
        self._failed_at: int | None = None  # steps done at the first failure
        self._lowest_since: int | None = None
        self._announced: tuple[Found, RawLine, int | None, str] | None = None

    def line(self, raw: RawLine) -> None:
        """Process one line."""
        rank, text = split_rank(raw.text)
        if rank is not None and len(self.ranks) < 4096:
            self.ranks.add(rank)
        self.trainers.update(named_trainers(text))
        self.libraries.update(named_libraries(text))
        self.training_loop = self.training_loop or shows_training_loop(text)
        self._progress(raw.number, text)
        if raw.sampled or self._frame(rank, text, raw):
            return
        self._settings(raw.number, text)
        # A trailing blank is part of a message that a terminal wrapped here.
        blank = " " if text.endswith(" ") else ""
        self._failure(raw, rank, unquoted(unboxed(_BAR.sub("", text) if "%|" in text else text)) + blank)

    def facts(self, name: str, totals: Totals, prose: Prose) -> LogFacts:
        """Return everything, at the end of the log."""
        if self._announced is not None and not self.symptoms:
            found, raw, rank, text = self._announced
            self.symptoms.append(self._symptom(found, raw, rank, text))
        self._add_calls()
        symptoms = self.symptoms
        if not any(symptom.kind not in _AFTER or _CRASHED.search(symptom.quote.text) for symptom in symptoms):
            symptoms = self._unreported(prose) or symptoms
        return LogFacts(
            name=name,
            lines=totals.lines,
            size_bytes=totals.size_bytes,
            symptoms=tuple(_completed(one, prose) for one in symptoms),
            recovered=tuple(self.recovered),
            ranks=frozenset(self.ranks),
            settings=self.settings,
            keys_written=frozenset(self.keys_written),
            trainers=frozenset(self.trainers),
            libraries=frozenset(self.libraries),
            training_loop=self.training_loop,
            steps_done=self.progress.steps_done,
            total_steps=self.progress.total_steps,
            memory=self.progress.readings.all(),
            dropped=self.dropped,
            stated=prose.stated,
            setup=prose.setup,
            platform=prose.platform,
            finished=self.finished,
        )

    def _add_calls(self) -> None:
        """Give calls that follow their message, or come without one, to the first failure that has none."""
        left = [(rank, tuple(frames)) for rank, frames in self._frames.items() if frames]
        first = self.symptoms[0] if self.symptoms else None
        if not left or first is None or _tells(first.frames) or first.kind in _TELLS_LITTLE:
            return
        _, frames = max(left, key=lambda one: (_tells(one[1]), one[0] == first.rank))
        if _tells(frames):
            self.symptoms[0] = self._placed(first, (*frames, *first.frames))

    def _placed(self, symptom: Symptom, frames: tuple[Frame, ...]) -> Symptom:
        place = self._place(symptom.kind, frames)
        return replace(symptom, frames=frames, phase=place.phase, stage=place.stage, inner=place.inner)

    def _unreported(self, prose: Prose) -> list[Symptom]:
        """Return the failure that a text without a report of one still shows.

        That is one that a sentence names, one that a person states, or a traceback whose end was cut off. A run that
        went on, or that ended well, has none.
        """
        went_on = self.finished or self.progress.steps_done is not None
        mentioned = [
            one
            for one, done in self.mentions
            if done == self.progress.steps_done and not (went_on and one.kind in _WARNINGS)
        ]
        left = [tuple(frames) for frames in self._frames.values() if frames]
        frames = max(left, key=_tells, default=())
        stated = prose.symptom
        ended = self.finished and (stated is None or stated.phase not in ("save", "eval"))
        if self.recovered or ended:
            return []
        if mentioned and not (stated is not None and stated.kind.startswith("host-")):
            first = mentioned[0]
            return [first if first.frames or not frames else self._placed(first, frames)]
        if stated is not None:
            steps = self.progress.steps_done
            step = stated.step or (None if steps is None else steps + 1)
            if _tells(frames) or not stated.stage:
                stated = self._placed(stated, frames)
            return [replace(stated, step=step, resumed=self.progress.resumed_at is not None)]
        grows = prose.stated.grows_steadily or prose.stated.grows_at_save
        if grows is not None and not frames and not self.symptoms and self.progress.steps_done is None:
            return [Symptom(kind="growth", quote=grows, told=True)]
        if not frames or self.symptoms:
            return []
        last = frames[-1]
        cut = Symptom(
            kind="cuda-oom" if _tells(frames) else "aftermath", quote=Quote(0, f"{last.file} in {last.function}")
        )
        return [replace(self._placed(cut, frames), cut=bool(_tells(frames)))]

    def _frame(self, rank: int | None, text: str, raw: RawLine) -> bool:
        if "Traceback (most recent call last)" in text:
            self._frames[rank] = deque(maxlen=_MOST_FRAMES)
            if header := announced(text):
                self._announced = (header, raw, rank, text)
            return True
        # The text that follows is only read if needed: it is the most expensive part.
        frames = calls_on(text, raw.following) if may_name_call(text) else []
        if not frames:
            return False
        if len(self._frames) < 4096:
            self._frames.setdefault(rank, deque(maxlen=_MOST_FRAMES)).extend(frames)
        return len(frames) == 1  # a list of calls may end with what they failed with

    def _progress(self, number: int, text: str) -> None:
        progress = self.progress
        if "it/s" in text or "s/it" in text:
            progress.bar(text)
            self._notice_recovery()
        if "emory" in text or "mem" in text:
            progress.figures(number, text)
        if "train_runtime" in text:
            self.finished = True
        if "***** Running Eval" in text or "***** Running Prediction" in text:
            progress.enter_eval()
        elif "eval_loss" in text and "{" in text:
            progress.eval_done()
        elif "aving" in text and "%|" not in text and _SAVING.search(text):
            progress.saved()
        elif ("esuming" in text or "ontinuing" in text) and _RESUMED.search(text):
            progress.resumed_at = number
        elif "Loading checkpoint shards" in text and "100%" not in text:
            progress.loading = True

    def _notice_recovery(self) -> None:
        """Move symptoms to `recovered` once training has gone two steps past the failure, or past its restart."""
        now = self.progress.steps_done
        if not self.symptoms or now is None or self.progress.in_eval:
            return
        if self._lowest_since is None or now < self._lowest_since:
            self._lowest_since = now
        start = self._lowest_since if self._failed_at is None else min(self._failed_at, self._lowest_since)
        if now >= start + 2:
            self.recovered = (self.recovered + self.symptoms)[:_MOST_SYMPTOMS]
            self.symptoms = []
            self._failed_at = self._lowest_since = None

    def _settings(self, number: int, text: str) -> None:
        self.keys_written.update(telling_keys(text))
        for key, value in read_settings(text):
            count = whole_number(value)
            if key not in self.settings or (key == "eval_batch_size" and count is not None):
                self.settings[key] = Setting(value, number)
            if key == "max_steps" and count is not None:
                self.progress.announced_total = count

    def _failure(self, raw: RawLine, rank: int | None, text: str) -> None:
        # The text that follows is only read if needed, as for calls.
        found = reported(text, lambda: raw.following)
        if found is None:
            bare = unlogged(text)
            found, text = (reported(bare, lambda: raw.following), bare) if bare != text else (None, text)
        if found is None:
            self._mention(raw, rank, text)
            return
        if found.kind == "exception" and names_memory(text):  # misspelt, or in words that nobody listed
            found = Found("cuda-oom", 0, {})
        if found.kind in _PART_OF and self._add_details(found):
            return
        self._announced = None
        if len(self.symptoms) >= _MOST_SYMPTOMS and not self._makes_room(found):
            self.dropped += 1
            return
        if not self.symptoms:
            self._failed_at, self._lowest_since = self.progress.steps_done, None
        self.symptoms.append(self._symptom(found, raw, rank, text))

    def _mention(self, raw: RawLine, rank: int | None, text: str) -> None:
        """Keep a failure that a sentence or a quotation names, in case the log reports none."""
        if raw.number == 1:
            text = text.removeprefix("# ")  # the title of an issue
        found = mentioned(text) if len(self.mentions) < _MOST_MENTIONS else None
        if found is not None:
            self.mentions.append((self._symptom(found, raw, rank, text), self.progress.steps_done))

    def _makes_room(self, found: Found) -> bool:
        """Whether a symptom beyond the limit is kept: an informative one replaces an uninformative one."""
        if found.kind == "auto-batch-exhausted":
            return True
        if found.kind in _TELLS_LITTLE:
            return False
        for at in range(len(self.symptoms) - 1, 0, -1):
            if self.symptoms[at].kind in _TELLS_LITTLE:
                del self.symptoms[at]
                self.dropped += 1
                return True
        return False

    def _symptom(self, found: Found, raw: RawLine, rank: int | None, text: str) -> Symptom:
        memory = None
        if found.kind in _OF_MEMORY:
            memory = read_memory_text(text[min(found.start, len(text)) :], raw.following)
            if memory.requested_bytes is None:
                memory = read_told_figures(text) or memory
        frames = tuple(self._frames.pop(rank, ()) or (self._frames.pop(None, ()) if rank is not None else ()))
        if not frames and found.kind in _OF_MEMORY:
            frames = frames if not _tells(above := code_above(raw.preceding)) else above
        progress = self.progress
        place = self._place(found.kind, frames)
        return Symptom(
            kind=found.kind,
            quote=Quote(raw.number, text.strip()[:_LONGEST_QUOTE]),
            rank=rank,
            memory=memory,
            frames=frames,
            details=found.details,
            phase=place.phase,
            stage="vllm-sampler" if "sampled" in found.details else place.stage,
            inner=place.inner,
            step=None if progress.steps_done is None else progress.steps_done + 1,
            after="eval" if progress.after == "eval" else "save" if progress.after == "save" else "",
            resumed=progress.resumed_at is not None,
            first_eval=progress.evals_done == 0,
        )

    def _place(self, kind: str, frames: tuple[Frame, ...]) -> Place:
        """Return where in the run it happened: by the traceback, otherwise by the log's progress."""
        if kind in _STAGES:
            return _STAGES[kind]
        place = place_of(frames)
        phase = place.phase or self._phase()
        return place._replace(phase=phase, stage=place.stage or phase)

    def _phase(self) -> PhaseName:
        progress = self.progress
        if progress.in_eval:
            return "eval"
        if progress.in_save:
            return "save"
        if progress.loading and progress.steps_done is None:
            return "load"
        return "train" if progress.steps_done is not None else ""

    def _add_details(self, found: Found) -> bool:
        """Add shapes and dtypes to the checkpointing message they belong to; return whether that was done."""
        for at in range(len(self.symptoms) - 1, -1, -1):
            symptom = self.symptoms[at]
            if symptom.kind == _PART_OF[found.kind]:
                prefix = "saved" if found.kind == "saved-metadata" else "recomputed"
                added = {f"{prefix}_{name}": value for name, value in found.details.items()}
                self.symptoms[at] = replace(symptom, details={**added, **symptom.details})
                return True
        return found.kind == "saved-metadata"
