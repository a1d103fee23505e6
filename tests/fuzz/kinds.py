"""Values of every type, as YAML writes them on one line. Each kind is one column of the schedule."""

from functools import cache

from tests.fuzz.bench import HTML_MARK

# As they are, whatever the key.
_PLAIN = {
    # nothing, and words that YAML 1.1 reads as something else
    "null": "~",
    "nothing": "",
    "true": "true",
    "false": "false",
    "yes": "yes",
    # whole numbers
    "zero": "0",
    "minus-one": "-1",
    "one": "1",
    "eight": "8",
    "thousands": "4096",
    "below-2**63": str(2**63 - 1),
    "2**63": str(2**63),
    "above-2**63": str(2**63 + 1),
    "-2**63": str(-(2**63)),
    "10**30": str(10**30),
    "5000-digits": "9" * 5000,
    "hexadecimal": "0x7fffffff",
    "base-60": "190:20:30",
    # floats
    "half": "0.5",
    "minus-zero": "-0.0",
    "tiniest": "1.0e-320",
    "largest": "1.0e+308",
    "infinity": ".inf",
    "minus-infinity": "-.inf",
    "nan": ".nan",
    # texts
    "empty-text": "''",
    "space": "' '",
    "word": "x",
    "long-text": "x" * 5000,
    "unicode": '"é😀\\u202e\\u2028²١"',
    "terminal": '"\\e]52;c;aGk=\\a\\x9b31m\\r\\b"',
    "workflow": '"x\\n::error::owned"',
    "nul": '"a\\0b"',
    "markup": f"'{HTML_MARK} onerror=alert(1)>'",
    "number-text": "'8'",
    "exponent-text": "1e-4",
    "digits-text": "'" + "9" * 400 + "'",
    "true-text": "'true'",
    "date-text": "'2001-01-01'",
    "auto": "auto",
    "template": "'{{ x }}'",
    "folder": "model",
    "parent-path": "../..",
    "endless-path": "/dev/zero",
    "home-path": "'~root/x'",
    "json-path": "nowhere.json",
    "pattern": "'(a+)+$|[\\w'",
    # lists
    "empty-list": "[]",
    "numbers": "[1, 2, 3]",
    "texts": "[a, b]",
    "nulls": "[~, ~]",
    "nested-list": "[[[]], [[1]]]",
    "mixed-list": "[1, a, {b: [~]}, 0.5, true]",
    "deep-list": "[" * 60 + "]" * 60,
    "long-list": "[" + ", ".join(["x"] * 300) + "]",
    # mappings
    "empty-mapping": "{}",
    "mapping": "{a: 1, b: x}",
    "nested-mapping": "{a: {b: {c: [1]}}}",
    "odd-keys": "{1: 2, ~: 3, true: 4, '': 5}",
    "twice": "{a: 1, a: 2}",
    # YAML's own types and machinery
    "binary": "!!binary aGVsbG8=",
    "set": "!!set {a, b}",
    "ordered": "!!omap [a: 1]",
    "pairs": "!!pairs [a: 1, a: 2]",
    "date": "2001-01-01",
    "time": "2001-12-14t21:59:43.10-05:00",
    "no-date": "2001-99-99",
    "tagged-text": "!!str 8",
    "tagged-number": "!!int '8'",
    "tagged-float": "!!float 8",
    "wrong-tag": "!!int x",
    "foreign-tag": "!x 1",
    "object-tag": "!!python/object/apply:os.system ['true']",
    "anchor": "&a {b: 1}",
    "alias": "[&a [x], *a, *a]",
    "unknown-alias": "*nowhere",
    "itself": "&a [*a]",
    "merge": "{<<: {a: 1}, b: 2}",
    "merge-aliases": "{a: &m {x: 1}, b: {<<: [*m, {y: 2}]}}",
    "wrong-merge": "{<<: 1}",
}
# Made for the key, from its type.
_TYPED = ("typed", "typed-list", "typed-text", "default", "first-choice", "last-choice", "wrong-case", "beyond-limit")
KINDS = (*_PLAIN, *_TYPED)
_USUAL = {"bool": "true", "int": "2", "float": "0.5", "str": "x", "number_text": "'0.5'", "any": "x", "dict": "{a: 1}"}


def written(kind, fact):
    """The text of a value of this kind for a key with this fact (None: nothing is known of it)."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    alternatives = _alternatives("any" if fact is None else fact.type)
    if kind == "default":
        return _default(fact)
    if kind == "beyond-limit":
        return next((text for one in alternatives for text in _beyond(one)), "-2")
    if kind == "typed":
        return _typed(alternatives[0])
    if kind == "typed-list":
        return f"[{_typed(alternatives[-1])}, {_typed(alternatives[0])}]"
    if kind == "typed-text":
        return "'" + _typed(alternatives[-1]).replace("'", "''") + "'"
    choices = [choice for one in alternatives if one.kind.endswith("one_of") for choice in one.limits]
    choices = choices or list(getattr(fact, "names", ())) or ["lora", "steps"]
    return {"first-choice": choices[0], "last-choice": choices[-1], "wrong-case": choices[0].swapcase()}[kind]


@cache
def _alternatives(type_):
    from vramwise.trainers.value_types import parse_type

    return parse_type(type_)[0]


def _typed(one):
    """A value that a type accepts."""
    if one.kind.endswith("one_of"):
        return one.limits[0] if one.limits[0] in ("False", "True") else f"'{one.limits[0]}'"
    if one.kind in ("list", "tuple"):
        return f"[{', '.join(_typed(_alternatives(held)[0]) for held in one.holds or ('any',))}]"
    if one.kind == "dict" and len(one.holds) == 2:
        of_key, of_value = (_typed(_alternatives(held)[0]) for held in one.holds)
        return f"{{{of_key}: {of_value}}}"
    if one.kind in ("int", "float"):
        return _within(one)
    if one.kind == "str" and one.limits:
        return one.limits[0].removeprefix("starts=") + "x"
    return _USUAL.get(one.kind, "{}")


def _within(one):
    from vramwise.trainers.value_types import accepts, bounds

    limits = [bound for _, bound in bounds(one)]
    near = [change for bound in limits for change in (bound, bound + 1, bound - 1, bound + 0.01, bound - 0.01)]
    type_ = one.kind + (f"({','.join(one.limits)})" if one.limits else "")
    fitting = [value for value in (2, 0.5, *near) if accepts(type_, value)]
    value = fitting[0] if fitting else 2
    return str(int(value)) if one.kind == "int" else repr(float(value))


def _beyond(one):
    from vramwise.trainers.value_types import bounds

    if one.kind in ("int", "float"):
        for name, bound in bounds(one):
            past = {"ge": bound - 1, "gt": bound, "le": bound + 1, "lt": bound}[name]
            yield str(int(past)) if one.kind == "int" else repr(past)


def _default(fact):
    import json

    value = None if fact is None else fact.default
    return json.dumps(value, default=str) if isinstance(value, (dict, list, str, bool, int)) else str(value or "~")
