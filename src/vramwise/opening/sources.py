"""Turns the input of a verb into a Document: a path, a text, a mapping, a script, a notebook or a launch line.

Also decides which trainer a document belongs to, and raises `NotOurs` for files that are not training configs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vramwise.documents.document import parse_document
from vramwise.errors import ConfigError
from vramwise.opening.files import is_shell_script, read_config_bytes
from vramwise.opening.options import Command, Options, Text
from vramwise.trainers.base import Trainer
from vramwise.trainers.recognise import NOBODYS, Foreign, recognise, unreadable_as
from vramwise.trainers.registry import trainer_named
from vramwise.types import Document
from vramwise.types.actions import action

if TYPE_CHECKING:
    from vramwise.trainers.other_tools import Tool

TEXT = "<text>"
_IMPORT = re.compile(rb"^(?:import|from)[ \t]+[A-Za-z_]", re.MULTILINE)
Source = str | Path | Mapping[str, Any]


class Given(dict[str, Any]):
    """The options of a command as values. `where`: what errors name as their place, for they are in no file."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        super().__init__(values)
        self.where = where


class NotOurs(ConfigError):  # noqa: N818 (it reads as what happened)
    """A file that is not a training config: skipped by `check` and `fix`, refused by the other verbs."""

    def __init__(self, foreign: Foreign, message: str = "") -> None:
        remedy = action("name the call" if foreign.kind == "python" else "insist")
        super().__init__(message or f"this is {foreign.what}, which vramwise does not read: {remedy}")
        self.foreign = foreign
        # The plain fine-tune that it describes, with options that say so; None: it describes none.
        self.plain: tuple[Source, Options] | None = None


def other_tool(tool: Tool, values: Mapping[str, Any], options: Options, *, runs: bool = True) -> NotOurs:
    """Return the refusal of another tool's command or file, with the plain fine-tune that it describes, if any."""
    tools = _other_tools()
    named = tools.named_by(tool, runs=runs)
    error = NotOurs(
        Foreign(kind=tool.title.lower(), what=f"{'a command' if runs else 'a file'} of {tool.title}"), named
    )
    if values:
        line = tools.predict_line(values)
        error.message = f"{named}. It describes a plain fine-tune: {line}"
        said = f"{named}: predicted is the plain fine-tune that it describes ({line})"
        error.plain = values, replace(options, trainer=tools.PLAIN, notes=(*options.notes, said))
    return error


def _other_tools() -> ModuleType:
    """Return what is known of other tools; configs of ours do not need it."""
    from vramwise.trainers import other_tools  # late: most files are ours

    return other_tools


def started(source: Source, options: Options) -> tuple[Source, Options]:
    """Return what a launch line or shell script starts, with the options that it adds; other sources unchanged."""
    if isinstance(source, Mapping | Text) or not (isinstance(source, Command) or is_shell_script(str(source))):
        return source, options
    from vramwise.opening import scripts  # late: configs do not need it

    return (scripts.launched if isinstance(source, Command) else scripts.launched_by)(str(source), options)


def trainer_of(document: Document, insisted: str | None = None) -> Trainer:
    """Return the trainer that a document belongs to. Raises NotOurs if it is not a training config.

    `insisted` names the trainer that the user chose.
    """
    if insisted is not None:
        return trainer_named(insisted)
    if document.script is not None:
        kind = document.script.kind
        return trainer_named(f"{document.script.trainer}:{kind}" if kind else document.script.trainer)
    found = recognise(document.values)
    if isinstance(found, Foreign):
        tools = _other_tools()
        tool = tools.tool_of_values(document.values)
        values = {} if tool is None else tools.plain_file(tool, document.values)
        error = NotOurs(found) if tool is None else other_tool(tool, values, Options(), runs=False)
        error.path = document.path
        raise error
    return found


def read_document(source: Source, options: Options | None = None) -> Document:
    """Read a config as a document; raises a ConfigError that names the file if that fails.

    An unreadable text that clearly belongs to another tool raises NotOurs, unless the caller names a trainer. With
    `ours_only`, so does an unreadable text without any sign of a training config.
    """
    options = options or Options()
    path = path_of(source)
    try:
        data = _bytes_of(source, path)
        if is_source(path, data):
            return _read_source(path, data, options)
        try:
            document = parse_document(path, data)
            if isinstance(source, Given):
                document = replace(document, given_at=source.where)
            return _with_settings(document, options.settings) if options.settings else document
        except ConfigError:
            foreign = None if options.trainer else unreadable_as(data.decode("utf-8", "replace"))
            if foreign is None or (foreign is NOBODYS and not options.ours_only):
                raise
            raise NotOurs(foreign) from None
    except ConfigError as error:
        error.path = path
        raise


def _with_settings(document: Document, settings: tuple[str, ...]) -> Document:
    from vramwise.documents.edit import with_changes  # late: only --set and launch lines change what is read

    return with_changes(document, settings)


def is_source(path: str, data: bytes) -> bool:
    """Return whether a file is Python (a script or a notebook), by its name or by the beginning of a text."""
    if path.endswith((".py", ".ipynb")):
        return True
    notebook = data.lstrip()[:1] == b"{" and b'"nbformat"' in data
    return path == TEXT and (notebook or _IMPORT.search(data[:20_000]) is not None)


def _read_source(path: str, data: bytes, options: Options) -> Document:
    from vramwise.opening.scripts import NoTraining, read_training  # late: configs do not need it

    try:
        return read_training(path, data, options)
    except NoTraining as nothing:
        tool = _other_tools().tool_of_imports(nothing.imports)
        what = f"a script for {tool.title}" if tool else "Python source that calls no known trainer"
        raise NotOurs(Foreign(kind="python", what=what), "" if tool else nothing.message) from None


def _bytes_of(source: Source, path: str) -> bytes:
    if isinstance(source, Mapping):
        return _as_yaml(source)
    return str(source).encode("utf-8", "surrogatepass") if path == TEXT else read_config_bytes(path)


def path_of(source: Source) -> str:
    """Return the path of a source, or `<text>` for a text or mapping."""
    return TEXT if isinstance(source, Mapping | Text) else str(source)


def _as_yaml(values: Mapping[str, Any]) -> bytes:
    import yaml

    try:
        text: str = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: a number of thousands of digits
        raise ConfigError("a mapping may contain only text, numbers, lists and mappings") from error
    return text.encode("utf-8")
