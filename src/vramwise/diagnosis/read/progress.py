"""How far the run had come: progress bars, logged figures, and what trainers print around evals and checkpoints.

Progress bars are tqdm's. The training bar is the one with the trainer's number of steps, or else the first unnamed bar;
an unnamed bar with another total is taken for evaluation. Bars over datasets (examples/s) are ignored.
"""

from __future__ import annotations

import re

from vramwise.diagnosis.evidence import Reading
from vramwise.units import GIB, MIB

BAR_WORDS = (b"it/s", b"s/it")
FIGURE_WORDS = (b"memory/", b"memory(", b"max_memory", b"gpu_mem", b"mem_alloc")

_BAR = re.compile(r"(?:^|[\r\n\]:])\s{0,4}(\d{1,3})%\|[^|]{0,200}\|\s{0,4}(\d{1,9})/(\d{1,9}) \[")
_NAMED_BAR = re.compile(r"([A-Za-z][\w ()\-/#=]{1,60}):\s{1,4}\d{1,3}%\|[^|]{0,200}\|\s{0,4}(\d{1,9})/(\d{1,9}) \[")
_TRAINING_BAR = re.compile(r"(?i)^(?:train(?:ing)?|epoch\b.*|steps?)$")
_EVAL_BAR = re.compile(r"(?i)^(?:eval(?:uat\w+)?|val(?:idat\w+)?|predict\w*)$")
_STEP = re.compile(r"(?i)['\"]?\b(?:global_)?step['\"]?\s{0,2}[:=]\s{0,2}(\d{1,9})\b")
# Memory figures in a logged line. Current figures tell more than peaks, so they come first.
_FIGURES = tuple(
    re.compile(pattern)
    for pattern in (
        r"memory/(?:active|allocated) ?\((GiB|MiB)\)['\"]?\s?[:=]\s?['\"]?(\d{1,6}(?:\.\d{1,8})?)",
        r"['\"]memory\((GiB|MiB)\)['\"]\s?:\s?['\"]?(\d{1,6}(?:\.\d{1,8})?)",
        r"(?:memory/)?max_(?:mem_)?(?:allocated|active|memory_allocated|memory) ?\(?(gib|mib|GiB|MiB)?\)?['\"]?\s?[:=]"
        r"\s?['\"]?(\d{1,6}(?:\.\d{1,8})?)",
        r"(?:gpu_mem|mem_alloc)\w{0,20} ?\(?(GiB|MiB|gib|mib)?\)?['\"]?\s?[:=]\s?['\"]?(\d{1,6}(?:\.\d{1,8})?)",
    )
)
_MOST_READINGS = 512
# How many bars to examine at either end of a line, and how many characters before `%|` (a name, a percentage) and after
# it.
_MOST_BARS = 4
_BEFORE_BAR = 72
_BEHIND_BAR = 240


class Progress:
    """The state of a run, updated line by line from its log."""

    def __init__(self) -> None:
        self.steps_done: int | None = None
        self.total_steps: int | None = None
        self.announced_total: int | None = None
        self.in_eval = False
        self.evals_done = 0
        self.after = ""  # "eval" or "save": no step was completed since
        self.loading = False
        self.in_save = False
        self._saving_announced = False
        self._saving_total: int | None = None
        self.resumed_at: int | None = None
        self.readings = Readings()
        self._lines_logged = 0

    def bar(self, text: str) -> None:
        """Process a line with progress bars: a named bar, or else the last one, counts."""
        last = None
        for start, stop in _around_bars(text):
            named = _NAMED_BAR.search(text, start, stop)
            if named:
                self._named_bar(named[1].strip(), int(named[2]), int(named[3]))
                return
            bars = _BAR.findall(text, start, stop)
            last = bars[-1] if bars else last
        if last:
            self._unnamed_bar(int(last[1]), int(last[2]))

    def _named_bar(self, name: str, done: int, total: int) -> None:
        if _EVAL_BAR.match(name):
            self.enter_eval()
        elif _TRAINING_BAR.match(name):
            self._advance(done, total)
        elif name.lower().startswith(("loading", "fetching", "downloading")):
            self.loading = done < total
        elif name.lower().startswith(("saving", "writing")):
            self.in_save = done < total

    def _unnamed_bar(self, done: int, total: int) -> None:
        known = self.announced_total or self.total_steps
        if total != known and self._counts_saving(done, total):
            return
        if known is not None and total != known:
            self.enter_eval()
        else:
            self._advance(done, total)

    def _counts_saving(self, done: int, total: int) -> bool:
        """Whether this bar counts written files.

        That is the first bar after saving was announced, and those with the same total.
        """
        if self._saving_announced and self._saving_total is None:
            self._saving_total = total
        if total != self._saving_total:
            return False
        self.in_save, self.after = done < total, "save"
        return True

    def _advance(self, done: int, total: int) -> None:
        before = self.steps_done
        self.steps_done, self.total_steps = done, total
        self.loading = False
        if before is not None and done > before:
            self.in_eval, self.after = False, ""
            self.in_save, self._saving_announced, self._saving_total = False, False, None

    def enter_eval(self) -> None:
        """Note that an evaluation is running."""
        self.in_eval, self.after = True, "eval"

    def eval_done(self) -> None:
        """Note that an evaluation reported its result."""
        self.evals_done += 1
        self.in_eval, self.after = False, "eval"

    def saved(self) -> None:
        """Note that a checkpoint is being saved."""
        self.after = "save"
        self._saving_announced = True

    def figures(self, number: int, text: str) -> None:
        """Record the memory figure on a line, if there is one."""
        for pattern in _FIGURES:
            match = pattern.search(text)
            if match:
                unit = MIB if (match[1] or "").lower() == "mib" else GIB
                size = float(match[2]) * unit
                if size < 1 << 44:  # larger: plain bytes, or not a memory figure at all
                    self._lines_logged += 1
                    step = _STEP.search(text)
                    self.readings.add(Reading(int(step[1]) if step else self._lines_logged, int(size), number))
                return


def _around_bars(text: str) -> list[tuple[int, int]]:
    """Return the parts of a line that may hold a bar; if there are many, only the first and last ones."""
    starts = []
    at = text.find("%|")
    while at >= 0:
        starts.append(at)
        at = text.find("%|", at + 2)
    if len(starts) > 2 * _MOST_BARS:
        starts = starts[:_MOST_BARS] + starts[-_MOST_BARS:]
    return [(max(0, at - _BEFORE_BAR), at + _BEHIND_BAR) for at in starts]


class Readings:
    """A series in bounded memory: when full, every other reading is dropped and the sampling interval doubles."""

    def __init__(self) -> None:
        self._kept: list[Reading] = []
        self._stride = 1
        self._seen = 0
        self._last: Reading | None = None

    def add(self, reading: Reading) -> None:
        """Add a reading, if it is due."""
        self._last = reading
        if self._seen % self._stride == 0:
            self._kept.append(reading)
            if len(self._kept) >= _MOST_READINGS:
                self._kept = self._kept[::2]
                self._stride *= 2
        self._seen += 1

    def all(self) -> tuple[Reading, ...]:
        """Return the kept readings and the last one."""
        kept = self._kept
        if self._last is not None and (not kept or kept[-1] != self._last):
            kept = [*kept, self._last]
        return tuple(kept)
