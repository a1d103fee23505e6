"""Hostile scripts, notebooks and shell scripts for bench/bounds.py: each can make a value, a text or the work grow.

REPRODUCERS come from the shared folder, where it is there. READERS was written after the readers shared one meter.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

from hostile_inputs import CARD, SHARED, Command, Make

Files = dict[str, str | bytes]
MADE_BY = SHARED / "readers" / "make.py"


def script(body: str, arguments: str = "seed=x", first: str = '"Qwen/Qwen3-0.6B"') -> str:
    """A script whose training has these arguments."""
    call = f"SFTTrainer({first}, args=SFTConfig({arguments}), train_dataset=None)"
    return f"from trl import SFTConfig, SFTTrainer\n{body}\n{call}\n"


def notebook(*cells: str | list[str]) -> str:
    """A notebook of these code cells."""
    made = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": one} for one in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def lines(text: str, count: int) -> str:
    """As many lines, in which `#` is the number of the line."""
    return "".join(f"{text}\n".replace("#", str(one)) for one in range(count))


def listed(text: str, count: int) -> str:
    """As many items, in which `#` is the number of the item."""
    return ",".join(text.replace("#", str(one)) for one in range(count))


def files(made: Callable[[], Files], *command: str) -> Make:
    """A command on files that are written beside one another; without a command, `fit` of the first one."""

    def make(folder: Path) -> Command:
        held = made()
        for name, content in held.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return list(command) or ["fit", next(iter(held)), *CARD]

    return make


def source(made: Callable[[], str]) -> Make:
    """`fit` of one script."""
    return files(lambda: {"train.py": made()})


def value(expression: str, body: str = "") -> Make:
    """`fit` of a script with a setting of this value."""
    return source(lambda: script(f"{body}\nx={expression}", "seed=x,run_name=x"))


def shell(made: Callable[[], str]) -> Make:
    """`predict` of a shell script beside a script."""
    return files(lambda: {"train.sh": made(), "train.py": script("x=1")}, "predict", "train.sh", *CARD)


def reproducer(name: str, verb: str) -> Make | None:
    """A command on a file that `make.py` of the shared folder writes."""
    if not MADE_BY.is_file():
        return None

    def make(folder: Path) -> Command:
        with chdir(folder):
            runpy.run_path(str(MADE_BY))
        return [verb, name, *CARD]

    return make


def launched(folder: Path) -> Command:
    """A launch line with digits that are no numbers."""
    (folder / "base.py").write_text(script("x=1"))
    return ["predict", *CARD, "--", "torchrun", "--nnodes", "²", "--nproc_per_node", "³", "base.py"]


_NAMES = (
    *("round_neg.py", "fmt_width.py", "pct_star.py", "pct_map.py", "dag.py", "unparse_lambda.py", "unparse_steps.py"),
    *("ifreturn.py", "argint_inf.py", "codec_undef.py", "magic_regex.py", "magic_blank.py", "pip_quad.py"),
    *("pip_digits.py", "yaml_again.py", "notes_flag.py", "deep_paren.py", "dbl.sh", "brace2.sh"),
)
REPRODUCERS: dict[str, Make | None] = {
    f"{name}, {verb}": reproducer(name, verb) for name in _NAMES for verb in ("predict", "fit")
}
REPRODUCERS["torchrun --nnodes ², predict"] = launched

_DEFAULT = "def f(p=[0]*100000):\n"
_FLAGS = "import argparse\np=argparse.ArgumentParser()\n"
_HEADER = "# /// script\n# dependencies = [\n"


def _side_files(kind: str, count: int, text: str) -> Files:
    loads = listed(f"**yaml.safe_load(open('s#.{kind}'))", count)
    return {
        "train.py": script(f"import yaml\nx={{{loads}}}", "**x"),
        **{f"s{one}.{kind}": text for one in range(count)},
    }


def _launch_files(accelerate: str, deepspeed: str = "{}") -> Files:
    run = "accelerate launch --num_processes 2 --config_file a.yaml train.py\n"
    return {
        "train.sh": run,
        "train.py": script("x='ds.json'", "deepspeed=x"),
        "a.yaml": accelerate,
        "ds.json": deepspeed,
    }


READERS: dict[str, Make] = {
    # formats
    "format: a nested width behind an escaped brace": value("'{{ {:>{}}'.format('x',3000000000)"),
    "format: an item's width": value("'{0[0]:>{1}}'.format(['x'],3000000000)"),
    "format: one field 60,000 times": value(f"'{'{0}' * 60_000}'.format('x'*100000)"),
    "%: bytes with a width": value("b'%2000000000d' % 1"),
    "%: bytes with a starred width": value("b'%*d' % (2000000000,1)"),
    "%: bytes, one key 60,000 times": value(f"b'{'%(a)s' * 60_000}' % {{b'a':b'x'*100000}}"),
    "%f of large numbers": value("'%(a)f'*40000 % {'a':1e308}"),
    "f-string: 60,000 fields": value(f"f'{'{t}' * 60_000}'", "t='x'*10000"),
    "f-string in an f-string": value("".join("f'{1:{" for _ in range(2)) + "1" + "".join("}}'" for _ in range(2))),
    "f-strings side by side": value(" ".join("f'{t}'" for _ in range(40_000)), "t='x'"),
    # operators and methods
    "power of powers": value("2**64**64**64"),
    "products of large numbers": value("*".join(["340282366920938463463374607431768211455"] * 900)),
    "list times list, in ten steps": source(lambda: script("x=[1]*999\n" + "x=x*999\n" * 10)),
    "bytes times bytes, in forty steps": source(lambda: script("x=b'x'*999\n" + "x=x+x\n" * 40)),
    "replace in forty steps": source(lambda: script("x='xx'\n" + "x=x.replace('x','xx')\n" * 40)),
    "join in forty steps": source(lambda: script("x='ab'\n" + "x=x.join([x,x,x])\n" * 40)),
    "upper of ΐ in forty steps": source(lambda: script("x='ΐ'*90000\n" + "x=x.upper()\n" * 40)),
    "splits of a long text": value(f"[{listed('t.split()', 900)}]", "t='a '*100000"),
    "30,000 comparisons of long lists": source(
        lambda: script("a=[0]*99999\nb=[0]*99999\nx=" + " and ".join(["a==b"] * 30_000))
    ),
    "comparisons of shared lists": value(" and ".join(["f(1)==f(1)"] * 900), "def f(a,p=[0]*99999):\n return p"),
    "max of long lists": value(f"max([{listed('t', 900)}])", "t=['a'*1000]*200"),
    # dictionaries, lists, unpacking
    "a loop over a list that is the same 1,000 times": source(
        lambda: script(f"{_DEFAULT} for x in [{listed('p', 1000)}]:\n  pass\n return x\n", listed("k#=f()", 900))
    ),
    "dictionaries that double": source(lambda: script("x={'a':1}\n" + "x={'b':x,'c':x}\n" * 50, "**x")),
    "update 30,000 times": source(lambda: script("x={}\n" + lines("x.update(a#=1)", 30_000), "**x")),
    "append 50,000 times": source(lambda: script("x=[]\n" + "x.append(x)\n" * 50_000)),
    "unpacking of 60,000 names": source(lambda: script(f"{listed('a#', 60_000)}=y\nx=a1\n", "seed=a1,x=a59999")),
    "unpacking with 200 stars": value(f"[{listed('*v', 900)}]", "v=[0]*999\nv=[*v]"),
    "starred loops in loops": source(
        lambda: script("x=[1]\n" + "".join(f"x=[y for y in [{listed('*x', 9)}]]\n" for _ in range(40)))
    ),
    "comprehensions 60 deep": value("[" * 60 + "a" + "".join(f" for a in '{'x' * 900}']" for _ in range(60))),
    "walrus 30,000 times": source(lambda: script(f"y=[{listed('(x:=#)', 30_000)}]")),
    # names, classes, functions
    "a name of 1 million letters": source(lambda: script("", "seed=" + "a" * 1_000_000)),
    "900 names of 1,000 letters": source(lambda: script("", listed(f"k#={'a' * 1000}#", 900))),
    "one name of 900,000 letters, 900 times": source(
        lambda: script("def f(p=" + "a" * 900_000 + "):\n return p\nx=f()", listed("k#=x", 900))
    ),
    "an argument of 1 million letters": source(lambda: script("", "a" * 1_000_000 + "=1")),
    "900 arguments of 1,000 letters": source(lambda: script("", listed("a" * 1000 + "#=1", 900))),
    "a class of 45,000 methods": source(
        lambda: script(
            "class C:\n def __init__(self):\n"
            + lines("  self.a#=self.b", 2000)
            + lines(" def f#(self):pass", 40_000)
            + "x=C().a1\n"
        )
    ),
    "40,000 classes in a line": source(
        lambda: script(
            "class C0:\n f=1\n"
            + "".join(f"class C{one + 1}(C{one}):\n f{one}=1\n" for one in range(25_000))
            + "x=C25000().f0"
        )
    ),
    "dataclass: 40,000 fields, 900 objects": source(
        lambda: script("class C:\n" + lines(" f#:int=1", 40_000) + f"x=[{listed('C(f#=2)', 900)}]")
    ),
    "HfArgumentParser of one class 900 times": source(
        lambda: script(
            "class C:\n"
            + lines(" f#:int=1", 20_000)
            + f"a=HfArgumentParser(({listed('C', 900)})).parse_args_into_dataclasses()\nx=a[3].f1"
        )
    ),
    "HfArgumentParser: 900 short names for 30,000 fields": source(
        lambda: script(
            "class C:\n"
            + lines(" a_#:int=1", 30_000)
            + f"x=HfArgumentParser(C).parse_dict({{{listed(repr('a_x#') + ':1', 900)}}})[0].a_1"
        )
    ),
    "argparse: 20,000 flags, 900 uses": source(
        lambda: script(_FLAGS + lines("p.add_argument('--a#',default=1)", 20_000), listed("k#=p.parse_args().a1", 900))
    ),
    "argparse: 20,000 flags, 1,500 given": files(
        lambda: {
            "train.sh": "python train.py " + " ".join(f"--a{one} 1" for one in range(1_500)) + "\n",
            "train.py": script(_FLAGS + lines("p.add_argument('--a#',default=1)", 20_000) + "a=p.parse_args()\nx=a.a1"),
        },
        "fit",
        "train.sh",
        *CARD,
    ),
    "typer: 60,000 options": files(
        lambda: {"train.py": script(f"@app.command()\ndef f({listed('a#=1', 60_000)}):\n return a1\nx=f()")},
        *("predict", *CARD, "--", "python", "train.py", "--a1", "2"),
    ),
    "click: 20,000 options": files(
        lambda: {
            "train.py": script(lines("@click.option('--a#',default=1)", 20_000) + "def f(a1):\n return a1\nx=f()")
        },
        *("predict", *CARD, "--", "python", "train.py", "--a1", "2"),
    ),
    "40,000 trainings": source(lambda: script("x=1\n" + "SFTTrainer(m)\n" * 40_000)),
    "a model passed on 20,000 times": source(
        lambda: script(
            "m=A.from_pretrained('Qwen/Qwen3-0.6B')\n" + "m=get_peft_model(m,LoraConfig(r=8))\n" * 20_000, "seed=1", "m"
        )
    ),
    "20,000 ways to make a model": source(
        lambda: script(lines("if q#:\n m=A.from_pretrained('a#')", 20_000), "seed=1", "m")
    ),
    "a match of 20,000 cases": source(lambda: script("match q:\n" + lines(" case #:\n  x=#", 20_000))),
    "90 loops in loops": source(
        lambda: script("".join(" " * depth + f"for a{depth} in b:\n" for depth in range(19)) + " " * 19 + "x=1\n")
    ),
    "20,000 tokenizing calls": source(
        lambda: (
            script(lines("t=tok(a,max_length=#,truncation=True)", 20_000))
            .replace("SFT", "")
            .replace("trl", "transformers")
        )
    ),
    # how Python parses it
    "open brackets, 200 deep": source(lambda: script("x=" + "[{(" * 60)),
    "lambdas in brackets": source(lambda: script("x=" + "(lambda a:" * 90 + "1" + ")" * 90)),
    "a number of 100,000 digits": source(lambda: script("x=" + "9" * 100_000)),
    "a wide line of 200,000 letters": source(lambda: script("", f"run_name='{'😀' * 200_000}',seed=1")),
    "1 million empty lines after a magic": source(lambda: "%time x=1\n" + "\n" * 1_000_000 + script("x=1")),
    # what is installed
    "PEP 723: 40,000 blocks that do not end": source(lambda: "# /// script\n" * 45_000 + script("x=1")),
    "PEP 723: nested lists": source(lambda: _HEADER + "# " + "[" * 100_000 + "\n# ///\n" + script("x=1")),
    "pip: a pin of 300,000 digits": source(lambda: f"# /// script\n# 'trl=={'9' * 300_000}'\n# ///\n" + script("x=1")),
    "pip: 60,000 options": source(
        lambda: "'''\npip install " + "a[" * 60_000 + " trl==1.0 -U git+" + "/a" * 60_000 + "\n'''\n" + script("x=1")
    ),
    "requirements.txt: 15 MB": files(
        lambda: {"train.py": script("x=1"), "requirements.txt": "torch>=" + "9." * 7_000_000}
    ),
    # notebooks
    "notebook: 20,000 cells of magics": files(
        lambda: {"train.ipynb": notebook(*["%%bash\n!a"] * 20_000, script("x=1"))}
    ),
    "notebook: 40,000 cells, one not Python": files(
        lambda: {"train.ipynb": notebook(*["a=1"] * 40_000, "a b", script("x=1"))}
    ),
    "notebook: 900,000 empty lines in pieces": files(
        lambda: {"train.ipynb": notebook(["\n"] * 900_000, script("x=1"))}
    ),
    "notebook: one character a string": files(lambda: {"train.ipynb": notebook(list(script("x=1" + " " * 900_000)))}),
    "notebook: 60 MB of picture": files(
        lambda: {
            "train.ipynb": notebook(script("x=1")).replace(
                '"outputs": []', '"outputs": [{"data": {"image/png": "' + "iVBORw0K" * 7_500_000 + '"}}]'
            )
        }
    ),
    # text in a script that is parsed
    "yaml in a script: aliases of aliases": source(
        lambda: script(
            "import yaml\nx=yaml.safe_load('''a0: &a0 [1,1]\n"
            + "".join(f"a{one + 1}: &a{one + 1} [*a{one},*a{one}]\n" for one in range(30))
            + "''')",
            "**x",
        )
    ),
    "yaml in a script: a number in base 60": source(
        lambda: script("import yaml\nx=yaml.safe_load('a: 1" + ":59" * 60_000 + "\\nb: 1')", "**x")
    ),
    "yaml in a script: 900 texts": source(
        lambda: script(
            "import yaml\nt='a: [" + "0," * 3000 + "]\\nb: '\n" + f"x=[{listed('yaml.safe_load(t+str(#))', 900)}]"
        )
    ),
    "json in a script: 90,000 brackets": source(lambda: script(f"import json\nx=json.loads('\\n{'[' * 90_000}')")),
    # files beside it
    "12 YAML files of 1 MB": files(
        lambda: _side_files("yaml", 12, "".join(f"a{one}: 1\n" for one in range(15_000)) + "#" * 800_000)
    ),
    "200 YAML files of 100 KB": files(
        lambda: _side_files("yaml", 200, "".join(f"a{one}: ! 1\n" for one in range(9_000)))
    ),
    "accelerate file of aliases": files(
        lambda: _launch_files(
            "a0: &a0 [1,1]\n" + "".join(f"a{one + 1}: &a{one + 1} [*a{one},*a{one}]\n" for one in range(30))
        ),
        "predict",
        "train.sh",
        *CARD,
    ),
    "DeepSpeed file of 900 KB": files(
        lambda: _launch_files(
            "distributed_type: DEEPSPEED\n", json.dumps({"zero_optimization": {f"a{one}": [1] for one in range(9_000)}})
        ),
        "predict",
        "train.sh",
        *CARD,
    ),
    "20 modules of 1 MB beside a script": files(
        lambda: {
            "train.py": script(lines("from m# import f", 20) + "x=f()"),
            **{f"m{one}.py": "def f():\n return 1\n" + "a=1\n" * 120_000 for one in range(20)},
        }
    ),
    "20 modules that import all of one another": files(
        lambda: {
            "train.py": script(lines("from m# import f", 20) + "x=f()"),
            **{
                f"m{one}.py": lines("from m# import f", 20) * 400
                + "def f():\n return f()\n"
                + "f()\n" * 9_000
                + "def f():\n return f()\n"
                + lines("def g#():f()", 9_000)
                for one in range(20)
            },
        }
    ),
    # shell
    "shell: ${A//x/y} in forty steps": shell(
        lambda: "A=xxxx\n" + "A=${A//x/xx}${A}${A:-x}\n" * 40 + "python train.py $A\n"
    ),
    "shell: {1..999999999}": shell(
        lambda: "for i in {1..999999999}; do echo {1..999999999}; done\npython train.py {1..9999999}\n"
    ),
    "shell: here-documents": shell(
        lambda: "cat <<EOF\n" + "$A$A${A:-" * 60_000 + "\nEOF\n" * 9000 + "python train.py\n"
    ),
    "shell: $( ) 100,000 deep": shell(
        lambda: "A=" + "$(" * 100_000 + "\n" + "echo " + "`" * 100_000 + "\npython train.py\n"
    ),
    "shell: $(( )) of powers": shell(lambda: "N=$((9**9**9**9))\npython train.py --n $((10**999999999)) $N\n"),
    "shell: 900,000 continued lines": shell(lambda: "python \\\n" + "\\\n" * 450_000 + " train.py\n"),
    "shell: 20,000 variables used in a line": shell(
        lambda: (
            "".join(f"A{one}={'x' * 20}\n" for one in range(20_000))
            + "python train.py "
            + "".join(f"$A{one} " for one in range(20_000))
            + "\n"
        )
    ),
    "shell: 90,000 commands that do not train": shell(
        lambda: "accelerate launch --a b; " * 36_000 + "\npython train.py\n"
    ),
}
