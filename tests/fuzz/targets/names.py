"""Names of files: control characters, bytes that are no UTF-8, options in disguise; and devices instead of files."""

import os

from tests.fuzz.bench import CONFIG_TEXT
from tests.fuzz.mutate import HOSTILE_TEXT, bytes_changed
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import BASE, write_model

_USUAL = ("config.yml", "a b.yaml", "--help.yml", "é.yml", "x::error::.yml", "-.yml", "a%0A.yml", "con,fig:1.yml")
_NOT_NAMES = ("", ".", "..", "model", "config.yml", "page.html")


def _name(rng):
    usual = rng.choice(_USUAL).encode()
    if rng.random() < 0.3:
        return rng.choice(HOSTILE_TEXT).encode()[:200] + b".yml"
    return bytes_changed(rng, usual, rng.choice(_USUAL).encode())[:200]


def _named(data):
    """A name within the folder; the system allows any bytes but two."""
    name = os.fsdecode(data.replace(b"\0", b"").replace(b"/", b"_")[:200])
    return "odd.yml" if name in _NOT_NAMES else name


def _run(command, *words, text=BASE + "bf16: maybe\nload_in_9bit: true\n", json=False, workflow=False):
    def run(bench, data):
        write_model(bench)
        name = _named(data)
        path = os.fsencode(bench.folder) + b"/" + os.fsencode(name)
        with open(path, "wb") as file:  # noqa: PTH123 (a name of bytes)
            file.write(text.encode())
        try:
            call = bench.command_json if json else bench.command
            call(
                command,
                *words,
                "--",
                name,
                workflow=workflow,
                allow=CONFIG_TEXT.strip("\r") if command == "fix" else "",
            )
        finally:
            os.unlink(path)  # noqa: PTH108

    return run


def _device(bench, data):
    """A path that is no plain file, wherever a file is read to its end."""
    write_model(bench)
    bench.write("config.yml", BASE)
    name = os.fsdecode(data.replace(b"\0", b"").strip()) or "."
    if name.startswith("/dev/") and name not in ("/dev/zero", "/dev/null", "/dev/full", "/dev/urandom"):
        return
    if not name.startswith("/dev/"):
        name = name.replace("/", "_")
    bench.command("check", "--", name)
    bench.command("replay", "--", name)
    bench.command("diagnose", "--snapshot", name)
    bench.command("predict", "config.yml", "--lengths", name)
    bench.command("predict", "config.yml", "--model", name)
    bench.command("check", "config.yml", "--no-predict", "--stack", name)
    bench.command("report", "--", name)


add(
    name="names",
    about="file names, folders and devices → every command and format",
    extension="txt",
    make=_name,
    checks={
        "check": _run("check"),
        "json": _run("check", "--format", "json", json=True),
        "sarif": _run("check", "--format", "sarif", json=True),
        "github": _run("check", "--format", "github", workflow=True),
        "broken": _run("check", text="a: [\n"),
        "diff": _run("fix", "--diff", "--unsafe-fixes"),
        "predict": _run("predict", "--gpu", "24GB"),
        "replay": _run("replay", text="{}"),
        "diagnose": _run("diagnose", text="CUDA out of memory. Tried to allocate 2.00 GiB\n"),
        "device": _device,
    },
)
