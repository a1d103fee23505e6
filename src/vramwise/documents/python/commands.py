"""Finds the options that click and typer create from a function's parameters, so that `--args` can be parsed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vramwise.documents.python.combine import defaults_of
from vramwise.documents.python.flags import Flag
from vramwise.documents.python.scopes import Index, Scope, Site, dotted

_MAKES = frozenset({"option", "argument", "Option", "Argument"})
_COMMANDS = frozenset({"command", "callback", "group"})


def options_of(found: Index) -> dict[str, Flag]:
    """Return the options of all click and typer commands, by their name on the command line."""
    flags: dict[str, Flag] = {}
    for scope in found.module.functions.values():
        function = scope.node
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and _is_command(function):
            site = Site(scope=found.module, order=2**31)
            for flag in (*_of_click(function, site), *_of_typer(scope, function, site)):
                flags[flag.words[0]] = flag
    return flags


def functions_of_subcommands(found: Index) -> dict[str, str]:
    """Map each argparse subcommand to the function of `add_parser(…).set_defaults(func=…)`."""
    parsers: dict[str, str] = {}
    for scope in _scopes(found.module):
        for name, bindings in scope.bindings.items():
            made = bindings[-1].value
            if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr == "add_parser":
                parsers[name] = next(iter(_words(made)), "")
    functions: dict[str, str] = {}
    for call, _ in found.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "set_defaults":
            command = parsers.get(dotted(call.func.value) or "")
            named = [one.value.id for one in call.keywords if isinstance(one.value, ast.Name)]
            if command and named:
                functions[command] = named[0]
    return functions


def _scopes(module: Scope) -> list[Scope]:
    return [module, *module.functions.values()]


def _is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = [dotted(one.func if isinstance(one, ast.Call) else one) or "" for one in function.decorator_list]
    return any(name.rpartition(".")[2] in _COMMANDS for name in names)


def _of_click(function: ast.FunctionDef | ast.AsyncFunctionDef, site: Site) -> Iterator[Flag]:
    """Yield options of `@click.option("--model-name", "-m", "name", type=int)`, in the order of arguments."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and (dotted(decorator.func) or "").rpartition(".")[2] in _MAKES:
            words = _words(decorator)
            named = {one.arg: one.value for one in decorator.keywords}
            own = next((word for word in words if not word.startswith("-")), "")
            long = max((word for word in words if word.startswith("-")), key=_dashes, default=own)
            name = (own or long).partition("/")[0].lstrip("-").replace("-", "_").lower()
            spelt = tuple(word for word in words if word.startswith("-")) or (own,)
            kind = dotted(named["type"]) if "type" in named else ""
            is_flag = isinstance(named.get("is_flag"), ast.Constant) or any("/" in word for word in spelt)
            yield from _flags(name, spelt, decorator.lineno, site, kind or "", is_flag)


def _of_typer(scope: Scope, function: ast.FunctionDef | ast.AsyncFunctionDef, site: Site) -> Iterator[Flag]:
    """Yield options of parameters such as `size: int = typer.Option(2, "--size", "-s")`.

    Also `size: Annotated[int, typer.Option("-s")] = 2`.
    """
    defaults = defaults_of(function.args)
    for parameter in (*function.args.args, *function.args.kwonlyargs):
        default = defaults.get(parameter.arg)
        parts = [*ast.walk(parameter.annotation)] if parameter.annotation is not None else []
        made = [one for one in (default, *parts) if isinstance(one, ast.Call)]
        marks = [one for one in made if (dotted(one.func) or "").rpartition(".")[2] in _MAKES]
        is_argument = any((dotted(one.func) or "").endswith("Argument") for one in marks)
        kinds = {one.id for one in parts if isinstance(one, ast.Name)}
        kind = next((one for one in ("str", "int", "float") if one in kinds), "")
        word = "--" + parameter.arg.replace("_", "-")
        words = tuple(word for mark in marks for word in _words(mark) if word.startswith("-"))
        no = () if words else (f"--no-{word[2:]}",)
        if is_argument or (not marks and default is None):
            yield Flag(name=parameter.arg, words=(parameter.arg,), line=parameter.lineno, site=site, kind=kind)
        elif "bool" in kinds:
            yield from _flags(parameter.arg, ("/".join((words[:1] or (word,)) + no), *words[1:]), 0, site, kind, True)
        else:
            yield from _flags(parameter.arg, words or (word,), parameter.lineno, site, kind, False)


def _flags(name: str, words: tuple[str, ...], line: int, site: Site, kind: str, is_flag: bool) -> Iterator[Flag]:
    """Yield one flag, or two for `--x/--no-x`."""
    on = tuple(word.partition("/")[0] for word in words)
    off = tuple(word.partition("/")[2].strip() for word in words if "/" in word)
    yield Flag(name=name, words=on, line=line, site=site, kind=kind, switch=True if is_flag else None)
    if off:
        yield Flag(name=name, words=off, line=line, site=site, kind=kind, switch=False)


def _words(call: ast.Call) -> list[str]:
    return [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def _dashes(word: str) -> int:
    return len(word) - len(word.lstrip("-"))
