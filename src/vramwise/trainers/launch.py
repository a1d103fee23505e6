"""Parses launch lines of `accelerate launch`, `torchrun`, `deepspeed`, `trl`, `llamafactory-cli` and `axolotl`.

Reads one command, or the first command of a shell script that trains. Nothing is run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vramwise.errors import ConfigError

_ASSIGNMENT = re.compile(r"^(?:export\s+)?([A-Za-z_]\w*)=(.*)$")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
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
        words = list(self.arguments)
        while words:
            word = words.pop(0)
            key, equals, value = word.partition("=")
            if word.startswith("--"):
                name = key.removeprefix("--").replace("-", "_")
                if equals:
                    found[name] = value
                elif words and not words[0].startswith("--"):
                    found[name] = words.pop(0)
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
    variables: dict[str, str] = {}
    for number, line in _commands(text):
        assigned = _ASSIGNMENT.match(line)
        if assigned is not None and " " not in _unquoted(assigned[2]).strip():
            variables[assigned[1]] = _expanded(_unquoted(assigned[2]), variables)
            continue
        try:
            words = shlex.split(_expanded(line, variables), comments=True)
        except ValueError:
            continue
        found = _launch(words, dict(variables), number)
        if found is not None:
            return found
    raise ConfigError("this shell script contains no known training command")


def _commands(text: str) -> Iterator[tuple[int, str]]:
    """Yield commands with their line numbers; continued lines are joined."""
    number, held = 1, ""
    first = 1
    for line in text.replace("\r\n", "\n").split("\n"):
        first = number if not held else first
        held += line.removesuffix("\\") + (" " if line.endswith("\\") else "")
        if not line.endswith("\\"):
            for part in re.split(r"\s(?:&&|\|\||;|\|)\s", held):
                if part.strip() and not part.strip().startswith("#"):
                    yield first, part.strip()
            held = ""
        number += 1


def _unquoted(text: str) -> str:
    shown = text.strip()
    return shown[1:-1] if len(shown) > 1 and shown[0] == shown[-1] and shown[0] in "'\"" else shown


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """Substitute the script's variables; others keep their form, or their default."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[3]
        return variables.get(name, found[2] if found[2] is not None else found[0])

    return _VARIABLE.sub(value, text)


def _launch(words: list[str], environment: dict[str, str], line: int) -> Launch | None:
    while words:
        assigned = _ASSIGNMENT.match(words[0])
        if assigned is not None:
            environment[assigned[1]] = assigned[2]
        elif words[0] in _RUNNERS and words[1:2] == [_RUNNERS[words[0]]]:
            words.pop(0)
        elif words[0] not in _PREFIXES:
            break
        words.pop(0)
    if not words:
        return None
    program = words[0].rpartition("/")[2]
    found = _started(program, words[1:])
    if found is None:
        return None
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
    while words and words[0].startswith("-") and words[0] != "-m":
        words = words[1:]
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
    return int(word) if word is not None and word.isdigit() and len(word) < 7 else None


_STARTERS: Mapping[str, Callable[[list[str]], Launch | None]] = {
    "accelerate": _of_accelerate,
    "torchrun": _of_torchrun,
    "deepspeed": _of_deepspeed,
    "trl": _of_trl,
    "llamafactory-cli": _of_llamafactory,
    "axolotl": _of_axolotl,
}
