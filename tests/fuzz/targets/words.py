"""Words of the command line: `--what-if`, cards, sizes, versions, allocator settings, rule ids. One option a line."""

import os

from tests.fuzz.mutate import HOSTILE_TEXT, bytes_changed, odd_number_text
from tests.fuzz.seeds import known_keys, traces
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import BASE, MOVING, odd_yaml, write_model

_MACHINE = ("--gpu", "--gpus", "--torch", "--alloc-conf", "--launcher", "--with", "--stack", "--trainer")
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
    "--with": ("axolotl==0.19.0", "torch==2.9.1+cu128", "peft==0.20.1", "deepspeed==1", "x==1!2.0rc1", "torch"),
    "--stack": ("requirements.txt", "config.yml", "model", "/dev/zero", "/dev/null", "nowhere"),
    "--trainer": ("axolotl", "transformers", "trl", "llamafactory"),
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
        kind = rng.random()
        if kind < 0.2:
            word = _word(rng, _USUAL["--with"])
        elif kind < 0.5:
            key = rng.choice(MOVING)
            word = f"{key}={rng.choice(known_keys().get(key) or ['8'])}"
        else:
            key = rng.choice(list(known_keys())) if kind < 0.8 else rng.choice(MOVING)
            value = rng.choice((odd_yaml(rng), odd_number_text(rng), rng.choice(HOSTILE_TEXT), "8", "lora", "true"))
            word = f"{key}{rng.choice(('=', '=', '=', '=', ':', '.x=', ''))}{value}"
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
    bench.write("requirements.txt", "axolotl==0.19.0\ntorch==2.9.1\n")
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
    about="`--gpu`, sizes, versions, trainers, allocator settings, models, rule ids → `check`, `predict`, `replay`, `diagnose`",
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
    about="`predict --what-if`: changed keys, upgraded packages",
    extension="txt",
    make=_changes,
    checks={"predict": _what_if},
)
