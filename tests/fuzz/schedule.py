"""The walk over all keys with values of all kinds: which input has which number, without chance.

Input n holds one key of one trainer in a config that is otherwise fine. The first `len(keys)` inputs hold every key once,
each with another kind of value; after `len(walk)` inputs every key was there with every kind. Later rounds repeat the walk
under the next check.
"""

import json
import re
import zlib
from dataclasses import dataclass
from functools import cache

from tests.fuzz.keys import all_keys, companions
from tests.fuzz.kinds import KINDS, written

# The first line of an input may hold options of the command line.
OPTIONS = "#: "
# Of TRL's files the kind of training is said on the command line.
_TRL_COMMANDS = ("sft", "dpo", "kto", "reward", "grpo", "rloo", "distillation", "orpo", "cpo")
_HERE = re.compile("\0(\\d+)")
_BARE = re.compile(r"[A-Za-z][\w./-]*")


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Every key with every kind of value, in an order that reaches all keys first."""

    keys: tuple
    kinds: tuple

    def __len__(self):
        return len(self.keys) * len(self.kinds)

    def pair(self, number):
        """The key and the kind of one input; after all of them it starts again."""
        turn, key = divmod(number % len(self), len(self.keys))
        return self.keys[key], self.kinds[(turn + key) % len(self.kinds)]

    def text(self, number):
        """The config of one input."""
        return config_with([self.pair(number)])

    def reached(self, inputs):
        """How many keys, and how many pairs of key and kind, are in the first `inputs`."""
        return min(inputs, len(self.keys)), min(inputs, len(self))


@cache
def walk():
    """The walk over all that is known."""
    return Walk(keys=all_keys(), kinds=KINDS)


def check_of(walked, number, checks):
    """The check of one input of a walk: in each round another, and in one round all of them for each key and kind."""
    turn, place = divmod(number, len(walked))
    return checks[(zlib.crc32(str(place).encode()) + turn) % len(checks)]


def config_with(pairs):
    """A config of one trainer with keys and kinds of value; the first key's version is said in the first line."""
    first, kind = pairs[0]
    turn = KINDS.index(kind)
    tree, values = first.base, []
    for key, kind in pairs:
        fact = key.fact(turn)[1]
        tree = put({**tree, **companions(key, fact)}, key.parts, f"\0{len(values)}")
        values.append(written(kind, fact))
    return options_line(first, turn) + _HERE.sub(lambda found: values[int(found[1])], text_of(tree))


def options_line(key, turn):
    """The options under which the key is known: the version of its trainer, and TRL's command."""
    from vramwise.trainers.registry import trainer_named

    version, _ = key.fact(turn)
    words = [] if version is None else ["--with", f"{trainer_named(key.trainer).package}=={version}"]
    if key.trainer == "trl":
        words += ["--trainer", f"trl:{_TRL_COMMANDS[turn % len(_TRL_COMMANDS)]}"]
    elif turn % 2 or not key.recognised:
        words += ["--trainer", key.trainer]
    return OPTIONS + " ".join(words) + "\n"


def put(tree, parts, value):
    """A copy of nested mappings and lists with a value at a path; what is in the way makes room."""
    if not parts:
        return value
    name, *rest = parts
    plain = name.removesuffix("[]")
    inner = tree.get(plain)
    if name.endswith("[]"):
        items = inner if isinstance(inner, list) and inner else [{}]
        return {**tree, plain: [put(_mapping(items[0]), rest, value), *items[1:]]}
    return {**tree, plain: put(_mapping(inner), rest, value)}


def _mapping(value):
    return value if isinstance(value, dict) else {}


def text_of(tree):
    """Nested mappings and lists as YAML's block style."""
    return "".join(f"{line}\n" for line in _lines(tree, ""))


def _lines(tree, indent):
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list) and value and all(isinstance(item, dict) and item for item in value):
            yield f"{indent}{name}:"
            for item in value:
                first, *others = _lines(item, indent + "    ")
                yield f"{indent}  - {first.strip(' ')}"
                yield from others
        else:
            yield f"{indent}{name}: {_scalar(value)}"


def _scalar(value):
    return value if isinstance(value, str) and (value[:1] == "\0" or _BARE.fullmatch(value)) else json.dumps(value)
