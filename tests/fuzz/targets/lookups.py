"""Questions about keys, rules and trainers → `explain`, `rules --search`, `schema`, `gpus`; each key once, then odd ones."""

import os
from dataclasses import dataclass
from functools import cache

from tests.fuzz.keys import all_keys
from tests.fuzz.mutate import HOSTILE_TEXT, bytes_changed, odd_number_text
from tests.fuzz.seeds import known_keys
from tests.fuzz.targets import add

_WORDS = (
    "oom after eval",
    "packing",
    "fragmentation",
    "8bit",
    "why is my batch so large",
    "eval-batch-differs",
    "h100",
)
_LIST = ("axolotl", "trl", "llamafactory", "hf-trainer", "trl:dpo", "transformers")


@dataclass(frozen=True)
class _Names:
    """A walk over names: one an input."""

    names: tuple

    def __len__(self):
        return len(self.names)

    def text(self, number):
        """One name."""
        return self.names[number % len(self.names)]


@cache
def _names():
    """Every key's dotted name, and every rule's id."""
    from vramwise.trainers.rulebook import all_rules

    return _Names(tuple(sorted({key.path for key in all_keys()} | {rule.id for rule in all_rules()})))


def _question(rng):
    word = rng.choice((*_WORDS, *_LIST, *rng.choices(list(known_keys()), k=10)))
    kind = rng.random()
    if kind < 0.3:
        word = f"{word}{rng.choice('. =[]:/')}{rng.choice((*known_keys(), odd_number_text(rng)))}"
    elif kind < 0.5:
        word = rng.choice(HOSTILE_TEXT) + word
    elif kind < 0.8:
        return bytes_changed(rng, word.encode(), rng.choice(_WORDS).encode())
    return word.encode("utf-8", "replace")


def _word(data):
    return os.fsdecode(data.replace(b"\0", b""))[:3000]


def _explain(*words):
    return lambda bench, data: bench.command("explain", *words, "--", _word(data))


def _search(bench, data):
    bench.command("rules", "--search", _word(data))


def _search_json(bench, data):
    bench.command_json("rules", "--format", "json", "--search", _word(data))


def _schema(bench, data):
    """A trainer's schema under a version that is made up; every name of a trainer is one too."""
    word = _word(data)
    bench.command("schema", word if word in _LIST else "trl", "--with", f"trl=={word}")


def _of_trainer(bench, data):
    bench.command("explain", "max_length", "--trainer", _word(data))


add(
    name="lookup",
    about="keys, rules, words and versions → `explain`, `rules --search`, `schema`",
    extension="txt",
    make=_question,
    walk=_names,
    checks={
        "explain": _explain(),
        "of-axolotl": _explain("--trainer", "axolotl"),
        "of-trainer": _of_trainer,
        "search": _search,
        "search-json": _search_json,
        "schema": _schema,
    },
)
