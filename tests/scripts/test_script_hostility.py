"""Source that is odd or hostile: a value, or one sentence, in bounded time; never a traceback."""

import json
import time

import pytest

from vramwise.documents.python.notebook import cells_of
from vramwise.documents.python.original import Splice, spliced
from vramwise.errors import ConfigError
from vramwise.trainers.scripts.reading import NoTraining, Reading, read_script

HEAD = "from trl import SFTConfig, SFTTrainer\n"
TAIL = "\nt = SFTTrainer('m', args=SFTConfig(per_device_train_batch_size=x))\n"
MOST_SECONDS = 10  # of processor time; most take a few milliseconds


def script(body):
    return HEAD + body + TAIL


def notebook(*cells, **more):
    shape = {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps({**shape, **more})


def code(text):
    return {"cell_type": "code", "source": text, "outputs": [], "metadata": {}}


def read(text):
    data = text if isinstance(text, bytes) else text.encode()
    start = time.process_time()
    try:
        return read_script("t.py", data, Reading(bf16=True, capability=(8, 9)))
    finally:
        assert time.process_time() - start < MOST_SECONDS


MANY = ", ".join(f"k{number}=1" for number in range(1_001))
REFUSED = {
    "deep brackets": (script("x = " + "(" * 5000 + "1" + ")" * 5000), "nested"),
    "deep signs": (script("x = " + "-" * 20000 + "1"), "nested too deeply"),
    "a long sum": (script("x = " + "+".join(["1"] * 20000)), "nested too deeply"),
    "a chain of attributes": (script("x = a" + ".b" * 5000), "nested too deeply"),
    "a chain of branches": (script("if q:\n    x = 0\n" + "elif q:\n    x = 1\n" * 1500), "nested too deeply"),
    "too large": (script("x = 1") + "# " + "a" * 3_000_000, "the limit is 2,000,000"),
    "Python 2": (script("print 'hello'\nx = 1"), "cannot parse this Python source"),
    "NUL": (script("x = 1\0"), "NUL"),
    "UTF-16": (script("x = 1").encode("utf-16"), "not UTF-8"),
    "a codec that is no text's": (b"# coding: rot13\n\xff SFTTrainer", "not UTF-8"),
    "a codec that refuses": (b"# coding: undefined\n# \xff\n", "not UTF-8"),
    "more words than a tree has room for": (script("x = 1\n" + "a\n" * 260_000), "the limit is 250,000"),
    "too many settings": (script("x = 1").replace("=x)", f"=1, {MANY})"), "the limit is 1,000"),
    "cells are no list": (json.dumps({"cells": {"a": 1}, "nbformat": 4}), "list of cells"),
    "an old notebook": (json.dumps({"nbformat": 3, "worksheets": [{"cells": []}]}), "list of cells"),
    "JSON cut off": ('{"cells": [{"cell_type": "code", "source": ["SFTTrainer', "list of cells"),
    "deep JSON": ('{"cells":' + "[" * 100_000 + "]" * 100_000 + "}", "list of cells"),
    "a source that is a number": (notebook({"cell_type": "code", "source": 3}), "has no source text"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_is_refused_in_one_sentence(text, said):
    with pytest.raises(ConfigError, match=said) as error:
        read(text)
    assert "\n" not in str(error.value)


NOT_KNOWN = {
    "a tower of powers": "x = 9**9**9**9",
    "a text as large as memory": "x = 'a' * 10**10",
    "a list as large as memory": "x = [0] * 10**10",
    "lists in lists": "a = 'x' * 90000\nc = [a] * 1000\nx = [c] * 1000",
    "a wide format": "x = '{:>1000000000}'.format(1)",
    "a wide percent": "x = '%1000000000d' % 1",
    "a long replacement": "a = 'a' * 90000\nx = a.replace('a', a)",
    "a number of many digits": "x = 0x" + "f" * 500_000,
    "names that double": "a0 = 1\n" + "".join(f"a{i + 1} = a{i} + a{i}\n" for i in range(60)) + "x = a60",
    "calls that double": "def f0(a):\n    return a\n"
    + "".join(f"def f{i + 1}(a):\n    return f{i}(a) + f{i}(a)\n" for i in range(40))
    + "x = f40(1)",
    "recursion": "def f(a):\n    return f(a)\nx = f(1)",
    "names in a circle": "a = b\nb = a\nx = b",
    "many bindings": "x = 1\n" + "x = x + 1\n" * 5000,
    "many branches": "".join(f"if q{i}:\n    x = {i}\n" for i in range(3000)),
    "many items": "x = [" + "1, " * 100_000 + "]",
    "division by nothing": "x = 1 // 0",
    "an index beyond": "x = [1][10**30]",
}


@pytest.mark.parametrize("body", NOT_KNOWN.values(), ids=NOT_KNOWN)
def test_what_cannot_be_computed_is_reported(body):
    assert [one.key for one in read(script(body)).script.unsaid] == ["per_device_train_batch_size"]


MAGICS = (
    "%%capture\n!pip install trl==0.20.0\n%pip install x\nimport os\n%env A=1\nfiles = !ls\n?SFTTrainer\nSFTTrainer?\n"
    "!nvidia-smi | grep \\\\\n  foo\nif True:\n    !ls\n    %cd x\n"
)
READ = {
    "magics": notebook(code(MAGICS + script("x = 3"))),
    "another language's cell": notebook(code("%%bash\nfor i in 1 2; do echo $i; done"), code(script("x = 3"))),
    "a timed cell": notebook(code("%%time\n" + script("x = 3"))),
    "a timed line": notebook(
        code(HEAD + "x = 3\n%time t = SFTTrainer('m', args=SFTConfig(per_device_train_batch_size=x))")
    ),
    "magics in a text": notebook(code(script("s = '''\n%matplotlib\n!ls\n'''\nx = 3"))),
    "a version of too many digits": script(
        f"'''\npip install torch==1.0\npip install 'torch>={'9' * 6000}'\n'''\nx = 3"
    ),
    "a default beyond whole numbers": script(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--a', type=int, default=1e999)\n"
        "args = p.parse_args()\nx = 3 if args.a > 1 else 2"
    ),
    "cells twice": notebook(code(script("x = 3"))).replace('{"cells"', '{"cells": {"a": 1}, "cells"', 1),
    "a broken cell": notebook(code("this is not python !!"), code(script("x = 3"))),
    "a cell without source": notebook({"cell_type": "code"}, code(script("x = 3"))),
    "cells of other shapes": notebook(1, None, "SFTTrainer", code(script("x = 3"))),
    "match": script(
        "match 'b':\n    case 'a':\n        x = 4\n    case 'b' | 'c':\n        x = 3\n    case _:\n        x = 2"
    ),
    "walrus": script("if (x := 3) > 2:\n    pass"),
    "exception groups": script("try:\n    x = 3\nexcept* ValueError:\n    x = 2"),
    "another encoding": ("# coding: latin-1\n" + script("s = 'é'\nx = 3")).encode("latin-1"),
    "a byte order mark": ("\ufeff" + script("x = 3")).encode(),
    "old line ends": script("x = 3").replace("\n", "\r"),
}


@pytest.mark.parametrize("text", READ.values(), ids=READ)
def test_what_is_odd_is_read(text):
    assert read(text).values["per_device_train_batch_size"] == 3


def test_a_cell_that_is_left_out_is_reported():
    found = read(notebook(code("this is not python !!"), code(script("x = 3"))))
    assert any(note.startswith("cell 1:") for note in map(str, found.script.assumed))


def test_a_broken_cell_that_trains_stops_the_reading():
    with pytest.raises(ConfigError, match="cannot parse this Python source"):
        read(notebook(code(script("x = 3")), code("SFTTrainer(((")))


def test_an_edit_of_a_notebook_finds_the_cells_that_count():
    text = notebook(code(script("x = 3"))).replace('{"cells"', '{"cells": 1, "cells"', 1)
    at = read(text).text.index("3")
    assert spliced(text, "utf-8", cells_of(text), [Splice(at, at + 1, "4")]) == text.replace("x = 3", "x = 4").encode()


@pytest.mark.parametrize("text", ["", "\n" * 100_000, "[1, 2]"], ids=["empty", "lines", "a list"])
def test_source_that_trains_nothing_is_no_config(text):
    with pytest.raises(NoTraining):
        read(text)


@pytest.mark.parametrize("shown", ["iVBORw0K" * 200_000, "a\n" * 500_000], ids=["an image", "lines"])
def test_large_outputs_do_not_slow_down_the_edits_of_a_search(shown):
    """A search tries hundreds of edits: the mean of ten is bound."""
    first = code("x = 1\n")
    cells = [{**first, "outputs": [{"output_type": "display_data", "data": {"image/png": shown}}]}, code("y = 0\n")]
    texts = [notebook(*cells, metadata={"edit": number}) for number in range(10)]
    start = time.process_time()
    for text in texts:
        start_of = len("x = 1\n# %%\ny = ")
        changed = spliced(text, "utf-8", cells_of(text), [Splice(start_of, start_of + 1, "3")])
        assert changed == text.replace("y = 0", "y = 3").encode()
    assert time.process_time() - start < 1
