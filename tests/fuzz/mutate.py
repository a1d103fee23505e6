"""Ways to damage an input: bytes, lines, and values inside plain containers. Pure functions of a `random.Random`."""

import re

from tests.fuzz.bench import HTML_MARK

# Text that a terminal, a log viewer or a browser would obey.
HOSTILE_TEXT = (
    "\x1b]52;c;aGk=\x07",
    "x\n::error::owned",
    "\x9b31m",
    "\r\x08\x7f",
    f'">{HTML_MARK} onerror=alert(1)>',
    "\u2028\u202e",
    "%0A::error::",
    "²",
    "",
    " ",
    "é" * 50,
    "x" * 5000,
    "1.2.3",
    "..",
    "/dev/null",
    "{{ template }}",
)
ODD_NUMBERS = (
    *(0, -1, 1, 2, 3, 7, 64, 100, 512, 3000, 4095, 65535, 100_000, 1_000_000, 5_000_000),
    *(2**31 - 1, 2**31, 2**32, 2**47, 2**53, 2**62, 2**63, 2**64, 10**30, -(2**63)),
    *(0.5, -0.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan")),
)
ODD_BYTES = (b"\x00", b"\xff", b"\x1b[2J", b"\r", b"\t", b"\xc2\x9b", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xe2\x80\xa8")
_NUMBER = re.compile(rb"\d+(?:\.\d+)?")


def odd_number_text(rng):
    """A number as people and fuzzers write it."""
    if rng.random() < 0.1:
        return rng.choice(("9" * 5000, "1" + "0" * 400, "1e999", "0x7f", "0o17", "1_000", ".5", "1.2.3", "²", "١"))
    return str(rng.choice(ODD_NUMBERS))


def odd_value(rng, depth=0):
    """Any value that JSON can hold, the odd ones first."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(ODD_NUMBERS)
    if kind < 0.6:
        return rng.choice(HOSTILE_TEXT)
    if kind < 0.75:
        return rng.choice((None, True, False))
    if depth > 2 or kind < 0.85:
        return rng.choice(([], {}, [[]], {"": None}, "auto", 8))
    if kind < 0.93:
        return [odd_value(rng, depth + 1) for _ in range(rng.randint(1, 4))]
    return {rng.choice(("a", "", "0", "\x1b[31m", "use_reentrant")): odd_value(rng, depth + 1) for _ in range(2)}


def nested(depth, leaf=1):
    """Lists in lists."""
    value = leaf
    for _ in range(depth):
        value = [value]
    return value


def bytes_changed(rng, data, donor=b""):
    """One to four changes of bytes."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice(_BYTE_CHANGES)(rng, data, donor)
    return data


def _flip(rng, data, _donor):
    if not data:
        return b"\x00"
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _cut(rng, data, _donor):
    at = rng.randint(0, len(data))
    return data[:at] + data[at + rng.choice((1, 4, 32, len(data))) :]


def _repeat(rng, data, _donor):
    at = rng.randint(0, len(data))
    piece = data[at : at + rng.choice((1, 8, 64, 512))]
    return data[:at] + piece * rng.choice((2, 3, 50)) + data[at:]


def _insert(rng, data, _donor):
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice((*ODD_BYTES, rng.choice(HOSTILE_TEXT).encode())) + data[at:]


def _splice(rng, data, donor):
    at, start = rng.randint(0, len(data)), rng.randint(0, len(donor))
    return data[:at] + donor[start : start + rng.choice((8, 64, 1024))] + data[at:]


def _number(rng, data, _donor):
    found = list(_NUMBER.finditer(data[:200_000]))
    if not found:
        return data
    match = rng.choice(found)
    return data[: match.start()] + odd_number_text(rng).encode() + data[match.end() :]


_BYTE_CHANGES = (_flip, _cut, _repeat, _insert, _splice, _number, _number)


def lines_changed(rng, text, donor, odd_line):
    """Lines removed, doubled, swapped, taken from a donor, or made up by `odd_line(rng)`."""
    lines, others = text.split("\n"), donor.split("\n")
    for _ in range(rng.choice((1, 2, 3, 6))):
        at = rng.randrange(len(lines)) if lines else 0
        change = rng.randrange(6)
        if change == 0 and lines:
            del lines[at]
        elif change == 1 and lines:
            lines.insert(rng.randint(0, len(lines)), lines[at])
        elif change == 2:
            start = rng.randrange(len(others))
            lines[at:at] = others[start : start + rng.choice((1, 3))]
        elif change == 3 and lines:
            lines[at] = odd_line(rng, lines[at])
        else:
            lines.insert(at, odd_line(rng, ""))
    return "\n".join(lines)


def value_changed(rng, value):
    """A copy of plain containers with one to three places changed."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = _changed_within(rng, value, 0)
    return value


def _changed_within(rng, value, depth):
    """Walk down at random; only the containers on the way are copied."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.85):
        key = rng.choice(list(value))
        return _dict_changed(rng, value, key, depth)
    if isinstance(value, (list, tuple)) and value and (depth == 0 or rng.random() < 0.85):
        return _list_changed(rng, list(value), depth)
    if isinstance(value, str) and value and rng.random() < 0.3:
        at = rng.randint(0, len(value))
        return value[:at] + rng.choice(HOSTILE_TEXT) + value[at:]
    return odd_value(rng)


def _dict_changed(rng, value, key, depth):
    change = rng.random()
    if change < 0.1:
        return {one: item for one, item in value.items() if one != key}
    if change < 0.15:
        return {**value, rng.choice(HOSTILE_TEXT): value[key]}
    return {**value, key: _changed_within(rng, value[key], depth + 1)}


def _list_changed(rng, value, depth):
    at = rng.randrange(len(value))
    change = rng.random()
    if change < 0.1:
        del value[at]
    elif change < 0.2:
        value[at:at] = [value[rng.randrange(len(value))]] * rng.choice((1, 2, 20))
    else:
        value[at] = _changed_within(rng, value[at], depth + 1)
    return value
