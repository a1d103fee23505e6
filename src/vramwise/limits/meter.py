"""The meter of the readers of scripts, notebooks and shell: every result is charged for its size before it is built.

A source of a few lines can describe a text of gigabytes, or a list of as many items. Each evaluator, formatter and
expansion calls `charge` with an upper bound of what it is about to build; a bound that exceeds the value's share makes
the value unknown, and a reading that exceeds its own share ends with one sentence.

The last net under a reading are limits of this process on memory and CPU time, as `child` has for its processes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from vramwise.errors import ConfigError
from vramwise.limits import ceilings

_AGAIN = "reading this source again and again takes too much work"
_active: ContextVar[Meter | None] = ContextVar("_active", default=None)


class TooLarge(Exception):  # noqa: N818 (it reads as what is the matter)
    """One value would exceed its share; the sentence says why it stays unknown."""


class Spent(ConfigError):  # noqa: N818 (it reads as what happened)
    """A reading, or all readings of a command together, would exceed their share."""


@dataclass(slots=True)
class Meter:
    """What the readings of one command have used. `line`: the one that is being evaluated."""

    value_units: int = ceilings.READER_VALUE_UNITS
    value_steps: int = ceilings.READER_VALUE_STEPS
    reading_units: int = ceilings.READER_UNITS
    all_units: int = ceilings.READER_ALL_UNITS
    used: int = 0
    line: int | None = None
    seconds_left: float = ceilings.READER_ALL_CPU_SECONDS
    _steps_left: int = ceilings.READER_VALUE_STEPS
    _units_left: int = ceilings.READER_VALUE_UNITS
    _reading_end: int = 0

    def begin_reading(self) -> None:
        """Start the share of one reading; raises Spent if the command has none left."""
        self.line = None
        self._reading_end = min(self.used + self.reading_units, self.all_units)
        self.begin_value()
        if self.used >= self.all_units or self.seconds_left <= 0:
            raise Spent(_AGAIN)

    def begin_value(self) -> None:
        """Start the share of one value."""
        self._steps_left, self._units_left = self.value_steps, self.value_units

    def charge(self, size: int) -> None:
        """Take units for a result. Raises TooLarge, or Spent if nothing is left for other values either."""
        if size > self._units_left:
            self.work(ceilings.READER_STEP_UNITS)  # trying costs something, too
            raise TooLarge("its result would be too large")
        self._units_left -= size
        self.work(size)

    def step(self, line: int) -> None:
        """Take the units of evaluating one expression."""
        self.line = line
        self.work(ceilings.READER_STEP_UNITS)
        self._steps_left -= 1
        if self._steps_left < 0:
            raise TooLarge("it takes too many steps to compute")

    def work(self, size: int) -> None:
        """Take units of the reading. Raises Spent."""
        self.used += size
        if self.used > self._reading_end:
            again = self._reading_end == self.all_units
            raise Spent(_AGAIN if again else "this source takes too much work to read", line=self.line)


def charge(size: int) -> None:
    """Take units for a result from the meter of the current reading, if there is one."""
    meter = _active.get()
    if meter is not None:
        meter.charge(size)


def work(size: int) -> None:
    """Take units for going through a part of the source, whatever value that is for. Raises Spent."""
    meter = _active.get()
    if meter is not None:
        meter.work(size)


def split_units(characters: int) -> int:
    """Return the units for `shlex.split`: a word takes quadratic time."""
    return 8 * characters + characters * characters // 2000


def current() -> Meter:
    """Return the meter of the current reading, or a new one."""
    meter = _active.get()
    if meter is None:
        meter = Meter()
        meter.begin_reading()
    return meter


@contextmanager
def metered(meter: Meter, what: str) -> Iterator[None]:
    """Count a reading. Whatever goes wrong inside becomes a ConfigError, with the line where it did."""
    token = _active.set(meter)
    try:
        meter.begin_reading()
        with net(meter.seconds_left) as used_seconds:
            try:
                yield
            finally:
                meter.seconds_left -= used_seconds()
    except RecursionError:
        raise ConfigError(f"this {what} is nested too deeply to be read", line=meter.line) from None
    except (TooLarge, Stopped, MemoryError):
        raise Spent(f"this {what} takes too much work to read", line=meter.line) from None
    except (ValueError, OverflowError) as error:  # a UnicodeError is a ValueError
        said = str(error).partition("\n")[0][:200]
        raise ConfigError(f"this {what} cannot be read: {said}", line=meter.line) from None
    finally:
        _active.reset(token)


def measure(value: Any) -> int:
    """Return the characters and leaves of a value, counted until they exceed what a value may have."""
    return _counted(value, 1, 1)


def rendered(value: Any) -> int:
    """Return an upper bound of the length of a value as text, counted in the same way."""
    return len(value) if isinstance(value, str) else _counted(value, 10, 30)  # 10: of `\\U000e0001`


def _counted(value: Any, character: int, leaf: int) -> int:
    if isinstance(value, str):
        return leaf + character * len(value)
    if value is None or isinstance(value, bool | float):
        return leaf
    waiting, found = [value], 0
    while waiting and found <= ceilings.READER_VALUE_UNITS:
        one = waiting.pop()
        found += leaf
        if isinstance(one, str | bytes):
            found += character * len(one)
        elif isinstance(one, int):
            found += one.bit_length() * character // 30
        elif isinstance(one, list | tuple | set | frozenset):
            found += len(one)
            waiting.extend(one if len(one) <= ceilings.READER_VALUE_UNITS else ())
        elif isinstance(one, Mapping):
            found += len(one)
            waiting.extend(one)
            waiting.extend(one.values())
    return found


class Stopped(BaseException):
    """The CPU time is over. No Exception: what handles those must not handle this one."""


@contextmanager
def net(seconds: float) -> Iterator[Callable[[], float]]:
    """Raise Stopped or MemoryError if the block takes too much, where the system can. Yields its CPU time so far."""
    started = time.process_time()
    # The limits belong to the whole process: elsewhere than in the main thread, the units alone limit the work.
    if threading.current_thread() is not threading.main_thread():
        yield lambda: time.process_time() - started
        return
    with _memory(), _processor(max(0.01, min(seconds, ceilings.READER_CPU_SECONDS))):
        yield lambda: time.process_time() - started


@contextmanager
def _memory() -> Iterator[None]:
    held = _data_bytes()
    if held is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = held + ceilings.READER_MEMORY_BYTES
    if 0 <= soft <= most or 0 <= hard < most:  # a smaller limit is already set
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int | None:
    """Return the memory that counts against the limit of the kernel; None if there is no such limit."""
    if sys.platform != "linux":
        return None
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


@contextmanager
def _processor(seconds: float) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    earlier = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, earlier or signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped
