"""One meter for the readers: every result is charged for its size before it is built, wherever it is built."""

import ast
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from vramwise import trainers
from vramwise.documents import python as documents
from vramwise.documents.python import expressions, functions, growth
from vramwise.documents.python.edit import apply_to_script
from vramwise.documents.refusal import EditRefused
from vramwise.errors import ConfigError
from vramwise.limits.meter import Meter, measure, rendered
from vramwise.opening.options import Options
from vramwise.opening.scripts import launched
from vramwise.trainers import launch
from vramwise.trainers.scripts.reading import Reading, read_script
from vramwise.types import Edit

DOCUMENTS, TRAINERS = Path(documents.__file__).parent, Path(trainers.__file__).parent
SHELL = DOCUMENTS.parent / "shell.py"
MODULES = sorted([*DOCUMENTS.glob("*.py"), *(TRAINERS / "scripts").glob("*.py"), TRAINERS / "launch.py", SHELL])
MANY, LARGE = 350, 300  # parts of a hostile input, and units that are charged for them


class Sites(ast.NodeVisitor):
    """The charges of a module: the function and which of its charges → first and last line."""

    def __init__(self, tree):
        self.names, self.found = [], {}
        self.visit(tree)

    def visit_FunctionDef(self, node):
        self.names.append(node.name)
        self.generic_visit(node)
        self.names.pop()

    visit_ClassDef = visit_FunctionDef  # noqa: N815

    def visit_Call(self, node):
        if isinstance(node.func, ast.Name) and node.func.id in ("charge", "work"):
            name = ".".join(self.names)
            number = sum(one.startswith(f"{name} ") for one in self.found) + 1
            self.found[f"{name} {number}"] = (node.lineno, node.end_lineno)
        self.generic_visit(node)


@cache
def sites(path):
    return Sites(ast.parse(Path(path).read_text())).found


