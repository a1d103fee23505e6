"""Lists of versions: requirements, `pip freeze`, uv.lock → `--stack`."""

from itertools import count

from tests.fuzz.mutate import HOSTILE_TEXT, bytes_changed, lines_changed, odd_number_text
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import BASE, write_model

_PACKAGES = ("torch", "axolotl", "transformers", "peft", "bitsandbytes", "liger-kernel", "Liger_Kernel", "deepspeed")
_USUAL = (
    "axolotl==0.19.0\ntorch==2.9.1+cu128\n# comment\npeft==0.20.1 ; python_version > '3.9'\n-e .\n",
    "torch===2.8.0 --hash=sha256:aa\ntransformers[torch,x]==4.57.1\nbitsandbytes>=0.45\nliger-kernel==0.6.0 # why\n",
    'version = 1\nrevision = 3\n\n[[package]]\nname = "axolotl"\nversion = "0.21.0"\nsource = { registry = "x" }\n\n'
    '[[package]]\nname = "torch"\nversion = "2.11.0+cu130"\n\n[[package]]\nname = "peft"\nversion = "0.20.1"\n',
)
_numbers = count()


def _line(rng, line):
    package, text = rng.choice(_PACKAGES), rng.choice(HOSTILE_TEXT)
    version = rng.choice((odd_number_text(rng), f"2.{odd_number_text(rng)}", text, "2.9.1", "0.19.0.dev1", "1!2"))
    if line.startswith(("name", "version")) or rng.random() < 0.3:
        return rng.choice((f'version = "{version}"', f'name = "{package}"', "[[package]]", "version = 1"))
    return f"{package}{rng.choice(('==', '==', '===', ' == ', '[x]==', '>=', '@', ''))}{version}"


def _stack(rng):
    usual, other = rng.choice(_USUAL), rng.choice(_USUAL)
    if rng.random() < 0.7:
        return lines_changed(rng, usual, other, _line).encode()
    return bytes_changed(rng, usual.encode(), other.encode())


def _run(command, *words):
    def run(bench, data):
        write_model(bench)
        stack = bench.write(f"stack{next(_numbers)}.txt", data)  # what it pins is remembered by name
        try:
            bench.command(command, bench.write("config.yml", BASE), "--stack", stack, *words)
        finally:
            (bench.folder / stack).unlink()

    return run


add(
    name="stack",
    about="lists of versions: requirements, `pip freeze`, uv.lock → `check --stack`, `predict --stack`",
    extension="txt",
    make=_stack,
    checks={
        "check": _run("check", "--no-predict"),
        "resolved": _run("check", "--no-predict", "--show-resolved", "--gpu", "h100"),
        "said": _run("check", "--no-predict", "--with", "torch==2.9.1"),
        "predict": _run("predict", "--what-if", "torch==2.10.0"),
    },
)
