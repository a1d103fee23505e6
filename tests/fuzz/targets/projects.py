"""A project's pyproject.toml → the options of `check`."""

from itertools import count

from tests.fuzz.mutate import HOSTILE_TEXT, bytes_changed, lines_changed, odd_number_text
from tests.fuzz.targets import add
from tests.fuzz.targets.making_configs import BASE

_USUAL = (
    '[tool.vramwise]\nselect = ["wrong-type"]\nignore = ["unknown-key"]\nmin-severity = "warning"\n',
    '[tool.vramwise]\ngpu = "rtx-4090"\ngpus = 2\ntorch = "2.8"\nalloc-conf = "expandable_segments:True"\nlauncher = "cli"\n',
    '[tool.vramwise]\nwith = ["axolotl==0.19.0", "torch==2.9.1"]\nstack = "config.yml"\n',
    '[project]\nname = "x"\n\n[tool.vramwise]\ngpu = "24GB"\n',
    "tool.vramwise = 3\n",
    "[[tool.vramwise]]\n",
)
_KEYS = (
    "select",
    "ignore",
    "min-severity",
    "gpu",
    "gpus",
    "torch",
    "with",
    "stack",
    "alloc-conf",
    "launcher",
    "x",
    '"\\u001b[31m"',
)
_folders = count()


def _line(rng, line):
    key = line.partition(" = ")[0] if " = " in line and rng.random() < 0.5 else rng.choice(_KEYS)
    text = rng.choice(HOSTILE_TEXT)
    escaped = "".join(char if char.isprintable() and char not in '"\\' else f"\\u{ord(char):04x}" for char in text)
    value = rng.choice(
        (f'"{escaped}"', f'["{escaped}"]', odd_number_text(rng), "true", "[]", "{}", "1979-05-27", '"""')
    )
    return f"{key} = {value}"


def _project(rng):
    usual, other = rng.choice(_USUAL), rng.choice(_USUAL)
    if rng.random() < 0.7:
        return lines_changed(rng, usual, other, _line).encode()
    return bytes_changed(rng, usual.encode(), other.encode())


def _check(*words):
    def run(bench, data):
        folder = f"project{next(_folders)}"  # settings are remembered by folder
        bench.write(f"{folder}/pyproject.toml", data)
        config = bench.write(f"{folder}/config.yml", BASE)
        try:
            bench.command("check", config, "--no-predict", *words)
        finally:
            for path in (bench.folder / folder).iterdir():
                path.unlink()
            (bench.folder / folder).rmdir()

    return run


add(
    name="project",
    about="a project's pyproject.toml → `check`",
    extension="toml",
    make=_project,
    checks={
        "text": _check(),
        "resolved": _check("--show-resolved"),
        "options": _check("--gpu", "t4", "--torch", "2.9"),
    },
)
