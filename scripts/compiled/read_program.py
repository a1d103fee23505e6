"""A recorded pair of wrappers → its program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reading import Wrapper, program


def read(path: Path) -> dict[str, Any]:
    """Return the program of recorded wrappers."""
    raw = json.loads(path.read_text())
    names = {f"primals_{number}": name for number, name in enumerate(raw["inputs"][-1], 1)}
    forward = Wrapper(raw["codes"][-2], names)
    probe = Wrapper(raw["codes"][-1], names)
    kept = [name for name in probe.arguments if not name.startswith(("tangents", "bwd_rng"))]
    given = dict(zip(kept, forward.returned[len(forward.returned) - len(kept) :], strict=True))
    outputs = len(forward.returned) - len(kept)
    backward = Wrapper(raw["codes"][-1], names, {name: one for name, one in given.items() if one is not None})
    return program(forward, backward, raw["dims"], raw["layers"], outputs)
