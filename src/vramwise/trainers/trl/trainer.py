"""TRL as a trainer: the functions of this room under the names that all trainers have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vramwise.errors import VramwiseError
from vramwise.rules.base import Rule
from vramwise.rules.discovery import rules_below
from vramwise.trainers.arguments import ARGUMENT_RULES, SCRIPT_RULES, ArgumentsTrainer, Vocabulary, side_files
from vramwise.trainers.arguments.trainer import in_config
from vramwise.trainers.arguments.unknown_keys import StrangeKey
from vramwise.trainers.base import DatasetBlock, SideFiles, Spelling
from vramwise.trainers.signs import Sign
from vramwise.types import Change, Document, RunSpec, Severity, Stack, Target

if TYPE_CHECKING:
    from vramwise.trainers.starting import Start
    from vramwise.trainers.wishes import Wishes

# TRL pins nothing: what was the newest when each came out.
_INSTALLS = {"accelerate": "1.15.0", "peft": "0.21.2", "bitsandbytes": "0.50.2", "liger-kernel": "0.8.5"}
_OLDER = {"transformers": "5.16.1", **_INSTALLS, "accelerate": "1.13.0", "peft": "0.20.0", "liger-kernel": "0.8.1"}
_RELEASES: dict[str, dict[str, str]] = {
    "1.9.0": _OLDER,
    "1.10.0": _OLDER,
    "1.11.0": _OLDER,
    "1.12.0": _OLDER,
    "1.13.0": {**_OLDER, "transformers": "5.17.0", "accelerate": "1.15.0"},
    "1.14.1": {"transformers": "5.20.1", **_INSTALLS, "liger-kernel": "0.8.4"},
    "1.15.0": {"transformers": "5.20.1", **_INSTALLS, "liger-kernel": "0.8.4"},
    "1.16.0": {"transformers": "5.22.2", **_INSTALLS},
}


class Trl(ArgumentsTrainer):
    """The YAML files of TRL's command."""

    name = "trl"
    package = "trl"
    title = "TRL"
    held_out_key = "test_split_size"
    variables_in_file = True  # under `env:`
    script_first = False

    def __init__(self, kind: str | None = None) -> None:
        self._kind = kind  # of training, where somebody says it; else the file is asked

    def of_kind(self, kind: str) -> Trl:
        """The same for files of one kind of training, as its command would say."""
        from vramwise.trainers.trl.keys import KINDS

        if kind not in KINDS:
            raise VramwiseError(f"TRL has no training kind '{kind}': choose one of {', '.join(KINDS)}")
        return Trl(kind)

    def recognises(self, values: Mapping[Any, Any]) -> bool:
        """By a model or dataset, a setting of training and a word of TRL's own."""
        from vramwise.trainers.trl.recognise import is_training_config

        return is_training_config(values)

    def might_be(self, keys: frozenset[str]) -> bool:
        """By the same words."""
        from vramwise.trainers.trl.recognise import might_be

        return might_be(keys)

    def other_files(self) -> Sequence[Sign]:
        """Signs of files that are not training configs."""
        from vramwise.trainers.trl.recognise import OTHER_FILES

        return OTHER_FILES

    def vocabulary(self, document: Document | None, stack: Stack) -> Vocabulary:
        """The keys of the file's kind of training; without a file those of all kinds."""
        from vramwise.trainers.trl.keys import vocabulary
        from vramwise.trainers.trl.kind import kind_of

        return vocabulary(None if document is None else kind_of(document, self._kind).name, stack)

    def vocabulary_of(self, run: RunSpec) -> Vocabulary:
        """The keys of the run's kind of training."""
        from vramwise.trainers.trl.keys import vocabulary
        from vramwise.trainers.trl.kind import kind_name

        return vocabulary(kind_name(run), run.target.stack)

    def strange_keys(self, run: RunSpec) -> Iterable[StrangeKey]:
        """Keys that neither TRL, its command, its launcher nor a project's own script reads."""
        from vramwise.trainers.trl.keys import strange_keys

        return [one for one in strange_keys(run, self.vocabulary_of(run)) if in_config(run, one.key)]

    def side_files(self, document: Document) -> tuple[str, ...]:
        """DeepSpeed's and FSDP's JSON, accelerate's YAML."""
        return side_files(document.values, "accelerate_config", "config_file")

    def datasets(self, document: Document) -> tuple[DatasetBlock, ...]:
        """`dataset_name`, `datasets`, or a project's mixture."""
        from vramwise.trainers.trl.datasets import dataset_blocks

        return tuple(dataset_blocks(document.values))

    def resolve(self, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
        """Every field, as this version of TRL decides it."""
        from vramwise.trainers.trl.resolve import resolve_trl

        return resolve_trl(document, target, side_files, self._kind)

    def spell(self, run: RunSpec, change: Change) -> Spelling | None:
        """The change as edits of the file."""
        from vramwise.trainers.trl.spell import spell

        return spell(run, change)

    def words(self, change_id: str) -> tuple[str, ...]:
        """The lines to write for a change."""
        from vramwise.trainers.trl.spell import WORDS

        return WORDS.get(change_id, ())

    def compose(self, wishes: Wishes) -> Mapping[str, Any]:
        """A config for supervised fine-tuning from a few wishes."""
        from vramwise.trainers.trl.compose import compose

        if self._kind not in (None, "sft"):
            raise VramwiseError(
                f"without a file, only supervised fine-tuning is supported: for {self._kind}, write a config"
            )
        return compose(wishes)

    def start(self, start: Start) -> Mapping[str, Any]:
        """A config that can be run."""
        from vramwise.trainers.trl.start import start as started

        return started(start)

    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The order of a new config."""
        from vramwise.trainers.trl.start import GROUPS

        return GROUPS

    def launch(self, run: RunSpec, path: str) -> str:
        """The command that trains it."""
        from vramwise.trainers.trl.start import launch

        return launch(run, path)

    def companions(self, start: Start) -> Mapping[str, str]:
        """None: the config names its data."""
        return {}

    def script(self, values: Mapping[str, Any], start: Start, comments: Mapping[str, str], head: Sequence[str]) -> str:
        """The same training as a Python script."""
        from vramwise.trainers.trl.script import script

        return script(values, start, comments, head)

    def launch_script(self, run: RunSpec, path: str) -> str:
        """accelerate starts a process for each GPU."""
        several = f"accelerate launch --num_processes {run.batch.gpus}" if run.batch.gpus > 1 else "python"
        return f"{several} {path}"

    def unknown_keys(self, run: RunSpec) -> tuple[Severity, str]:
        """The command hands them to `accelerate launch`, which stops; a script run as a module drops them."""
        if run.config.document.script is not None:
            release = run.target.stack.releases["trl"]
            if release.origin.kind == "assumed":
                return Severity.WARNING, f"TRL {release.version} stops with a TypeError (no version is pinned here)"
            return Severity.ERROR, "the call stops with a TypeError"
        if run.target.launcher == "module":
            return Severity.WARNING, "the script drops it without warning"
        return Severity.ERROR, "the command passes it on to `accelerate launch`, which stops"

    def key_unknown(self, key: str, stack: Stack) -> str | None:
        """None for a key of any kind of training, of the command or of its launcher."""
        from vramwise.trainers.trl.keys import ALL_PROJECT_KEYS, COMMAND_KEYS, launcher_keys

        first = key.strip().partition(".")[0]
        if first in COMMAND_KEYS | ALL_PROJECT_KEYS or first in launcher_keys(stack):
            return None
        return super().key_unknown(key, stack)

    def releases(self) -> Mapping[str, Mapping[str, str]]:
        """Versions whose facts are known, with what they install with."""
        return _RELEASES

    def rules(self) -> Sequence[Rule]:
        """Rules about TRL's own keys, and those that all arguments share."""
        own = rules_below("vramwise.trainers.trl.rules")
        return (*own, *rules_below(ARGUMENT_RULES), *rules_below(SCRIPT_RULES))
