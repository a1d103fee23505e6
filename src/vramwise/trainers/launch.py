"""Parses launch lines of `accelerate launch`, `torchrun`, `deepspeed`, `trl`, `llamafactory-cli` and `axolotl`.

Reads one command, or the first command of a shell script that trains. Nothing is run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vramwise.errors import ConfigError
from vramwise.limits.meter import Meter, TooLarge, charge, metered, split_units

_ASSIGNMENT = re.compile(r"^(?:export\s+)?([A-Za-z_]\w*)=(.*)$")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_NAMED = re.compile(r"\$(\w+)")
# Words before a command that are skipped.
_PREFIXES = frozenset({"sudo", "nohup", "time", "exec", "srun", "env", "command", "then", "do", "&&"})
_RUNNERS = {"uv": "run", "poetry": "run", "pdm": "run", "conda": "run"}
# Options of launchers that take no value.
_SWITCHES = frozenset(
    {
        *("--multi_gpu", "--multi-gpu", "--use_deepspeed", "--use_fsdp", "--same_network", "--debug", "--quiet", "-q"),
        *("--standalone", "--no_python", "--no-python", "--cpu", "--dynamo_use_dynamic", "--no_local_rank"),
    }
)
_CONFIGS = (".yaml", ".yml", ".json")
_MOST_CHARACTERS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a launch line starts. `program`: trl, llamafactory, axolotl, or a script; `kind`: sft, dpo… of TRL.

    `config`: the YAML file that it names. `script`: the Python file. `arguments`: the words after it. `accelerate`: the
    options of `accelerate launch`. `gpus`: None if the number is not given.
    """

    program: str
    trainer: str = ""  # with its kind, if the options alone can be a config
    arguments: tuple[str, ...] = ()
    kind: str = ""
    config: str | None = None
    script: str | None = None
    gpus: int | None = None
    accelerate: Mapping[str, str] = field(default_factory=dict)
    line: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str | bool]:
        """The `--key value`, `--key=value` and `key=value` words of its arguments; keys have underscores."""
        found: dict[str, str | bool] = {}
        words, at = self.arguments, 0
        while at < len(words):
            word, at = words[at], at + 1
            key, equals, value = word.partition("=")
            if word.startswith("--"):
                name = key.removeprefix("--").replace("-", "_")
                if equals:
                    found[name] = value
                elif at < len(words) and not words[at].startswith("--"):
                    found[name], at = words[at], at + 1
                else:
                    found[name] = not name.startswith("no_")
            elif equals and key.isidentifier():
                found[key] = value
        return found


def is_launch(words: Sequence[str]) -> bool:
    """Return whether the words are a launch line: they begin with a program that starts trainings."""
    program = words[0].rpartition("/")[2] if words else ""
    return program in _STARTERS or program in ("python", "python3")


def read_launch(words: Sequence[str]) -> Launch:
    """Parse the words of a command; raises ConfigError if they start no known training."""
    with metered(Meter(), "command"):
        found = _launch(list(words), {}, 1)
    if found is None:
        raise ConfigError(
            "not a known training command: expected accelerate launch, torchrun, deepspeed, trl, llamafactory-cli "
            "train, axolotl train, or python with a script"
        )
    return found


def read_shell(text: str) -> Launch:
    """Return the first command of a shell script that starts a training; raises ConfigError if there is none."""
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError(f"this shell script has more than {_MOST_CHARACTERS:,} characters")
    meter = Meter()
    with metered(meter, "shell script"):
        variables: dict[str, str] = {}
        for number, line in _commands(text):
            meter.begin_value()
            meter.step(number)
            assigned = _ASSIGNMENT.match(line)
            try:
                if assigned is not None and " " not in _unquoted(assigned[2]).strip():
                    variables[assigned[1]] = _expanded(_unquoted(assigned[2]), variables)
                    continue
                found = _launch(_words(_expanded(line, variables)), variables, number)
            except TooLarge:  # too long to be a training, or a part of its command
                continue
            if found is not None:
                return found
    raise ConfigError("this shell script contains no known training command")


def _commands(text: str) -> Iterator[tuple[int, str]]:
    """Yield commands with their line numbers; continued lines are joined."""
    held: list[str] = []
    first = 1
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        first = first if held else number
        held.append(f"{line[:-1]} " if line.endswith("\\") else line)
        if not line.endswith("\\"):
            for part in re.split(r"\s(?:&&|\|\||;|\|)\s", "".join(held)):
                if part.strip() and not part.strip().startswith("#"):
                    yield first, part.strip()
            held = []


def _words(command: str) -> list[str]:
    """Return the words of a command; none if its quotes do not match."""
    charge(split_units(len(command)))
    try:
        return shlex.split(command, comments=True)
    except ValueError:
        return []


def _unquoted(text: str) -> str:
    shown = text.strip()
    return shown[1:-1] if len(shown) > 1 and shown[0] == shown[-1] and shown[0] in "'\"" else shown


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """Substitute the script's variables; others keep their form, or their default."""

    def value(found: re.Match[str]) -> str:
        groups = found.groups()
        default = groups[1] if len(groups) > 1 else None
        return variables.get(groups[0] or groups[-1], found[0] if default is None else default)

    # An open brace that nothing closes is no variable, and is not searched for its end again and again.
    closed = text.rfind("}") + 1
    charge(sum(len(value(one)) for one in _VARIABLE.finditer(text, 0, closed)))
    charge(sum(len(value(one)) for one in _NAMED.finditer(text, closed)))
    return _VARIABLE.sub(value, text[:closed]) + _NAMED.sub(value, text[closed:])


