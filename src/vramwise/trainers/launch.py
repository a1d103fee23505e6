"""Parses launch lines of `accelerate launch`, `torchrun`, `deepspeed`, `trl`, `llamafactory-cli` and `axolotl`.

Reads one command, or the commands of a shell script that train. Nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vramwise.documents.shell import Command, Shell
from vramwise.errors import ConfigError
from vramwise.limits.meter import Meter, metered
from vramwise.trainers.other_tools import PLAIN, Tool, tool_of_command

# Programs that run the rest of their words: what they run is found behind their own options.
_WRAPPERS = frozenset(
    [
        "sudo",
        "nohup",
        "time",
        "exec",
        "srun",
        "env",
        "command",
        "nice",
        "stdbuf",
        "timeout",
        "numactl",
        "taskset",
        "ionice",
        "singularity",
        "apptainer",
        "docker",
        "podman",
        "mpirun",
        "mpiexec",
        "uv",
        "poetry",
        "pdm",
        "pipenv",
        "conda",
        "mamba",
        "micromamba",
        "hatch",
        "pixi",
        "xvfb-run",
        "nsys",
        "proxychains4",
    ]
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)
# TRL's own scripts, known by name.
_TRLS = re.compile(r"(?:.*/)?(?:trl/scripts|examples/scripts)/(sft|dpo|kto|grpo|rloo|reward|orpo|cpo)\.py")
_METHOD = re.compile(r"(?:^|[_-])(dpo|kto|orpo|cpo|grpo|rloo)(?=[_.-])")
# Scripts of LLaMA-Factory, and options that only it has.
_FACTORYS = re.compile(r"(?:.*/)?(?:src/train|train_bash|train_sft|train_pt|train_rm|run_exp)(?:_wrapper)?\.py")
_FACTORY_OPTIONS = frozenset({"stage", "finetuning_type", "template"})
_SEVERAL = 2
# Commands of other programs, and what they evaluate or export instead of training.
_NOT_TRAINING = frozenset({"do_predict", "do_eval"})
_MOST_LAUNCHES = 50
# The variable by which `accelerate launch` passes its option of the same name on.
EARLY = "FSDP_CPU_RAM_EFFICIENT_LOADING"
# Options of launchers that take no value.
_SWITCHES = frozenset(
    {
        *("--multi_gpu", "--multi-gpu", "--use_deepspeed", "--use_fsdp", "--same_network", "--debug", "--quiet", "-q"),
        *("--standalone", "--no_python", "--no-python", "--cpu", "--dynamo_use_dynamic", "--no_local_rank"),
    }
)
_CONFIGS = (".yaml", ".yml", ".json")
_YAMLS = (".yaml", ".yml")
_MOST_CHARACTERS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a launch line starts. `program`: trl, llamafactory, axolotl, or a script; `kind`: sft, dpo… of TRL.

    `config`: the YAML file that it names. `script`: the Python file; `trainer` reads its options if it is known by
    name. `arguments`: the words after it. `accelerate`: the options of `accelerate launch`. `gpus`: None if the number
    is not given. `folder`: where it runs, relative to the script. `tool`: another program that trains.
    """

    program: str
    trainer: str = ""  # with its kind, if the options alone can be a config
    # What a script that is known by name is called, and whether a file of this name is read first, if there is one.
    known: str = ""
    is_own: bool = True
    # Whether a launcher starts its processes, not the trainer's own command.
    distributed: bool = False
    # The variable by which its command is told to start torchrun on one card too, and whether that is set.
    forced_by: str = ""
    forced: bool = False
    # How many cards CUDA_VISIBLE_DEVICES shows to a launcher that uses all of them.
    visible: int | None = None
    arguments: tuple[str, ...] = ()
    kind: str = ""
    config: str | None = None
    script: str | None = None
    gpus: int | None = None
    accelerate: Mapping[str, str] = field(default_factory=dict)
    line: int = 1
    folder: str = ""
    tool: Tool | None = None
    # How the shell script comes to it, and the files that heredocs of the script write.
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str | bool | list[str]]:
        """The `--key value`, `--key=value` and `key=value` words of its arguments; keys have underscores."""
        found: dict[str, str | bool | list[str]] = {}
        words, at = self.arguments, 0
        while at < len(words):
            word, at = words[at], at + 1
            key, equals, value = word.partition("=")
            if word.startswith("--"):
                name = key.removeprefix("--").replace("-", "_")
                taken = [value] if equals else []
                while not equals and at < len(words) and not words[at].startswith("--"):
                    taken.append(words[at])
                    at += 1
                found[name] = taken if len(taken) > 1 else taken[0] if taken else not name.startswith("no_")
            elif equals and key.isidentifier():
                found[key] = value
        return found

    @property
    def plain_trainer(self) -> str:
        """The trainer for the options of a script that is not here: by the method in its name, or the plain one."""
        named = _METHOD.search((self.script or "").rpartition("/")[2])
        return f"trl:{named[1]}" if named is not None else PLAIN

    @property
    def trains(self) -> bool:
        """Whether it may train: not if its own options say that it only predicts or evaluates."""
        return _is_on(self.options, "do_train") or not any(_is_on(self.options, one) for one in _NOT_TRAINING)


