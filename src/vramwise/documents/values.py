"""Computes the effect of an edit on the values alone, and compares trees of values."""

from __future__ import annotations

from typing import Any

from vramwise.types import KeyPath


def unshared(value: Any) -> Any:
    """Return a copy in which aliases have their own copies of values."""
    if type(value) is dict:
        return {key: unshared(item) for key, item in value.items()}
    if type(value) is list:
        return [unshared(item) for item in value]
    return value


def lookup(values: Any, path: KeyPath) -> tuple[Any, ...]:
    """Return the value at a path in a tuple of one, or () if there is none. Digits may also be a text key."""
    for part in path:
        step = step_into(values, part)
        if step is None:
            return ()
        values = values[step]
    return (values,)


def step_into(values: Any, part: str | int) -> str | int | None:
    """Return the key or position under which a collection has this part of a path, or None."""
    if isinstance(values, dict):
        for key in (part, str(part)):
            if key in values:
                return key
    elif isinstance(values, list) and isinstance(part, int) and part < len(values):
        return part
    return None


def put(values: dict[str, Any], path: KeyPath, value: Any) -> dict[str, Any]:
    """Return a copy with the value at the path.

    Missing and null parents become mappings; a list can grow by one at its end.
    """
    copy = unshared(values)
    here: Any = copy
    for depth, part in enumerate(path[:-1]):
        step = step_into(here, part)
        if step is None or here[step] is None:
            place(here, part if step is None else step, nested(path[depth + 1 :], value))
            return dict(copy)
        here = here[step]
    step = step_into(here, path[-1])
    place(here, path[-1] if step is None else step, value)
    return dict(copy)


def place(container: Any, part: str | int, value: Any) -> None:
    """Set an entry, or append it at the end of a list."""
    if isinstance(container, list) and part == len(container):
        container.append(value)
    else:
        container[part] = value


def nested(path: KeyPath, value: Any) -> Any:
    """Return `value` inside mappings of these keys."""
    for part in reversed(path):
        value = {part: value}
    return value


def drop(values: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    """Return a copy without the entry at an existing path, and without parents that become empty."""
    copy = unshared(values)
    for length in range(len(path), 0, -1):
        (parent,) = lookup(copy, path[: length - 1])
        step = step_into(parent, path[length - 1])
        del parent[step]
        if parent:
            break
    return dict(copy)


def identical(one: Any, other: Any) -> bool:
    """Return whether values, types and order are the same: True is not 1, 1 is not 1.0, 0.0 is not -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        keys = zip(one, other, strict=False)
        return len(one) == len(other) and all(identical(a, b) and identical(one[a], other[b]) for a, b in keys)
    if isinstance(one, list):
        return len(one) == len(other) and all(identical(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other if not isinstance(one, float) else repr(one) == repr(other))


def in_order_of(values: Any, model: Any) -> Any:
    """Return the values with each mapping's keys in the model's order, if both have the same keys."""
    if isinstance(values, dict) and isinstance(model, dict) and values.keys() == model.keys():
        own = {key: key for key in values}  # equal keys may differ in type: 1 and True
        return {own[key]: in_order_of(values[key], model[key]) for key in model}
    return values
