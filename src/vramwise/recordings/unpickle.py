"""Read a pickle of plain containers: the file cannot name, import or call anything, or exhaust memory.

Two safeguards. First, the whole file is matched against a grammar of plain data (dicts, lists, numbers, text, pairs of
numbers); any other opcode is rejected before anything is loaded. The grammar also excludes what would exhaust memory or
time: lengths beyond the file, huge memo slots, huge numbers, tuples of anything but numbers (a nested tuple as a dict
key takes forever to hash), more values than there is memory for. Then Python's own unpickler runs with all name lookups
disabled. Does not know what a snapshot looks like.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Any, NoReturn

from vramwise.errors import VramwiseError
from vramwise.limits import ceilings
from vramwise.units import mib

# The memory of one step: an entry on the unpickler's stack and in a list or dict. One byte of the file may refer to an
# existing value again.
_STEP_BYTES = 20
# The additional memory of values, by the opcode that creates them: dicts and lists, texts, integers, floats, pairs.
# Bytes inside texts and numbers count too, so this is an overestimate.
_VALUE_BYTES = ((b"}", 64), (b"]", 64), (b"\x8c", 64), (b"X", 64), (b"\x8a", 32), (b"J", 32), (b"M", 32), (b"\x86", 56))
_OPCODES_AT_ONCE = 1000

# Opcodes that import, build or call.
_CODE = frozenset(b"ciobRPQ") | {0x81, 0x82, 0x83, 0x84, 0x92, 0x93}
# Text with a length field of four or eight bytes, which a regex cannot match.
_LONG_TEXT = {ord("X"): 4, 0x8D: 8}
_LONG_PUT = ord("r")
_STOP = ord(".")


def _of_length(longest: int) -> bytes:
    """Return a pattern for a length byte and that many bytes."""
    return b"(?:" + b"|".join(rb"\x%02x.{%d}" % (length, length) for length in range(longest + 1)) + b")"


_NUMBER = rb"(?:K.|M..|J.{4}|\x8a" + _of_length(8) + b")"
_PLAIN_OPCODES = re.compile(
    b"(?:"
    + b"|".join(
        (
            rb"[hq].",  # memo: get and put
            rb"\x8c" + _of_length(255),  # short text
            _NUMBER + rb"{2}\x86",  # a pair of numbers
            _NUMBER,
            rb"[(}\])uesaN\x88\x89\x94]",  # mark, empty containers, fill them, None, True, False, memoize
            rb"j.{4}",  # memo: get
            rb"[G\x95].{8}",  # float, frame
        )
    )
    + b"){0,%d}+" % _OPCODES_AT_ONCE,
    re.DOTALL,
)


class _NoNames(pickle.Unpickler):
    """Python's unpickler with all name lookups disabled."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise VramwiseError(f"refused: the pickle names {module}.{name}")

    def persistent_load(self, identity: Any) -> NoReturn:
        raise VramwiseError("refused: the pickle refers to something outside itself")


def load_plain(data: bytes) -> Any:
    """Return the value of a pickle. Raises VramwiseError if it is broken, not a pickle, or more than plain data."""
    _check(data)
    try:
        return _NoNames(io.BytesIO(data)).load()
    except VramwiseError:
        raise
    except Exception as error:
        # The unpickler raises many kinds of errors for a malformed stream; the details do not help the user.
        raise VramwiseError(f"not a readable pickle: it is damaged ({type(error).__name__})") from None


def _check(data: bytes) -> None:
    if data[:1] != b"\x80":
        raise VramwiseError("not a pickle written by torch: it does not start with protocol 2 or higher")
    at, end = 2, len(data)
    needed = end + sum(cost * data.count(opcode) for opcode, cost in _VALUE_BYTES)
    while True:
        start = at
        match = _PLAIN_OPCODES.match(data, at)
        at = match.end() if match else at
        # Each opcode has at least one byte.
        needed += (min(at - start, _OPCODES_AT_ONCE) + 1) * _STEP_BYTES
        if needed > ceilings.MEMORY_BYTES:
            raise VramwiseError(
                f"its values would take more than {mib(ceilings.MEMORY_BYTES)} of memory: record a shorter part of the "
                "run, with torch.cuda.memory._record_memory_history(max_entries=100000)"
            )
        opcode = data[at] if at < end else -1
        if opcode == _STOP:
            return
        if opcode in _LONG_TEXT:
            width = _LONG_TEXT[opcode]
            at = min(end, at + 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "little"))
        elif opcode == _LONG_PUT and int.from_bytes(data[at + 1 : at + 5], "little") <= end:
            at += 5
        elif at > start:
            continue  # there may be more opcodes than one match covers
        elif opcode in _CODE:
            raise VramwiseError(
                f"refused: at byte {at} the pickle asks to import or call code, which a torch snapshot never does; "
                "nothing was run"
            )
        else:
            raise VramwiseError(
                f"not a torch snapshot: damaged, truncated, or more than plain data at byte {min(at, end)}"
            )
