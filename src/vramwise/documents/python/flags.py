"""Settings that a script takes from the command line: flags of argparse and click, fields of dataclasses.

Defaults are values with a note, because the command line may override them. `--args` is parsed with the same flags.
"""

from __future__ import annotations

import ast
import difflib
import re
import shlex
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vramwise.documents.python.scopes import Index, Scope, Site, dotted
from vramwise.errors import VramwiseError
from vramwise.limits.meter import work

_LONGEST_LIST = 1000
_BARE_LIST, _WORDS = re.compile(r"\[[\w.]+(?:, ?[\w.]+)*\]", re.ASCII), re.compile(r"[\w.]+", re.ASCII)
_TRUE = ("true", "1", "yes", "y", "on")
_FALSE = ("false", "0", "no", "n", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag of argparse. `default`: None if none is written. `switch`: the value that naming the flag gives."""

    name: str
    words: tuple[str, ...]
    line: int
    site: Site
    default: ast.expr | None = None
    kind: str = "str"
    switch: bool | None = None
    several: bool = False
    required: bool = False
    # Several subcommands define it with different defaults.
    clashes: bool = False


def flags_of(found: Index) -> dict[str, Flag]:
    """Return the flags that `add_argument` adds, by attribute name."""
    flags: dict[str, Flag] = {}
    holders: dict[str, str] = {}
    for call, site in found.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            flag = _flag(call, site)
            if flag is not None:
                holder = dotted(call.func.value) or ""
                earlier = flags.get(flag.name)
                other = earlier is not None and holders[flag.name] != holder and not _same(earlier, flag)
                flags[flag.name] = replace(flag, clashes=other)
                holders[flag.name] = holder
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "add_subparsers":
            dest = next((_constant(one.value) for one in call.keywords if one.arg == "dest"), None) or "a subcommand"
            flags[dest] = Flag(name=dest, words=(dest,), line=call.lineno, site=site, required=True)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "set_defaults":
            for one in call.keywords:
                if one.arg in flags:
                    flags[one.arg] = replace(flags[one.arg], default=one.value, site=site, required=False)
    return flags


def _same(one: Flag, other: Flag) -> bool:
    """Return whether two flags have the same default."""
    return same(one.default, other.default)


def same(one: Any, other: Any) -> bool:
    """Return whether two syntax trees are the same; stops at the first difference."""
    waiting = [(one, other)]
    while waiting:
        one, other = waiting.pop()
        work(5)
        if type(one) is not type(other):
            return False
        if isinstance(one, ast.AST):
            waiting += [(getattr(one, name, None), getattr(other, name, None)) for name in one._fields]
        elif isinstance(one, list) and len(one) == len(other):
            waiting += zip(one, other, strict=True)
        elif one != other:
            return False
    return True


def _flag(call: ast.Call, site: Site) -> Flag | None:
    words = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    named = {one.arg: one.value for one in call.keywords if one.arg is not None}
    if not words:
        return None
    long = next((word for word in words if word.startswith("--")), words[0])
    dest = _constant(named.get("dest"))
    action = _constant(named.get("action"))
    switch = {"store_true": True, "store_false": False}.get(str(action))
    kind = named.get("type")
    return Flag(
        name=str(dest or long.lstrip("-").replace("-", "_")),
        words=tuple(words),
        line=call.lineno,
        site=site,
        default=named.get("default") or (ast.Constant(value=not switch) if switch is not None else None),
        kind=(dotted(kind) or "str") if kind is not None else "str",
        switch=switch,
        several="nargs" in named,
        required=_constant(named.get("required")) is True or not words[0].startswith("-"),
    )


def decorated_default(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> tuple[ast.expr | None, bool]:
    """Return the default that a click decorator gives a parameter, and whether a decorator names it."""
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        last = (dotted(decorator.func) or "").rpartition(".")[2]
        words = [one.value for one in decorator.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if last not in ("option", "argument") or name not in {_attribute(word) for word in words}:
            continue
        named = {one.arg: one.value for one in decorator.keywords if one.arg is not None}
        default = named.get("default")
        if default is None and _constant(named.get("is_flag")) is True:
            default = ast.Constant(value=False, lineno=decorator.lineno, col_offset=decorator.col_offset)
        return default, True
    return None, False


def _attribute(word: str) -> str:
    return word.partition("/")[0].lstrip("-").replace("-", "_")


def fields_of(scope: Scope) -> Iterator[tuple[str, ast.expr | None, int]]:
    """Yield the fields of a class: name, default (None if it has none) and line. `field(default=x)` counts as x."""
    assert isinstance(scope.node, ast.ClassDef)
    for statement in scope.node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, _field_default(statement.value), statement.lineno
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield statement.targets[0].id, statement.value, statement.lineno


def _field_default(value: ast.expr | None) -> ast.expr | None:
    if not isinstance(value, ast.Call) or (dotted(value.func) or "").rpartition(".")[2] not in ("field", "Field"):
        return value
    named = {one.arg: one.value for one in value.keywords}
    factory = named.get("default_factory")
    if isinstance(factory, ast.Lambda):
        return factory.body
    return named.get("default") or (value.args[0] if value.args else None)


# What launchers add to a script's own flags.
_OF_LAUNCHERS = frozenset({"local_rank", "deepspeed", "deepspeed_config", "deepscale", "deepscale_config"})
# Parsers that take other flags than `add_argument` adds, and calls that leave flags to something else.
CLASS_PARSERS = ("HfArgumentParser", "TrlParser", "H4ArgumentParser")
_OTHER_PARSERS = (
    *(*CLASS_PARSERS, "Fire", "parse_known_args", "parse_known_intermixed_args"),
    *("add_argparse_args", "from_argparse_args"),
)


def unknown_flags(line: str, flags: Mapping[str, Flag], found: Index) -> Iterator[tuple[str, str, int]]:
    """Yield the flags at which a script's own parser stops: flag, a similar one or "", and the parser's line.

    None if something else may take them: another parser, or a function elsewhere that is given the parser.
    """
    parses = found.named("parse_args")
    if not flags or not parses or any(found.named(one) for one in _OTHER_PARSERS):
        return
    adds = [call.func.value for call, _ in found.named("add_argument") if isinstance(call.func, ast.Attribute)]
    parsers = {dotted(one) for one in adds}
    work(len(found.calls))
    for call, site in found.calls:
        given = [*call.args, *(one.value for one in call.keywords)]
        if any(dotted(one) in parsers for one in given) and not _is_here(dotted(call.func), site.scope):
            return
    known = sorted({word for flag in flags.values() for word in flag.words})
    listed = [one for one in parses[0][0].args if isinstance(one, ast.List)]
    written = [str(_constant(one)) for held in listed for one in held.elts if isinstance(one, ast.Constant)]
    for word in written if listed else words_of(line):
        name = word.partition("=")[0]
        is_known = any(one.startswith(name) for one in known) or _attribute(name) in _OF_LAUNCHERS
        if name.startswith("--") and len(name) > 2 and not is_known:
            yield name, next(iter(difflib.get_close_matches(name, known, n=1)), ""), parses[0][0].lineno


def _is_here(name: str | None, scope: Scope | None) -> bool:
    """Return whether a function is defined in the file or in a module beside it."""
    while scope is not None and name not in scope.functions:
        scope = scope.parent
    return scope is not None


def words_of(line: str) -> tuple[str, ...]:
    """Return the words of `--args`; raises VramwiseError for unmatched quotes."""
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        raise VramwiseError(f"--args {line}: {str(error).lower()}") from None


def parsed(line: str, flags: Mapping[str, Flag], *, lists: bool = False) -> dict[str, Any]:
    """Parse `--lr 1e-5 --use_peft` into values by name; unknown flags keep their words as names.

    `lists`: unknown flags may take several words, as fields of dataclasses do. Words without a flag fill positional
    arguments in order, including a subcommand.
    """
    words = words_of(line)
    by_word = {word: flag for flag in flags.values() for word in flag.words}
    longer = sorted(by_word)
    found: dict[str, Any] = {}
    positions = iter([flag for flag in flags.values() if not flag.words[0].startswith("-")])
    at = 0
    while at < len(words):
        word, equals, value = words[at].partition("=")
        at += 1
        if not word.startswith("-"):
            place = next(positions, None)
            if place is not None:
                found[place.name] = _typed([words[at - 1]], place)
            continue
        flag = by_word.get(word)
        if flag is None and word.startswith("--"):  # argparse takes a beginning that only one flag has
            first = bisect_left(longer, word)
            begun = [one for one in longer[first : first + 2] if one.startswith(word)]
            flag = by_word[begun[0]] if len(begun) == 1 else None
        name = flag.name if flag is not None else _attribute(word)
        if flag is not None and flag.switch is not None and not equals:
            found[name] = flag.switch
            continue
        taken: list[str] = [value] if equals else []
        while not equals and at < len(words) and not _is_flag(words[at]):
            taken.append(words[at])
            at += 1
            if not (lists if flag is None else flag.several):
                break
        found[name] = _typed(taken, flag)
    return found


def _is_flag(word: str) -> bool:
    return word.startswith("--") or (word.startswith("-") and len(word) > 1 and not word[1].isdigit())


def _typed(taken: Sequence[str], flag: Flag | None) -> Any:
    if not taken:
        return True
    values = [_value(word, flag.kind if flag is not None else "") for word in taken]
    return values if len(values) > 1 or (flag is not None and flag.several) else values[0]


def _value(word: str, kind: str) -> Any:
    if kind == "str":
        return word
    found = guessed(word)
    if kind and isinstance(found, str) and word.lower() in (*_TRUE, *_FALSE):  # a function such as `str2bool`
        return word.lower() in _TRUE
    return found


def guessed(word: str) -> Any:
    """Return a word whose type is unknown as a number, a list, or `true` and `false`; `no` and `off` may be texts."""
    for convert in (int, float):
        try:
            return convert(word)
        except ValueError:
            continue
    if word[:1] in ("[", "(") and len(word) <= _LONGEST_LIST:  # fire accepts Python lists
        try:
            return ast.literal_eval(word)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return _WORDS.findall(word) if _BARE_LIST.fullmatch(word) else word
    return word.lower() == "true" if word.lower() in ("true", "false") else word


def _constant(node: ast.expr | None) -> Any:
    return node.value if isinstance(node, ast.Constant) else None
