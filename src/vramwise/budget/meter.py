"""The meter of the readers of scripts, notebooks and shell: every result is charged for its size before it is built.

A source of a few lines can describe a text of gigabytes, or a list of as many items. Each evaluator, formatter and
expansion calls `charge` with an upper bound of what it is about to build; a bound that exceeds the value's share makes
the value unknown, and a reading that exceeds its own share ends with one sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from vramwise.budget import limits
from vramwise.budget.net import Stopped, net
from vramwise.errors import ConfigError

_active: ContextVar[Meter | None] = ContextVar("_active", default=None)


class TooLarge(Exception):  # noqa: N818 (it reads as what is the matter)
    """One value would exceed its share; the sentence says why it stays unknown."""


class Spent(ConfigError):  # noqa: N818 (it reads as what happened)
    """A reading, or all readings of a command together, would exceed their share."""


@dataclass(slots=True)
class Meter:
    """What the readings of one command have used. `line`: the one that is being evaluated."""

    value_units: int = limits.READER_VALUE_UNITS
    reading_units: int = limits.READER_UNITS
    all_units: int = limits.READER_ALL_UNITS
    used: int = 0
    line: int | None = None
    seconds_left: float = limits.READER_ALL_CPU_SECONDS
    _reading_end: int = 0
    _value_end: int = 0

    def begin_reading(self) -> None:
        """Start the share of one reading; raises Spent if the command has none left."""
        self.line = None
        self._reading_end = self._value_end = min(self.used + self.reading_units, self.all_units)
        if self.used >= self.all_units or self.seconds_left <= 0:
            raise Spent("reading this source again and again takes too much work")

    def begin_value(self) -> None:
        """Start the share of one value."""
        self._value_end = min(self.used + self.value_units, self._reading_end)

    def end_value(self) -> None:
        """Let what follows use the share of the reading."""
        self._value_end = self._reading_end

    def charge(self, size: int, why: str = "its result would be too large") -> None:
        """Take units. Raises TooLarge, or Spent if nothing is left for other values either."""
        if self.used + size <= self._value_end:
            self.used += size
            return
        self.used += limits.READER_STEP_UNITS  # trying costs something, too
        if size <= self.value_units and self.used + size > self._reading_end:
            raise Spent("this source takes too much work to read", line=self.line)
        raise TooLarge(why)

    def step(self, line: int) -> None:
        """Take the units of evaluating one expression."""
        self.line = line
        self.charge(limits.READER_STEP_UNITS, "it takes too many steps to compute")


def charge(size: int) -> None:
    """Take units from the meter of the current reading, if there is one."""
    meter = _active.get()
    if meter is not None:
        meter.charge(size)


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
        raise ConfigError(f"this {what} takes too much work to read", line=meter.line) from None
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
    while waiting and found <= limits.READER_VALUE_UNITS:
        one = waiting.pop()
        found += leaf
        if isinstance(one, str | bytes):
            found += character * len(one)
        elif isinstance(one, int):
            found += one.bit_length() * character // 30
        elif isinstance(one, list | tuple | set | frozenset):
            found += len(one)
            waiting.extend(one if len(one) <= limits.READER_VALUE_UNITS else ())
        elif isinstance(one, Mapping):
            found += len(one)
            waiting.extend(one)
            waiting.extend(one.values())
    return found
