"""Rebuilds the command that was given, to show it with a change or as the next step."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from vramwise.cli.options import TARGET_OPTIONS
from vramwise.opening.options import Options


def command_again(
    verb: str, run: str | Sequence[str], options: Options, more: Mapping[str, object], *, online: bool = True
) -> str:
    """Return the command without its changes and outputs.

    `run`: the config's path, or the words that describe a run without one. `more`: further options by name; None and ()
    are left out.
    """
    words = ["vramwise", verb, *([run] if isinstance(run, str) else run)]
    names = [name for name in (*TARGET_OPTIONS, "data", "call") if name != "versions"]
    said: dict[str, object] = {name: getattr(options, name) for name in names}
    said |= {"args": options.script_args or None, "set": options.settings}
    for name, value in {**said, **more}.items():
        values = value if isinstance(value, tuple) else () if value is None else (value,)
        for one in values:
            words += [f"--{name.replace('_', '-')}", str(one)]
    for version in options.versions:
        words += ["--with", version]
    return shlex.join(words if online else [*words, "--offline"])
