"""The sections of a RunSpec: one frozen type per file, without defaults.

Every setting is a field that says everything about itself: `name: type = field(metadata=setting(…))`. `neutral_why` of
a section tells the user why a run that does not use it has the neutral values. A trainer sets what it uses and takes
the rest from there (`trainers/fields.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass
from typing import Any

_KEY = "setting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is known about a setting besides its name and type."""

    neutral: Any  # its value in a run that does not use the feature
    flat: str = ""  # its name outside the section, if it differs
    ghost: bool = True  # False: a ghost run does not read it, so runs that differ in it alone share one
    # A word or a switch is compared with those of measured runs. False: it decides no bytes, or only through others
    compared: bool = True
    phrase: str = ""  # what it is called there; "": its name
    rare: bool = False  # only trainers with a feature of their own set it: it is neutral under the others
    plain: str = ""  # why it is neutral under the plain Trainer, whatever the file's trainer does; "": it is as there


def setting(neutral: Any, **more: Any) -> Mapping[str, Setting]:
    """Return the metadata of a field that is a setting; `more`: the fields of Setting."""
    return {_KEY: Setting(neutral=neutral, **more)}


def setting_of(field: Field[Any]) -> Setting | None:
    """Return what a field says about itself; None if it is no setting."""
    found: Setting | None = field.metadata.get(_KEY)
    return found