class Spy(Meter):
    """Remembers what was charged where."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def charge(self, size):
        self._see(size)
        super().charge(size)

    def work(self, size):
        self._see(size)
        super().work(size)

    def _see(self, size):
        by = sys._getframe(2)
        if "self" not in by.f_locals and by.f_code.co_name in ("charge", "work"):
            at = by.f_back
            for site, (first, last) in sites(at.f_code.co_filename).items():
                if first <= at.f_lineno <= last:
                    self.seen[site] += size


def script(body, args="seed=x"):
    return f"{body}\nfrom trl import SFTConfig, SFTTrainer\nSFTTrainer('m', args=SFTConfig({args}))\n"


def lines(text, count=MANY):
    """A line for each number, which stands for `#`."""
    return "".join(f"{text}\n".replace("#", str(one)) for one in range(count))


def listed(text, count=MANY):
    return ", ".join(text.replace("#", str(one)) for one in range(count))


def flags(added, call="parse_args()"):
    return f"import argparse\np = argparse.ArgumentParser()\n{added}args = p.{call}\n"


TEXT = f"t = '{'t' * MANY}'\n"
MAP = f"m = {{{listed(chr(39) + 'k#' + chr(39) + ': 1')}}}\n"
LIST = f"v = [{listed('1')}]\n"
NOTES = f"import os\nn = [{listed('os.environ.get(chr(39), 1)'.replace('chr(39)', chr(39) + 'N#' + chr(39)))}]\n"
STARRED = f"A.from_pretrained({listed('*a')})"
TWO = f"from transformers import AutoModel as A\nif q:\n m = {STARRED}\nelse:\n m = {STARRED.replace('(', '(1, ')}\n"
CLASS = "class C:\n" + lines(" f#: int = #")
MEMBERS = lines("a.b# = #")
GROWS = {
    "lineage 1": script(f"class C({listed('B#')}):\n f = 1\nx = C().f"),
    "all_fields 1": script(f"{CLASS}x = C().f1"),
    "_entry_by_entry 1": script(f"{MAP}if q:\n x = m\nelse:\n x = dict(m, z=2)"),
    "one_of 1": script(f"{TEXT}for x in [t, t]:\n pass"),
    "joined 1": script(f"{MAP}x = m | m"),
    "joined 2": script(f"{LIST}x = v + v"),
    "parts_of 1": script(lines("if q#:\n t = [#, 1]") + "a, x = t"),
    "_shown 1": script(f"x = lambda: [{listed('1')}]"),
    "CommandLine.dispatched 1": script("").replace("SFTTrainer(", "def f(args):\n SFTTrainer(").replace("=x", "=args.a")
    + f"p.set_defaults({listed('k#=1')}, func=f)\n",
    "CommandLine.parsed_flags 1": script(flags(lines("p.add_argument('--a#', default=1)")), "seed=args.a1"),
    "CommandLine.parsed_flags 2": script(
        flags("p.add_argument('--a')\n", f"parse_args(['--a', '{'t' * MANY}'])"), "seed=args.a"
    ),
    "CommandLine._flag 1": script(TEXT + flags("p.add_argument('--a', default=t)\n"), "seed=args.a"),
    "_begun 1": script(f"{CLASS}x = HfArgumentParser(C).parse_args_into_dataclasses()[0].f1"),
    "class_fields 1": script(f"{CLASS}x = C().f1"),
    "as_entries 1": script("import yaml\nx = yaml.safe_load('a:\\n" + "- 1\\n" * MANY + "')"),
    "Evaluator.arguments 1": script(MAP, "**m"),
    "Evaluator.arguments 2": script(f"{MAP}if q:\n x = m\nelse:\n x = dict(m)", "**x"),
    "Evaluator._member 1": script("x = a" + ".b" * MANY),
    "Evaluator._member 2": script(f"{TEXT}x = {{'a': 1}}[t]"),
    "Expressions.items 1": script(f"{LIST}x = [*v]"),
    "Expressions._comprehension 1": script("x = [a for a in 'abc']"),
    "Expressions._comprehension 2": script(f"{LIST}x = [[b for b in v] for a in [1, 2]]"),
    "Expressions._selected 1": script(f"{MAP}x = {{k: v for k, v in m.items()}}"),
    "Expressions._combined 1": script(f"{TEXT}x = t * 2"),
    "Expressions._text 1": script(f"{TEXT}x = f'{{t}}'"),
    "Expressions.mapping 1": script(f"{MAP}x = {{**m}}"),
    "same 1": script("".join(f"{one}.add_argument('--a', default=[{listed('1')}])\n" for one in "pq"), "seed=1"),
    "Functions._pure 1": script(f"c = C()\n{lines('c.a# = #')}x = vars(c)"),
    "Functions._pure 2": script(f"{MAP}x = vars(dict(m))"),
    "Functions._environment 1": script(f"import os\n{TEXT}x = os.environ.get(t, 1)"),
    "Functions._attribute 1": script(f"{TEXT}x = getattr(torch, t)"),
    "Functions._mapping 1": script(f"{MAP}x = dict(m)"),
    "Functions._parsed 1": script("import yaml\nx = yaml.safe_load('a:\\n" + "- 1\\n" * MANY + "')"),
    "Functions._method 1": script(f"{TEXT}x = {{'a': 1}}.get(t)"),
    "_of_text 1": script(f"{TEXT}x = t.replace('t', 'tt')"),
    "_without 1": script(f"{MAP}m.pop('k1')\nx = m"),
    "_simple 1": script(f"{TEXT}x = list(t)"),
    "Names.lookup 1": script(lines("x = #")),
    "Names._of_self 1": script(
        "class C:\n def __init__(self):\n  self.b = self.c\n" + lines(" def f#(self): pass") + "x = C().b"
    ),
    "Names._with_attributes 1": script(f"a = dict()\n{MEMBERS}x = a"),
    "Names._with_attributes 2": script("a = dict()\n" + "a.b = 1\n" * MANY + "x = a"),
    "Names._with_attributes 3": script(f"{MAP}m.c = 1\nx = m"),
    "Names._holds 1": script("def f(q):\n" + lines(" if q == #:\n  return #") + "x = f(0)"),
    "Names._holds 2": script(f"{NOTES}if n == n:\n x = 1"),
    "Names._given 1": script(f"def f({listed('a#=1')}):\n return a1\nx = f()"),
    "Names._others 1": script(f"def f(**k):\n return k\nx = f({listed('a#=1')})"),
    "Names._calls_of 1": script("").replace("SFTTrainer(", "def f(x=1):\n SFTTrainer(") + "f(1)\n" * MANY,
    "Names._passed 1": script(f"def f(a=1, **k):\n return a\nx = f({listed('b#=1')}, a=1)"),
    "_copy 1": script(f"import copy\nc = C()\n{lines('c.a# = #')}x = copy.deepcopy(c)"),
    "_attributes 1": script(f"class C:\n def __init__(self):\n{lines('  self.a# = #')}x = C().a1"),
    "plain 1": script(f"{LIST}x = v"),
    "merged 1": script(f"{NOTES}x = n == n"),
    "_Walk._plain 1": script("try:\n try:\n  a()\n except E:\n  a()\nexcept E:\n" + lines(" b# = 1") + "x = 1"),
    "read_source 1": script("x = 1"),
    "Shell._fields 1": f"echo {'a' * 4 * MANY}\npython train.py\n",
    "Shell._fields 2": f"A=({'a ' * MANY})\npython train.py ${{A[@]}}\n",
    "Shell._dollar 1": f"A={'a' * MANY}\npython train.py $A\n",
    "Shell._assign 1": f"A={'a' * MANY}\npython train.py\n",
    "Shell._changed 1": f"A={'a' * MANY}\npython train.py ${{A//b/c}}\n",
    "Shell._command 1": f"python train.py {'a' * MANY}\n",
    "unknown_flags 1": flags("p.add_argument('--x')\n") + lines("f(#)") + script(""),
    "Chain._branches 1": f"{TWO}from trl import SFTTrainer\nSFTTrainer(m)\n",
    "Chain._branches 2": f"{TWO.replace('*a)', '*a, load_in_4bit=True)')}from trl import SFTTrainer\nSFTTrainer(m)\n",
    "Collected.is_open 1": script("", listed("k#=unknown")),
    "Collected.add 1": script(f"{TEXT}x = t"),
    "Collected.lacking 1": script("", listed("*a")),
    "_cut 1": "from transformers import Trainer\ndef f():\n" + lines(" g(a#)") + "Trainer('m')\n",
    "Methods._not_checkpointed 1": script(
        "model.gradient_checkpointing_disable()", listed("k#=os.environ.get('A', 1)")
    ),
    "Training._removed 1": script(lines("import m#") + "x = 1"),
    "Training._changed_arguments 1": script("x = 1\n" * MANY),
    "Training._changed_arguments 2": script(lines("t.b# = #") + "x = 1").replace(
        "SFTTrainer('m'", "t = SFTTrainer('m'"
    ),
}


def read(text, meter):
    if "import" not in text:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launch, "Meter", lambda: meter)
            return launch.read_shell(text)[0]
    return read_script("t.py", text.encode(), Reading(meter=meter, bf16=True))


def test_every_charge_has_an_input_that_needs_it():
    assert sorted(GROWS) == sorted({site for path in MODULES for site in sites(str(path))})


@pytest.mark.parametrize("site", GROWS)
def test_what_grows_is_charged_where_it_grows(site):
    meter = Spy()
    read(GROWS[site], meter)
    assert meter.seen[site] >= LARGE


TEXTS = (
    "",
    "a",
    "ΐß",
    "a b c " * 9,
    "x" * 99,
    "{} {0!a} {1:>99} {{}}",
    "%s %5d %.3f %%",
    "%(a)s-%(b)r",
    *("%f", "{:f}", "{{ {:>{}}"),
    "\U000e0001\\'\n" * 9,
)
VALUES = (
    *TEXTS,
    b"%d",
    b"%999d",
    b"%*d",
    0,
    3,
    -7,
    9000,
    2**128,
    2.5,
    1e308,
    True,
    None,
    [],
    ["a", "bc"],
    ["a" * 50] * 9,
    [[1, 2], [3]],
    (1, "b"),
)
VALUES += ({"a": 1, "b": "x" * 50}, {"a": [1] * 9})


def made(function, *values):
    """The size of a result; 0 if there is none."""
    try:
        return measure(function(*values))
    except Exception:
        return 0


def within(bound, values):
    return growth.size_of(bound, values) + 1


def test_every_operator_has_its_bound():
    evaluated = {*expressions._ARITHMETIC.values(), *expressions._COMPARISONS.values()}
    assert set(growth.OPERATORS) == evaluated
    assert set(growth.FUNCTIONS) == set(functions._SIMPLE)


@pytest.mark.parametrize("operation", growth.OPERATORS, ids=lambda one: one.__name__)
def test_operators_make_nothing_larger_than_their_bound(operation):
    for left in VALUES:
        for right in VALUES:
            bound = within(growth.OPERATORS[operation], (left, right))
            assert bound > 300_000 or made(operation, left, right) <= bound, (left, right)


@pytest.mark.parametrize("method", growth.METHODS)
def test_methods_make_nothing_larger_than_their_bound(method):
    for text in TEXTS:
        for given in ((), *((one,) for one in VALUES), *((one, other) for one in VALUES for other in VALUES)):
            bound = within(growth.METHODS[method], (text, *given))
            assert bound > 300_000 or made(getattr(text, method), *given) <= bound, (text, given)


@pytest.mark.parametrize("function", growth.FUNCTIONS)
def test_functions_make_nothing_larger_than_their_bound(function):
    for given in (*((one,) for one in VALUES), *((one, other) for one in VALUES for other in VALUES)):
        bound = within(growth.FUNCTIONS[function], given)
        assert bound > 300_000 or made(functions._SIMPLE[function], *given) <= bound, given


# Each of these would take gigabytes, or minutes.
BOMBS = (
    *(
        "'{:>{}}'.format('x', 3000000000)",
        "'{:{}{}}'.format('x', '>', 999999999)",
        "('{0.__doc__}' * 9000).format('x')",
    ),
    *("('{0}' * 9000).format(t * 200)", "('{0!a}' * 9000).format(t * 200)", "'{:.999999999f}'.format(1.0)"),
    *("'%*d' % (2000000000, 1)", "'%999999999d' % 1", "'%(a)s' * 9000 % {'a': t * 200}", "'%.*f' % (999999999, 1.0)"),
    *("'%r' * 9000 % ([t * 200] * 9000,)", "t * 10**10", "[0] * 10**10", "(1, 2) * 10**10", "10**10 * t", "9**9**9**9"),
    *("2**(2**60)", "round(5, -10**9)", "(t * 200).join(t * 200)", "(t * 200).join([t * 200] * 9)", "f'{t * 20000}'"),
    *(
        "(t * 200).replace('t', t * 200)",
        "(t * 200).replace('', t * 200)",
        "[[t * 200] * 900] * 900",
        "str([t] * 90000)",
    ),
    *("list(t * 2000)", "tuple(t * 2000)", "(t * 2000).split('t')", "(t * 2000).upper()", "[*v, *v, *v] * 9000"),
    *(
        "os.path.join(*[t])",
        "os.path.join(t * 900, t * 900)",
        "Path(t * 400, t * 400, t * 400)",
        "1 << 10**9",
        "-(10**10**9)",
    ),
    *(
        "[a for a in t * 900]",
        "{**m, **{'k': t * 900}}",
        "dict(m, **m) | m",
        "t * 900 + t * 900",
        "getattr(torch, t * 900)",
    ),
    *("0x" + "f" * 90000, "[" * 80 + "1" + "]" * 80, "sorted(t * 10**10)", "yaml.safe_load('a: 1\\n' * 90000)"),
)


@pytest.mark.parametrize("body", BOMBS)
def test_a_bomb_stays_small(body):
    meter = Spy()
    found = read(script(f"{TEXT}{LIST}{MAP}x = {body}"), meter)
    assert meter.used < meter.reading_units / 2
    assert len(str(found.values.get("seed"))) <= 300_000


def test_a_value_that_is_too_large_leaves_the_others_their_share():
    long = "r" * 900
    using_all = "[" + "'t' * 300, " * 900 + "]"
    found = read(script(f"x = {using_all}", f"run_name='{long}', seed=x"), Spy())
    assert "seed" not in found.values
    assert found.values["run_name"] == long


SHARED = "".join(f"b{one + 1} = [{', '.join([f'b{one}'] * 9)}]\n" for one in range(25))
DEEP = "".join(f"x = {word}\n" for word in ("x.upper() * 2", "f'{x}{x}'", "str([x, x])", "x + x", "'%s%s' % (x, x)"))


@pytest.mark.parametrize("body", [f"b0 = [1]\n{SHARED}x = b25", f"x = 'x'\n{DEEP * 11}"])
def test_results_that_share_parts_are_counted_as_what_they_say(body):
    meter = Spy()
    assert "seed" not in read(script(body), meter).values
    assert meter.used < meter.reading_units / 2


def test_all_readings_of_a_command_share_the_meter():
    meter = Meter()
    text = script("x = 1")
    read(text, meter)
    meter.used = meter.all_units - 10
    with pytest.raises(ConfigError, match="again and again"):
        read(text, meter)
    with pytest.raises(ConfigError, match="again and again"):
        read(text, meter)


def test_an_edit_that_cannot_be_read_again_is_refused_with_the_reason():
    meter = Meter()
    found = read(script("x = 1"), meter)
    meter.used = meter.all_units
    with pytest.raises(EditRefused, match="cannot be checked: reading this source again and again"):
        apply_to_script(found, [Edit(op="set", key="seed", value=2)])


def test_quotes_that_do_not_match_are_said():
    with pytest.raises(ConfigError, match="no closing quotation"):
        launched("torchrun 'train.py", Options())


def test_a_shell_variable_that_doubles_is_not_expanded():
    text = "A=xxxxxxxx\n" + "A=$A$A\n" * 40 + "python train.py\n"
    assert launch.read_shell(text)[0].script == "train.py"


@pytest.mark.parametrize("text", ["${a:-" * 90_000, "$A" * 90_000, "do " * 90_000, "-a " * 90_000, "x" * 400_000])
def test_a_hostile_command_is_passed_over(text):
    assert launch.read_shell(f"A=x\necho {text}\npython train.py\n")[0].script == "train.py"


def test_odd_digits_of_a_launch_line_are_no_number():
    assert launch.read_launch(["torchrun", "--nnodes", "²", "--nproc_per_node", "³", "train.py"]).gpus is None


def test_what_text_a_value_has_is_not_underestimated():
    assert all(rendered(one) >= len(str(one)) for one in VALUES)
