"""Words of the command line: `--what-if`, cards, sizes, versions, allocator settings, rule ids. One option a line."""

import os

from tests.fuzz.mutate import HOSTILE_TEXT, bytes_changed, odd_number_text
from tests.fuzz.seeds import known_keys, traces
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import BASE, ODD_YAML, write_model

_MACHINE = ("--gpu", "--gpus", "--torch", "--alloc-conf", "--launcher")
_TAKES = {
    "check": {*_MACHINE, "--select", "--ignore", "--min-severity"},
    "predict": {*_MACHINE, "--model", "--engine", "--steps", "--memory-limit"},
    "replay": {"--alloc-conf", "--torch", "--memory-limit", "--device"},
    "diagnose": {*_MACHINE, "--model"},
}
_USUAL = {
    "--gpu": ("rtx-4090", "24GB", "h100", "NVIDIA A100-SXM4-80GB", "1.5 TiB", "80", "mi300x"),
    "--gpus": ("1", "8", "1024", "1000000000"),
    "--torch": ("2.8", "2.8.0+cu126", "3", "nightly"),
    "--alloc-conf": (
        "expandable_segments:True",
        "max_split_size_mb:128",
        "roundup_power2_divisions:[256:1,>:2]",
        "a:b",
    ),
    "--launcher": ("cli", "module"),
    "--select": ("wrong-type", "wrong-type,does-not-fit"),
    "--ignore": ("unknown-key", "x"),
    "--min-severity": ("error", "info"),
    "--model": ("model", "gpt2", "meta-llama/Llama-3.1-8B", ".", "/dev/zero", "~root", "a/b"),
    "--engine": ("transformers",),
    "--steps": ("1", "20", "10000"),
    "--memory-limit": ("29000MiB", "1GB", "0.5g"),
    "--device": ("0", "1", "99"),
}


def _word(rng, usual):
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(usual)
    if kind < 0.6:
        return odd_number_text(rng) + rng.choice(("", "GB", "GiB", " MiB", "T", "k", "b", ",", ":"))
    if kind < 0.75:
        return rng.choice(HOSTILE_TEXT)
    return os.fsdecode(bytes_changed(rng, rng.choice(usual).encode()))


def _one_line(word):
    """Arguments hold no NUL; here none holds a line end, which is how they are kept apart."""
    return word.replace("\0", "").replace("\n", "\u2028")


def _options(rng):
    lines = []
    for _ in range(rng.choice((1, 1, 2, 4))):
        option = rng.choice(sorted(_USUAL))
        lines.append(f"{option} {_one_line(_word(rng, _USUAL[option]))}")
    return os.fsencode("\n".join(lines).encode("utf-8", "surrogateescape"))


def _changes(rng):
    lines = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        key = (
            rng.choice(list(known_keys()))
            if rng.random() < 0.6
            else rng.choice(("micro_batch_size", "adapter", "bf16"))
        )
        value = rng.choice((rng.choice(ODD_YAML), odd_number_text(rng), rng.choice(HOSTILE_TEXT), "8", "lora"))
        word = f"{key}{rng.choice(('=', '=', '=', ':', '.x=', ''))}{value}"
        lines.append(_one_line(word))
    return os.fsencode("\n".join(lines).encode("utf-8", "surrogateescape"))


def _lines(data):
    """The words as Python gets them from the system, which passes no NUL."""
    return [word.replace("\u2028", "\n") for word in os.fsdecode(data.replace(b"\0", b"")).split("\n") if word]


def _with_options(command, *files):
    def run(bench, data):
        _write_files(bench)
        pairs = [line.partition(" ") for line in _lines(data)]
        words = [word for option, _, value in pairs if option in _TAKES[command] for word in (option, value)]
        bench.command(command, *files, *words)

    return run


def _write_files(bench):
    write_model(bench)
    bench.write("config.yml", BASE)
    bench.write("run.log", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    if not (bench.folder / "trace.json").exists():
        import json

        bench.write("trace.json", json.dumps(traces()[0]))


def _what_if(bench, data):
    _write_files(bench)
    bench.command("predict", "config.yml", *(word for change in _lines(data) for word in ("--what-if", change)))


def _explained(bench, data):
    for word in _lines(data)[:2]:
        bench.command("explain", "--", word)


add(
    name="options",
    about="`--gpu`, sizes, versions, allocator settings, models, rule ids → `check`, `predict`, `replay`, `diagnose`",
    extension="txt",
    make=_options,
    checks={
        "check": _with_options("check", "config.yml"),
        "predict": _with_options("predict", "config.yml"),
        "replay": _with_options("replay", "trace.json"),
        "diagnose": _with_options("diagnose", "run.log", "--config", "config.yml"),
        "explain": _explained,
    },
)
add(
    name="what-if",
    about="`predict --what-if` words",
    extension="txt",
    make=_changes,
    checks={"predict": _what_if},
)