def _launch(words: list[str], variables: Mapping[str, str], line: int) -> Launch | None:
    own: dict[str, str] = {}
    at = 0
    while at < len(words):
        assigned = _ASSIGNMENT.match(words[at])
        if assigned is not None:
            own[assigned[1]] = assigned[2]
        elif words[at] in _RUNNERS and words[at + 1 : at + 2] == [_RUNNERS[words[at]]]:
            at += 1
        elif words[at] not in _PREFIXES:
            break
        at += 1
    words = words[at:]
    if not words:
        return None
    program = words[0].rpartition("/")[2]
    found = _started(program, words[1:])
    if found is None:
        return None
    environment = {**variables, **own}
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if found.gpus is None and visible and re.fullmatch(r"[\d,]+", visible) and found.program != "script":
        found = replace(found, gpus=len(visible.strip(",").split(",")))
    return replace(found, line=line, environment=environment)


def _started(program: str, words: list[str]) -> Launch | None:
    if program.startswith("python") and words:
        return _of_python(words)
    start = _STARTERS.get(program)
    return start(words) if start is not None else None


def _of_trl(words: list[str]) -> Launch | None:
    if not words:
        return None
    kind, rest = words[0], tuple(words[1:])
    return Launch(program="trl", kind=kind, trainer=f"trl:{kind}", arguments=rest, config=_config_of(rest))


def _of_llamafactory(words: list[str]) -> Launch | None:
    if words[:1] != ["train"]:
        return None
    named = words[1] if len(words) > 1 and words[1].endswith(_CONFIGS) else None
    return Launch(program="llamafactory", config=named, arguments=tuple(words[2 if named else 1 :]))


def _of_python(words: list[str]) -> Launch | None:
    words = words[next((at for at, one in enumerate(words) if one == "-m" or not one.startswith("-")), len(words)) :]
    if words[:1] == ["-m"] and len(words) > 1:
        module, rest = words[1], words[2:]
        if module.startswith("axolotl"):
            return _of_axolotl(rest)
        if module in ("torch.distributed.run", "torch.distributed.launch"):
            return _of_torchrun(rest)
        if module.startswith("accelerate.commands.launch"):
            return _of_accelerate(rest)
        if module == "llamafactory.cli":
            return _of_llamafactory(rest)
        if module.startswith("trl.scripts."):
            return _of_trl([module.rpartition(".")[2], *rest])
        return None
    if words and words[0].endswith("train.py") and words[1:2] and words[1].endswith(_CONFIGS):
        return _of_llamafactory(["train", *words[1:]])  # src/train.py of LLaMA-Factory's repository, with a config
    if words and words[0].endswith(".py"):
        return Launch(program="script", script=words[0], arguments=tuple(words[1:]))
    return None


def _of_axolotl(words: list[str]) -> Launch | None:
    words = words[1:] if words[:1] == ["train"] else words
    named = next((word for word in words if word.endswith((".yml", ".yaml"))), None)
    return Launch(program="axolotl", config=named, arguments=tuple(word for word in words if word != named))


def _of_accelerate(words: list[str]) -> Launch | None:
    if words[:1] == ["launch"]:
        words = words[1:]
    options, rest = _before_script(words, module="-m")
    inner = _of_python(rest)
    if inner is None:
        return None
    machines = _number(options.get("num_machines")) or 1
    several = _number(options.get("num_processes")) or _number(options.get("num_gpus"))
    return replace(
        inner,
        gpus=several if several else machines if machines > 1 else None,
        accelerate=options,
    )


def _of_torchrun(words: list[str]) -> Launch | None:
    options, rest = _before_script(words, module="-m")
    inner = _of_python(rest)
    each, nodes = _number(options.get("nproc_per_node")), _number(options.get("nnodes")) or 1
    return None if inner is None else replace(inner, gpus=each * nodes if each else None)


def _of_deepspeed(words: list[str]) -> Launch | None:
    options, rest = _before_script(words, module="--module")
    inner = _of_python(rest)
    if inner is None:
        return None
    included = options.get("include", "")
    listed = re.search(r":([\d,]+)", included)
    count = _number(options.get("num_gpus")) or (len(listed[1].split(",")) if listed else None)
    nodes = _number(options.get("num_nodes")) or 1
    return replace(inner, gpus=count * nodes if count else None)


def _before_script(words: list[str], *, module: str) -> tuple[dict[str, str], list[str]]:
    """Return a launcher's own options, and the words from its script on."""
    options: dict[str, str] = {}
    at = 0
    while at < len(words):
        word = words[at]
        if word in (module, "--module"):
            return options, ["-m", *words[at + 1 :]]
        if not word.startswith("-"):
            return options, words[at:]
        key, equals, value = word.partition("=")
        name = key.lstrip("-").replace("-", "_")
        if equals:
            options[name] = value
        elif word in _SWITCHES:
            options[name] = "true"
        elif at + 1 < len(words) and not words[at + 1].startswith("--"):
            at += 1
            options[name] = words[at]
        at += 1
    return options, []


def _config_of(words: Sequence[str]) -> str | None:
    for at, word in enumerate(words):
        if word == "--config" and at + 1 < len(words):
            return words[at + 1]
        if word.startswith("--config="):
            return word.partition("=")[2]
    return None


def _number(word: str | None) -> int | None:
    return int(word) if word is not None and word.isascii() and word.isdigit() and len(word) < 7 else None


_STARTERS: Mapping[str, Callable[[list[str]], Launch | None]] = {
    "accelerate": _of_accelerate,
    "torchrun": _of_torchrun,
    "deepspeed": _of_deepspeed,
    "trl": _of_trl,
    "llamafactory-cli": _of_llamafactory,
    "axolotl": _of_axolotl,
}