def _is_on(options: Mapping[str, object], key: str) -> bool:
    return str(options.get(key, "false")).lower() in ("true", "1", "yes")


def is_launch(words: Sequence[str]) -> bool:
    """Return whether the words are a launch line: they begin with a program that starts trainings."""
    program = words[0].rpartition("/")[2] if words else ""
    known = program in _STARTERS or program in ("python", "python3", *_WRAPPERS) or _ASSIGNMENT.fullmatch(program)
    return bool(known) or tool_of_command(words) is not None


def read_launch(words: Sequence[str]) -> Launch:
    """Parse the words of a command; raises ConfigError if they start no known training."""
    with metered(Meter(), "command"):
        found = _launch(list(words), 1)
    if found is None:
        raise ConfigError(
            "not a known training command: expected accelerate launch, torchrun, deepspeed, trl, llamafactory-cli "
            "train, axolotl train, or python with a script"
        )
    return found


def read_shell(
    text: str,
    name: str = "",
    arguments: Sequence[str] = (),
    load: Callable[[str], str | None] = lambda _: None,
) -> list[Launch]:
    """Return the commands of a shell script that may start a training; raises ConfigError if there is none.

    `name` and `arguments`: how the script was called. `load`: returns the text of another script that it runs.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError(f"this shell script has more than {_MOST_CHARACTERS:,} characters")
    meter = Meter()
    listed: list[Launch] = []
    unread: list[Command] = []
    with metered(meter, "shell script"):
        shell = Shell(meter=meter, name=name, arguments=list(arguments), load=load)
        for one in shell.commands(text):
            found = _launch(one.words, one.line, shell)
            if found is not None and len(listed) < _MOST_LAUNCHES:
                listed.append(replace(found, folder=one.folder, notes=one.notes, files=shell.files))
            elif found is None and any(word.startswith("--model") for word in one.words):
                unread.append(one)
    if not listed and unread:
        program = unread[0].words[0]
        raise ConfigError(f"{program} is a program that vramwise does not know", line=unread[0].line)
    if not listed:
        raise ConfigError("this shell script contains no known training command")
    return listed


def _launch(words: list[str], line: int, shell: Shell | None = None) -> Launch | None:
    own: dict[str, str] = {}
    at = 0
    while at < len(words):
        assigned = _ASSIGNMENT.fullmatch(words[at])
        if assigned is not None:
            own[assigned[1]] = assigned[2]
        elif words[at] in _WRAPPERS:
            later = (place for place in range(at + 1, len(words)) if _starts(words[place]))
            at = next(later, len(words)) - 1
        elif words[at] not in ("&&", "--"):
            break
        at += 1
    words = words[at:]
    if not words:
        return None
    found = _started(words)
    if found is None:
        return None
    visible = own.get("CUDA_VISIBLE_DEVICES") or (shell.value("CUDA_VISIBLE_DEVICES") if shell else None)
    if found.gpus is None and visible and re.fullmatch(r"[\d,]+", visible):
        count = len(visible.strip(",").split(","))
        program = words[0].rpartition("/")[2]
        if found.program != "script" or program == "deepspeed":
            found = replace(found, gpus=count)
        elif program.startswith("accelerate"):
            found = replace(found, visible=count)
    said = own.get(found.forced_by) or (shell.value(found.forced_by) if shell else None)
    if found.forced_by and str(said).lower() in ("true", "y", "1"):
        found = replace(found, forced=True)
    early = own.get(EARLY) or (shell.value(EARLY) if shell else None)
    return replace(found, line=line, environment={} if early is None else {EARLY: early})


def _starts(word: str) -> bool:
    """Return whether a word behind a wrapper begins the command that it runs."""
    program = word.rpartition("/")[2]
    return program in _STARTERS or program.startswith("python") or _ASSIGNMENT.fullmatch(word) is not None


def _started(words: list[str]) -> Launch | None:
    program = words[0].rpartition("/")[2]
    start = _STARTERS.get(program)
    made = _of_python(words[1:]) if program.startswith("python") else start(words[1:]) if start else None
    if made is not None and start in _LAUNCHERS:
        made = replace(made, distributed=True)
    if made is None or (made.program == "script" and made.trainer == ""):
        tool = tool_of_command(words)
        if tool is not None:
            rest = made.arguments if made is not None else tuple(words[1:])
            made = Launch(program=tool.title, tool=tool, arguments=rest, gpus=made.gpus if made else None)
    return made


def _of_trl(words: list[str]) -> Launch | None:
    if not words:
        return None
    kind, rest = words[0], tuple(words[1:])
    return Launch(program="trl", kind=kind, trainer=f"trl:{kind}", arguments=rest, config=_config_of(rest))


def _of_llamafactory(words: list[str]) -> Launch | None:
    if words[:1] != ["train"]:
        return None
    named = words[1] if len(words) > 1 and words[1].endswith(_CONFIGS) else None
    rest = tuple(words[2 if named else 1 :])
    trainer = "" if named else "llamafactory"
    return Launch(program="llamafactory", trainer=trainer, config=named, arguments=rest, forced_by="FORCE_TORCHRUN")


def _of_python(words: list[str]) -> Launch | None:
    words = words[next((at for at, one in enumerate(words) if one == "-m" or not one.startswith("-")), len(words)) :]
    if words[:1] == ["-m"] and len(words) > 1:
        module, rest = words[1], words[2:]
        if module.startswith("axolotl"):
            return _of_axolotl(["preprocess" if module.endswith("preprocess") else "train", *rest])
        for start, launcher in _MODULES.items():
            if module.startswith(start):
                found = launcher(rest)
                return found and replace(found, distributed=launcher in _LAUNCHERS)
        if module.startswith("trl.scripts."):
            return _of_trl([module.rpartition(".")[2], *rest])
        words = [f"{module.replace('.', '/')}.py", *rest]
    if not words or not words[0].endswith(".py"):
        return None
    script, rest = words[0], words[1:]
    found = Launch(program="script", script=script, arguments=tuple(rest))
    if _FACTORYS.fullmatch(script) and rest and rest[0].endswith(_CONFIGS):
        return _of_llamafactory(["train", *rest])  # src/train.py of LLaMA-Factory's repository, with a config
    if len(_FACTORY_OPTIONS & found.options.keys()) >= _SEVERAL:
        return replace(found, trainer="llamafactory", known="LLaMA-Factory", is_own=False)
    known = _TRLS.fullmatch(script)
    if known is None:
        return found
    return replace(found, kind=known[1], trainer=f"trl:{known[1]}", known=f"TRL's {known[1]} script")


def _of_axolotl(words: list[str]) -> Launch | None:
    if words[:1] != ["train"]:
        return None
    named = next((word for word in words if word.endswith(_YAMLS)), None)
    return Launch(program="axolotl", config=named, arguments=tuple(word for word in words[1:] if word != named))


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
        elif at + 1 < len(words) and not words[at + 1].startswith("--") and not words[at + 1].endswith(".py"):
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
    "accelerate-launch": _of_accelerate,
    "torchrun": _of_torchrun,
    "deepspeed": _of_deepspeed,
    "trl": _of_trl,
    "llamafactory-cli": _of_llamafactory,
    "lmf": _of_llamafactory,
    "axolotl": _of_axolotl,
}
_LAUNCHERS = (_of_accelerate, _of_torchrun, _of_deepspeed)
_MODULES: Mapping[str, Callable[[list[str]], Launch | None]] = {
    "torch.distributed.run": _of_torchrun,
    "torch.distributed.launch": _of_torchrun,
    "accelerate.commands.launch": _of_accelerate,
    "deepspeed.launcher.runner": _of_deepspeed,
    "llamafactory.cli": _of_llamafactory,
}
