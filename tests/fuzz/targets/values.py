"""Configs given in Python: a mapping with any objects in it, or a text → `check`, `predict`, `diagnose`."""

import json
from datetime import date

import yaml
from tests.fuzz.mutate import odd_value, value_changed
from tests.fuzz.seeds import config_texts, known_keys
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import BASE, MOVING, mostly_tiny, write_model

# In the JSON of an input `{"": name}` stands for one of these.
_ODD = {
    "set": lambda: {1, 2},
    "bytes": lambda: b"\xff\x00",
    "object": object,
    "huge": lambda: 10**5000,
    "tuple": lambda: (1, "x"),
    "date": lambda: date(2001, 1, 1),
    "complex": lambda: 1j,
    "surrogate": lambda: "\udcff",
    "itself": lambda: _itself(),
    "keys": lambda: {1: 2, None: 3, (1, 2): 4, "x": 5},
    "deep": lambda: _deep(3000),
    "class": lambda: int,
}


def _itself():
    loop = []
    loop.append(loop)
    return loop


def _deep(depth):
    value = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def _values(rng):
    if rng.random() < 0.3:
        return mostly_tiny(rng)
    values = yaml.safe_load(BASE)
    for _ in range(rng.randint(1, 4)):
        key = rng.choice(MOVING) if rng.random() < 0.5 else rng.choice(list(known_keys()))
        seen = known_keys().get(key) or [8]
        values[key] = rng.choice((rng.choice(seen), rng.choice(seen), odd_value(rng), {"": rng.choice(list(_ODD))}))
    if rng.random() < 0.3:
        values = value_changed(rng, values)
    return json.dumps(values, default=str).encode("utf-8", "surrogatepass")


def _mapping(data):
    """The mapping that an input stands for: JSON with marks for odd objects, else whatever YAML reads."""
    try:
        return json.loads(data, object_hook=_objects)
    except (ValueError, RecursionError):
        pass
    try:
        return yaml.safe_load(data)
    except Exception:
        return yaml.safe_load(config_texts()[0])


def _objects(item):
    make = _ODD.get(item.get("")) if set(item) == {""} and isinstance(item[""], str) else None
    return make() if make else item


def as_mapping(verb):
    """A check that hands the mapping which an input stands for to a verb of the Python interface."""

    def run(bench, data):
        write_model(bench)
        values = _mapping(data)
        if isinstance(values, dict):
            with bench.watched(f"{verb.__name__} of a mapping"):
                verb(values)

    return run


def _as_text(verb):
    def run(bench, data):
        write_model(bench)
        with bench.watched(f"{verb.__name__} of a text"):
            verb(data.decode("utf-8", "surrogateescape") + "\n")

    return run


def check(source, gpu="rtx-4090"):
    """What a program asks first."""
    from vramwise import api

    api.check(source, gpu=gpu)


def check_alone(source):
    """The same without a card."""
    check(source, gpu=None)


def predict(source):
    """What it asks next."""
    from vramwise import api

    api.predict(source, gpu="24GB")


add(
    name="values",
    about="a config given in Python, as a mapping of any objects or as text → `api.check`, `api.predict`",
    extension="json",
    make=_values,
    checks={
        "check": as_mapping(check),
        "predict": as_mapping(predict),
        "check-text": _as_text(check),
        "predict-text": _as_text(predict),
    },
)
