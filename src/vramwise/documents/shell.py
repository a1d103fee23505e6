"""Reads a shell script as the commands that it would run, with their words expanded. Nothing is run.

Variables, arrays, branches, loops, functions, `eval`, `cd` and files written by heredocs are followed. A word that
depends on something outside the script keeps that part as written: `$DATA_DIR`.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from vramwise.documents.shell_syntax import (
    Branches,
    Chain,
    Choice,
    Defined,
    Loop,
    Node,
    Simple,
    closing,
    parse,
    words_of,
)
from vramwise.limits.meter import Meter, TooLarge, charge

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[(\w+)\])?(\+?)=", re.ASCII)
_PARAMETER = re.compile(r"([!#]?)(\w+|[@*#?$!-])(?:\[([^\]]*)\])?(.*)", re.ASCII | re.DOTALL)
_BARE = re.compile(r"\$(?:([A-Za-z_]\w*)|([0-9@*#?$!]))", re.ASCII)
_UNSET = re.compile(r"\$(?:\w+|\{\w+\})", re.ASCII)
# A command whose output is not known is shown without its arguments, as a word that stays whole.
_UNKNOWN = re.compile(r"(?:\$\(|`)\s*([\w./-]*).*", re.ASCII | re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_NAME = re.compile(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", re.ASCII)
_SBATCH = re.compile(
    r"^#SBATCH\s+(?:(?:-N|--nodes)[ =](\d{1,4})|--(?:gres=gpu:(?:[\w.-]+:)?|gpus-per-node[ =](?:[\w.-]+:)?)(\d{1,3}))",
    re.ASCII | re.MULTILINE,
)
_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})
_SHELLS = frozenset({"bash", "sh", "zsh", "source", "."})
# Commands that train nothing and succeed.
_SUCCEED = frozenset(
    [
        "cd",
        "pushd",
        "popd",
        "true",
        ":",
        "set",
        "echo",
        "printf",
        "mkdir",
        "read",
        "unset",
        "sleep",
        "ulimit",
        "module",
        "wait",
        "rm",
    ]
)
_SPECIAL = frozenset("'\"\\$`")
# How deeply functions, `eval` and other scripts may call each other.
_DEEPEST = 8
_LONGEST_SUM = 200
# Most often that the body of `while` runs: once for every argument of the script.
_MOST_TIMES = 200
_COMPARES: dict[str, Callable[[int, int], bool]] = {
    "-eq": int.__eq__,
    "-ne": int.__ne__,
    "-gt": int.__gt__,
    "-ge": int.__ge__,
    "-lt": int.__lt__,
    "-le": int.__le__,
}
_SUMS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.Div: int.__floordiv__,
    ast.Mod: int.__mod__,
}
_Value = str | list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command: its words, its line, the folder that it runs in, and the notes on how it was reached."""

    words: list[str]
    line: int
    folder: str = ""
    notes: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Shell:
    """The state of a script. `name`: its own path; `arguments`: its words; `load`: the text of another script."""

    meter: Meter
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    load: Callable[[str], str | None] = lambda _: None
    variables: dict[str, _Value] = field(default_factory=dict)
    # The files that heredocs write.
    files: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    _functions: dict[str, list[Node]] = field(default_factory=dict)
    _loops: list[str] = field(default_factory=list)
    _depth: int = 0
    _branches: int = 0
    _over: bool = False
    # Whether the last command succeeded; None: not known.
    _status: bool | None = True

    def commands(self, text: str, line: int = 0) -> Iterator[Command]:
        """Yield the commands of a script in the order in which they run. `line`: where a nested text is."""
        for nodes, gpus in _SBATCH.findall(text) if not line else ():
            for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES") if nodes else ("SLURM_GPUS_ON_NODE",):
                self.variables[name] = nodes or gpus
        yield from self._run(parse(text, line), sure=True)

    def value(self, name: str) -> str | None:
        """Return the text of a variable; None if it is not set."""
        found = self.variables.get(name)
        return found[0] if isinstance(found, list) and found else found if isinstance(found, str) else None

    def _run(self, nodes: Sequence[Node], *, sure: bool) -> Iterator[Command]:
        for node in nodes:
            if self._over:
                return
            self.meter.begin_value()
            self.meter.step(node.line)
            try:
                yield from self._node(node, sure=sure)
            except TooLarge:  # too long to be a training, or a part of its command
                self._status = None

    def _node(self, node: Node, *, sure: bool) -> Iterator[Command]:
        if isinstance(node, Simple):
            yield from self._simple(node, sure=sure)
        elif isinstance(node, Chain):
            yield from self._chain(node, sure=sure)
        elif isinstance(node, Branches):
            for condition, body in node.branches:
                yield from self._run(condition, sure=sure)
                holds = self._status if condition else True
                if holds is not False:
                    self._branches += bool(condition)
                    yield from self._run(body, sure=sure and bool(holds))
                    self._branches -= bool(condition)
                if holds:
                    break
        elif isinstance(node, Choice):
            yield from self._choice(node, sure=sure)
        elif isinstance(node, Loop):
            yield from self._loop(node, sure=sure)
        elif isinstance(node, Defined):
            self._functions[node.name] = node.body

    def _chain(self, node: Chain, *, sure: bool) -> Iterator[Command]:
        """Run `a && b || c`: what depends on an unknown test may run."""
        yield from self._run([node.first], sure=sure)
        for sign, one in node.rest:
            runs = self._status if sign == "&&" else None if self._status is None else not self._status
            if sign == "|" or runs is not False:
                yield from self._run([one], sure=sure and (sign == "|" or bool(runs)))
        if node.negated and self._status is not None:
            self._status = not self._status

    def _choice(self, node: Choice, *, sure: bool) -> Iterator[Command]:
        subject = self._text(node.word)
        for patterns, body in node.branches:
            known = "$" not in subject
            if known and not any(fnmatchcase(subject, self._text(one)) for one in patterns):
                continue
            yield from self._run(body, sure=sure and known)
            if known:
                return

    def _loop(self, node: Loop, *, sure: bool) -> Iterator[Command]:
        """Run the body of a loop once, with the first of its values."""
        for time in range(_MOST_TIMES if node.condition else 0):
            yield from self._run(node.condition, sure=sure)
            if self._status is None and not time:
                yield from self._run(node.body, sure=False)
            if not self._status:
                break
            yield from self._run(node.body, sure=sure)
        if node.condition:
            self._status = True
            return
        values = [one for raw in node.values for one in self._fields(raw)]
        if node.name and values:
            self.variables[node.name] = values[0]
        several = f"{node.name} = {values[0]}, the first of {len(values)} in the loop of line {node.line}"
        self._loops += [several] if len(values) > 1 else []
        yield from self._run(node.body, sure=sure)
        del self._loops[len(self._loops) - (len(values) > 1) :]

    def _simple(self, node: Simple, *, sure: bool) -> Iterator[Command]:
        raw = node.words
        first = next((at for at, word in enumerate(raw) if not _ASSIGNMENT.match(word)), len(raw))
        if first == len(raw):
            for word in raw:
                self._assign(word, sure=sure)
            self._status = True
            return
        if raw[first] in ("[", "[[", "test"):
            self._status = self._test([self._known(word) for word in raw[first + 1 :] if word not in ("]", "]]")])
            return
        if raw[first] == "((":
            total = self._sum(" ".join(word if "$" not in word else self._text(word) for word in raw[first + 1 :]))
            self._status = None if total is None else total != "0"
            return
        if raw[first] in _DECLARES:
            for word in raw[first + 1 :]:
                if _ASSIGNMENT.match(word):
                    self._assign(word, sure=sure)
            self._status = True
            return
        words = [one for word in raw[:first] for one in [self._text(word)]]
        words += [one for word in raw[first:] for one in self._fields(word)]
        for target, body, quoted in node.written:
            self.files[self._text(target)] = body if quoted else self._text(f'"{_escaped(body)}"')
        if len(words) > first:
            yield from self._command(words, first, node.line, sure=sure)

    def _command(self, words: list[str], first: int, line: int, *, sure: bool) -> Iterator[Command]:
        """Run a built-in command, a function or another script; yield anything else."""
        name, rest = words[first], words[first + 1 :]
        self._status = True if name in _SUCCEED else None
        if name in ("cd", "pushd") and rest and "$" not in rest[-1]:
            self.folder = posixpath.normpath(posixpath.join(self.folder, rest[-1]))
        elif name in ("exit", "return"):
            self._over = sure and not self._branches  # a run that trains does not leave under a condition
        elif name == "shift":
            del self.arguments[: int(rest[0]) if rest and _NUMBER.fullmatch(rest[0]) else 1]
        elif name == "false":
            self._status = False
        elif name == "eval":
            yield from self._nested(" ".join(rest), line, [], sure=sure)
        elif name in self._functions:
            yield from self._nested(self._functions[name], line, rest, sure=sure)
        elif name in _SHELLS and len(rest) > 1 and rest[0].startswith("-") and rest[0].endswith("c"):
            yield from self._nested(rest[1], line, rest[3:], sure=sure)
        elif name in _SHELLS or name.endswith(".sh"):
            at = next((at for at, word in enumerate(rest) if not word.startswith("-")), len(rest))
            named = rest[at:] if name in _SHELLS else [name, *rest]
            text = self.load(posixpath.join(self.folder, named[0])) if named else None
            if text is not None:
                yield from self._nested(text, line, named[1:], sure=sure)
        elif name not in _SUCCEED:
            charge(sum(map(len, words)))
            yield Command(words=words, line=line, folder=self.folder, notes=tuple(self._loops))

    def _nested(self, body: str | list[Node], line: int, arguments: list[str], *, sure: bool) -> Iterator[Command]:
        if self._depth >= _DEEPEST:
            return
        before, over = self.arguments, self._over
        self._depth, self.arguments = self._depth + 1, arguments
        try:
            nodes = parse(body, line) if isinstance(body, str) else body
            yield from self._run(nodes, sure=sure)
        finally:
            self._depth, self.arguments, self._over = self._depth - 1, before, over

    def _assign(self, word: str, *, sure: bool) -> None:
        """Assign a variable; under an unknown condition, a value from before is kept."""
        found = _ASSIGNMENT.match(word)
        assert found is not None
        name, _, adds = found.groups()
        raw = word[found.end() :]
        value: _Value
        if raw.startswith("("):
            value = [one for item in words_of(raw[1:-1]) for one in self._fields(item)]
        else:
            value = self._text(raw)
        held = self.variables.get(name, [] if isinstance(value, list) else "")
        if adds:
            if isinstance(held, list):
                value = [*held, *(value if isinstance(value, list) else [value])]
            elif isinstance(value, str):
                value = held + value
        elif not sure and held:
            return
        charge(sum(map(len, value)) if isinstance(value, list) else len(value))
        self.variables[name] = value

    def _test(self, words: list[str | None]) -> bool | None:
        """Return whether `[ … ]` holds; None if that depends on something outside the script."""
        negated = words[:1] == ["!"]
        words = words[negated:]
        holds: bool | None = None
        if len(words) == 2 and words[0] in ("-z", "-n") and words[1] is not None:
            holds = (words[1] == "") is (words[0] == "-z")
        elif len(words) == 1 and words[0] is not None:
            holds = words[0] != ""
        elif len(words) == 3 and words[0] is not None and words[2] is not None:
            left, sign, right = words[0], words[1], words[2]
            if sign in ("=", "==", "!="):
                holds = fnmatchcase(left, right) is (sign != "!=")
            elif sign in _COMPARES and _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right):
                holds = _COMPARES[sign](int(left), int(right))
        return holds if holds is None else holds is not negated

    def _known(self, raw: str) -> str | None:
        """Return a word of a test, in which variables that are not set are empty; None if it is not known."""
        text = self._text(raw)
        text = _UNSET.sub("", text)
        return None if "$" in text or "`" in text else text

    def _text(self, raw: str) -> str:
        return " ".join(self._fields(raw, split=False))

    def _fields(self, raw: str, *, split: bool = True) -> list[str]:
        """Return the words that a word becomes: quotes are removed, variables expanded and divided at blanks."""
        charge(len(raw) // 4)
        done: list[str] = []
        open_field: list[str] = []
        is_field = False
        at = 0
        while at < len(raw):
            char = raw[at]
            found: _Value
            if char == "'":
                end = raw.find("'", at + 1)
                found = raw[at + 1 : end] if end >= 0 else char  # one that nothing closes is a letter
                at, is_field = (end if end >= 0 else at) + 1, True
            elif char == '"':
                end = closing(raw, at + 1, '"')
                found, is_field = self._quoted(raw[at + 1 : end]), True
                at = end + 1
                if isinstance(found, list) and not found and not open_field:
                    is_field = False
            elif char == "\\":
                found, at = ("" if raw[at + 1 : at + 2] == "\n" else raw[at + 1 : at + 2]), at + 2
            elif char in "$`":
                found, at, is_known = self._dollar(raw, at)
                if split and is_known and isinstance(found, str):
                    found = found.split()
            else:
                end = at + 1
                while end < len(raw) and raw[end] not in _SPECIAL:
                    end += 1
                found, at = raw[at:end], end
            if isinstance(found, str):
                open_field.append(found)
                is_field = is_field or found != ""
            elif found:
                charge(sum(map(len, found)))
                done += ["".join((*open_field, found[0])), *found[1:]]
                open_field, is_field = [done.pop()], True
        return [*done, "".join(open_field)] if is_field else done

    def _quoted(self, raw: str) -> _Value:
        """Return the text between double quotes; a list for `"$@"` and `"${words[@]}"`."""
        parts: list[str] = []
        at = 0
        while at < len(raw):
            if raw[at] == "\\" and raw[at + 1 : at + 2] in ("$", "`", '"', "\\", "\n"):
                parts.append("" if raw[at + 1] == "\n" else raw[at + 1])
                at += 2
            elif raw[at] in "$`":
                found, end, _ = self._dollar(raw, at)
                if isinstance(found, list) and not at and end == len(raw):
                    return found
                parts.append(found if isinstance(found, str) else " ".join(found))
                at = end
            else:
                end = at + 1
                while end < len(raw) and raw[end] not in "\\$`":
                    end += 1
                parts.append(raw[at:end])
                at = end
        return "".join(parts)

    def _dollar(self, raw: str, at: int) -> tuple[_Value, int, bool]:
        """Return what a `$…` stands for, where it ends, and whether it is known; else it stays as written."""
        found: _Value | None
        if raw[at] == "`":
            end = closing(raw, at + 1, "`")
            found = self._substituted(raw[at + 1 : end])
            end += 1
        elif raw.startswith("$((", at):
            end = closing(raw, at + 2, ")") + 1
            found = self._sum(raw[at + 3 : end - 2])
        elif raw.startswith("$(", at):
            end = closing(raw, at + 2, ")") + 1
            found = self._substituted(raw[at + 2 : end - 1])
        elif raw.startswith("${", at):
            end = closing(raw, at + 2, "}") + 1
            found = self._parameter(raw[at + 2 : end - 1])
        else:
            bare = _BARE.match(raw, at)
            if bare is None:
                return raw[at], at + 1, False
            end = bare.end()
            found = self._of_name(bare[1] or bare[2])
        size = 0 if found is None else len(found) if isinstance(found, str) else sum(map(len, found))
        charge(size)
        return (_UNKNOWN.sub(r"$(\1)", raw[at:end]), end, False) if found is None else (found, end, True)

    def _of_name(self, name: str) -> _Value | None:
        if name in "@*":
            return list(self.arguments)
        if name == "#":
            return str(len(self.arguments))
        if name == "0":
            return self.name
        if name.isdigit():
            return self.arguments[int(name) - 1] if 0 < int(name[:6]) <= len(self.arguments) else None
        found = self.variables.get(name)
        return found[0] if isinstance(found, list) and found else None if isinstance(found, list) else found

    def _parameter(self, inner: str) -> _Value | None:
        """Return what `${…}` stands for: a variable, an item or all of an array, a default, or a changed text."""
        found = _PARAMETER.match(inner)
        if found is None:
            return None
        sign, name, index, rest = found.groups()
        value: _Value | None
        if name == "BASH_SOURCE":
            value = self.name
        elif index in ("@", "*"):
            held = self.variables.get(name, [])
            value = held if isinstance(held, list) else [held]
        elif index is not None:
            held = self.variables.get(name, [])
            place = self._sum(index)
            inside = place is not None and isinstance(held, list) and 0 <= int(place) < len(held)
            value = held[int(place)] if inside and place is not None else None
        else:
            value = self._of_name(name)
        if sign:
            return str(len(value)) if sign == "#" and value is not None else None
        return self._changed(value, rest) if rest else value

    def _changed(self, value: _Value | None, rest: str) -> _Value | None:
        """Apply `:-default`, `%ending`, `##*/` or `/old/new` to a value."""
        colon = rest.startswith(":")
        sign, word = rest[colon : colon + 1], rest[colon + 1 :]
        if sign in ("-", "=", "?"):
            lacks = value is None or (colon and not value)
            return (None if sign == "?" else self._text(word)) if lacks else value
        if sign == "+":
            return [] if value is None or (colon and not value) else self._fields(word)
        if not isinstance(value, str) or colon:
            return None
        if sign in "#%":
            return _stripped(value, sign, self._text(rest.lstrip(sign)), longest=rest[1:2] == sign)
        if sign == "/":
            old, _, new = rest.lstrip("/").partition("/")
            old, new = self._text(old), self._text(new)
            charge(len(value) * (1 + len(new)) if old else 0)
            return value.replace(old, new, -1 if rest.startswith("//") else 1) if old else value
        return None

    def _sum(self, text: str) -> str | None:
        """Return the result of `$((…))`; None if it is not known."""

        def number(name: re.Match[str]) -> str:
            found = self._of_name(name[1])
            return found if isinstance(found, str) and _NUMBER.fullmatch(found) else name[0]

        if len(text) > _LONGEST_SUM:
            return None
        plain = text if "#" not in text and "[" not in text and ":" not in text else self._text(text)
        try:
            return str(_summed(ast.parse(_NAME.sub(number, plain).strip(), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            return None

    def _substituted(self, text: str) -> str | None:
        """Return what a command prints, of a few that depend on nothing outside the script; else None."""
        nodes = parse(text, 1)
        first = nodes[0] if len(nodes) == 1 else None
        last = first.rest[-1][1] if isinstance(first, Chain) else None
        simple = first.first if isinstance(first, Chain) else first
        if not isinstance(simple, Simple):
            return None if nodes else ""
        name, *rest = [one for raw in simple.words for one in self._fields(raw)] or [""]
        if isinstance(last, Simple):
            if name == "cd" and last.words[:1] == ["pwd"]:
                return " ".join(rest[-1:])
            counts = name == "echo" and last.words[:1] in (["wc"], ["awk"]) and "," in text
            return str(" ".join(rest).count(",") + 1) if counts else None
        if name == "expr":
            return self._sum(" ".join(rest))
        if name == "echo":
            return " ".join(rest)
        if name == "pwd":
            return self.folder or "."
        if not rest or "$" in rest[-1]:
            return None
        if name == "basename":
            return posixpath.basename(rest[0].rstrip("/")).removesuffix(rest[1] if len(rest) > 1 else "")
        if name == "dirname":
            return posixpath.dirname(rest[-1]) or "."
        return rest[-1] if name in ("realpath", "readlink") else None


def _summed(node: ast.expr) -> int:
    """Return the result of an arithmetic expression; raises ValueError for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_summed(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _SUMS:
        found = _SUMS[type(node.op)](_summed(node.left), _summed(node.right))
        if abs(found) < 10**18:
            return found
    raise ValueError


def _stripped(value: str, sign: str, pattern: str, *, longest: bool) -> str:
    """Return `${value#pattern}` and its like for patterns of a text and at most one star at either end."""
    inner = pattern.strip("*")
    if "*" in inner or "?" in inner or "[" in inner:
        return value
    if sign == "#":
        if not pattern.startswith("*"):
            return value.removeprefix(inner)
        at = value.rfind(inner) if longest else value.find(inner)
        return value if at < 0 else value[at + len(inner) :]
    if not pattern.endswith("*"):
        return value.removesuffix(inner)
    at = value.find(inner) if longest else value.rfind(inner)
    return value if at < 0 else value[:at]


def _escaped(body: str) -> str:
    return body.replace('"', '\\"')
