"""The syntax of a shell script: words with their quotes, and the commands that they form. Nothing is expanded here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_OPERATOR = re.compile(r"&>>|<<<|<<-|;;&|&>|<<|>>|>&|<&|>\||&&|\|\||;;|\|&|[;&|()<>\n]")
_ENDS_WORD = frozenset(" \t\r\n;&|<>)")
_REDIRECTS = frozenset({">", ">>", "<", "&>", "&>>", ">&", "<&", ">|", "<<", "<<-", "<<<"})
_SEPARATORS = frozenset({"\n", ";", "&", ";;", ";;&"})
# Words that close what another word opened.
_CLOSE = frozenset({")", "}", "fi", "done", "esac", "then", "do"})


class Token(NamedTuple):
    """A word as written, or an operator. `body`: the text of a heredoc."""

    text: str
    line: int
    is_word: bool
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A command of any kind."""

    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple(Node):
    """Words as written. `written`: the files that it writes from a heredoc: name, text, and whether it is literal."""

    words: list[str]
    written: list[tuple[str, str, bool]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain(Node):
    """Commands joined by `&&`, `||` and `|`."""

    first: Node
    rest: list[tuple[str, Node]]
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches(Node):
    """`if`, and commands in brackets: conditions with what runs under them; without one, always."""

    branches: list[tuple[list[Node], list[Node]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Node):
    """`case`."""

    word: str
    branches: list[tuple[list[str], list[Node]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop(Node):
    """`for`, with a name and values, or `while`, with a condition."""

    body: list[Node]
    name: str = ""
    values: Sequence[str] = ()
    condition: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defined(Node):
    """The definition of a function."""

    name: str
    body: list[Node]


def closing(text: str, at: int, closer: str) -> int:
    """Return where an opened quote or bracket is closed; the end of the text if it is not."""
    stack = [closer]
    while at < len(text):
        char, top = text[at], stack[-1]
        if char == "\\":
            at += 1
        elif char == top:
            stack.pop()
            if not stack:
                return at
        elif char == "'" and top != '"':
            end = text.find("'", at + 1)
            at = len(text) if end < 0 else end
        elif char == '"':
            stack.append('"')
        elif char == "`":
            stack.append("`")
        elif char == "$" and text[at + 1 : at + 2] in ("(", "{"):
            stack.append(")" if text[at + 1] == "(" else "}")
            at += 1
        elif char == "(" and top == ")":
            stack.append(")")
        at += 1
    return len(text)


def words_of(text: str) -> list[str]:
    """Return the words of a text as they are written."""
    return [one.text for one in tokens(text, 1) if one.is_word]


def tokens(text: str, line: int) -> list[Token]:
    """Return the words and operators of a text whose first line has this number."""
    found: list[Token] = []
    waiting: list[int] = []
    at, matched = 0, True
    while at < len(text):
        char = text[at]
        if char in " \t\r":
            at += 1
        elif text.startswith("\\\n", at) or text.startswith("\\\r\n", at):
            at = text.find("\n", at) + 1
            line += 1
        elif char == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif operator := _OPERATOR.match(text, at):
            found.append(Token(operator[0], line, False))
            at = operator.end()
            if operator[0] == "\n":
                line += 1
                for place in waiting:
                    at, line = _heredoc(text, at, line, found, place)
                waiting = []
            elif operator[0] in ("<<", "<<-"):
                waiting.append(len(found) - 1)
        else:
            end = _word_end(text, at) if matched else _plain_end(text, at)
            if end > len(text):  # a quote that nothing closes: from here on, quotes count as letters
                matched, end = False, _plain_end(text, at)
            word = text[at:end]
            if not (word.isdigit() and text[end : end + 1] in ("<", ">")):  # the number of a file: 2>&1
                found.append(Token(word, line, True))
            line += word.count("\n")
            at = end
    return found


def _word_end(text: str, at: int) -> int:
    """Return where a word ends; more than the length of the text if a quote in it is not closed."""
    start = at
    while at < len(text):
        char = text[at]
        if char in _ENDS_WORD:
            return at
        if char == "\\":
            at += 2
        elif char in "'\"`" or char == "(" or (char == "$" and text[at + 1 : at + 2] in ("(", "{")):
            if char == "(" and text[at - 1 : at] != "=":
                return at if at > start else at + 1
            if char == "'":
                end = text.find("'", at + 1)
            else:
                opens = at + 1 + (char == "$")
                end = closing(text, opens, {"{": "}", "(": ")"}.get(text[opens - 1], char))
                end = -1 if end >= len(text) else end
            if end < 0:
                return len(text) + 1
            at = end + 1
        else:
            at += 1
    return min(at, len(text))


def _plain_end(text: str, at: int) -> int:
    end = at + 1
    while end < len(text) and text[end] not in _ENDS_WORD and text[end] != "(":
        end += 1
    return end


def _heredoc(text: str, at: int, line: int, found: list[Token], place: int) -> tuple[int, int]:
    """Read the body of a heredoc into its token; return where the text goes on, and its line."""
    if place + 1 >= len(found) or not found[place + 1].is_word:
        return at, line
    ending = found[place + 1].text.strip("'\"").removeprefix("\\")
    start = at
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line += 1
        if text[at:end].strip() == ending:
            found[place] = found[place]._replace(body=text[start:at])
            return min(end + 1, len(text)), line
        at = end + 1
    found[place] = found[place]._replace(body=text[start:])
    return len(text), line


def parse(text: str, line: int = 0) -> list[Node]:
    """Return the commands of a script. `line`: that of a nested text, for all its commands; 0: the text's own."""
    listed = tokens(text.replace("\r\n", "\n"), line or 1)
    return _Parser([one._replace(line=line) for one in listed] if line else listed).all()


class _Parser:
    def __init__(self, listed: list[Token]) -> None:
        self._tokens = listed
        self._at = 0

    def all(self) -> list[Node]:
        found: list[Node] = []
        while self._at < len(self._tokens):
            found += self._list(frozenset())
            self._at += 1  # a word that closes what nothing opened
        return found

    def _peek(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else Token("", 0, False)

    def _is(self, *texts: str) -> bool:
        return self._peek().text in texts and self._at < len(self._tokens)

    def _take(self, *texts: str) -> bool:
        taken = self._is(*texts)
        self._at += taken
        return taken

    def _skip_breaks(self) -> None:
        while self._take("\n"):
            pass

    def _list(self, stops: frozenset[str]) -> list[Node]:
        """Read commands up to one of the words that end this list."""
        found: list[Node] = []
        while self._at < len(self._tokens) and self._peek().text not in stops:
            if self._peek().text in _SEPARATORS:
                self._at += 1
            elif self._peek().text in _CLOSE:
                return found
            else:
                found.append(self._chain())
        return found

    def _chain(self) -> Node:
        line = self._peek().line
        negated = self._take("!")
        first = self._command()
        rest: list[tuple[str, Node]] = []
        while self._is("&&", "||", "|", "|&"):
            sign = "|" if self._is("|&") else self._peek().text
            self._at += 1
            self._skip_breaks()
            if self._at < len(self._tokens):
                rest.append((sign, self._command()))
        return Chain(line=line, first=first, rest=rest, negated=negated) if rest or negated else first

    def _command(self) -> Node:
        token = self._peek()
        made: Node
        if token.text == "(" and [one.text for one in self._ahead()[:1]] == ["("]:
            return self._arithmetic()
        if token.text in ("{", "("):
            self._at += 1
            made = Branches(line=token.line, branches=[([], self._list(frozenset({"}", ")"})))])
            self._take("}", ")")
        elif token.text == "if":
            made = self._if()
        elif token.text in ("for", "select", "while", "until"):
            made = self._loop()
        elif token.text == "case":
            made = self._case()
        elif token.text == "function" or (token.is_word and [one.text for one in self._ahead()] == ["(", ")"]):
            made = self._function()
        else:
            return self._simple()
        while self._peek().text in _REDIRECTS and self._at < len(self._tokens):
            self._at += 2
        return made

    def _arithmetic(self) -> Node:
        """Read `((…))` as a command of this name with its words."""
        line = self._peek().line
        self._at += 2
        words = ["(("]
        while self._at < len(self._tokens) and not self._take(")"):
            words.append(self._peek().text)
            self._at += 1
        self._take(")")
        return Simple(line=line, words=words)

    def _ahead(self) -> list[Token]:
        return self._tokens[self._at + 1 : self._at + 3]

    def _if(self) -> Node:
        line = self._peek().line
        branches: list[tuple[list[Node], list[Node]]] = []
        while self._take("if", "elif"):
            condition = self._list(frozenset({"then"}))
            self._take("then")
            branches.append((condition, self._list(frozenset({"elif", "else", "fi"}))))
        if self._take("else"):
            branches.append(([], self._list(frozenset({"fi"}))))
        self._take("fi")
        return Branches(line=line, branches=branches)

    def _loop(self) -> Node:
        token = self._peek()
        self._at += 1
        name, values, condition = "", [], []
        if token.text in ("while", "until"):
            condition = self._list(frozenset({"do"}))
        else:
            name = self._peek().text
            while self._at < len(self._tokens) and not self._is("do", "in"):
                self._at += 1
            if self._take("in"):
                while self._at < len(self._tokens) and self._peek().is_word:
                    values.append(self._peek().text)
                    self._at += 1
                while self._take(";", "\n"):
                    pass
        self._take("do")
        body = self._list(frozenset({"done"}))
        self._take("done")
        return Loop(line=token.line, body=body, name=name, values=values, condition=condition)

    def _case(self) -> Node:
        token = self._peek()
        self._at += 1
        word = self._peek().text
        self._at += 1
        self._skip_breaks()
        self._take("in")
        branches: list[tuple[list[str], list[Node]]] = []
        while self._at < len(self._tokens) and not self._take("esac"):
            if self._take("\n", "(", ";;", ";"):
                continue
            patterns = []
            while self._at < len(self._tokens) and not self._take(")"):
                patterns += [] if self._is("|") else [self._peek().text]
                self._at += 1
            branches.append((patterns, self._list(frozenset({";;", ";;&", "esac"}))))
            self._at += not self._is("esac") and self._peek().text in _CLOSE
        return Choice(line=token.line, word=word, branches=branches)

    def _function(self) -> Node:
        line = self._peek().line
        self._take("function")
        name = self._peek().text
        self._at += 1
        self._take("(")
        self._take(")")
        self._skip_breaks()
        return Defined(line=line, name=name, body=[self._command()])

    def _simple(self) -> Node:
        """Read a command up to its end; of redirections, only heredocs into files matter."""
        line = self._peek().line
        words: list[str] = []
        targets: list[str] = []
        bodies: list[tuple[str, bool]] = []
        is_test = self._is("[[")
        while self._at < len(self._tokens):
            token = self._peek()
            if token.is_word or (is_test and words[-1:] != ["]]"] and token.text != "\n"):
                words.append(token.text)
                self._at += 1
            elif token.text in _REDIRECTS:
                self._at += 1
                named = self._peek()
                if token.text in ("<<", "<<-"):
                    bodies.append((token.body, named.text[:1] in "'\"\\"))
                elif token.text in (">", ">>"):
                    targets.append(named.text)
                self._at += named.is_word
            else:
                break
        if not words and not targets and not bodies:
            self._at += 1
        if words[:1] == ["tee"]:
            targets += words[1:]
        return Simple(line=line, words=words, written=[(name, *body) for name in targets for body in bodies])
