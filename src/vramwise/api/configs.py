"""`check` and `fix` as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise.api.sources import PathLike, Source, names_of, source_of
from vramwise.displayed import Several
from vramwise.options import Options, Text
from vramwise.verbs import check as check_verb
from vramwise.verbs import fix as fix_verb
from vramwise.verbs.check import FileReport
from vramwise.verbs.fix import FixReport


def check(paths: Source | Sequence[PathLike], options: Options | None = None) -> list[FileReport]:
    """Check every config under the paths ("-" is stdin, a folder means every YAML file in it).

    A multi-line string or a mapping is checked as a config itself.
    """
    if isinstance(paths, Mapping | str):
        paths = source_of(paths)
        if isinstance(paths, Mapping | Text):
            return Several([check_verb.check_source(paths, options or Options(), alone=True)])
    assert not isinstance(paths, Mapping)
    return Several(check_verb.check(names_of(paths), options))


def fix(
    paths: Source | Sequence[PathLike],
    options: Options | None = None,
    *,
    unsafe: bool = False,
    write: bool = True,
    fits: bool = False,
) -> list[FixReport]:
    """Fix every config under the paths. `write=False` leaves the files unchanged; `fits` also fits each to its card.

    A multi-line string or a mapping is fixed as a config itself: `after` holds the text.
    """
    if isinstance(paths, Mapping | str):
        paths = source_of(paths)
        if isinstance(paths, Mapping | Text):
            return Several([fix_verb.fix_source(paths, options or Options(), unsafe=unsafe, fits=fits)])
    assert not isinstance(paths, Mapping)
    return Several(fix_verb.fix(names_of(paths), options, unsafe=unsafe, write=write, fits=fits))
