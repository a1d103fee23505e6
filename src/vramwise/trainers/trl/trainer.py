"""TRL as a trainer: the functions of this folder as methods of the protocol."""

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
    from vramwise.trainers.starting import Start, Starter
    from vramwise.trainers.wishes import Wishes

# TRL pins nothing: these were the newest versions at the time of each release.
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
    script_first = False

    def __init__(self, kind: str | None = None) -> None:
        self._kind = kind  # the kind of training that the user chose; None: the file decides

    def of_kind(self, kind: str) -> Trl:
        """Return the trainer for one kind of training; raises VramwiseError for an unknown kind."""
        from vramwise.trainers.trl.keys import KINDS

        if kind not in KINDS:
            raise VramwiseError(f"TRL has no training kind '{kind}': choose one of {', '.join(KINDS)}")
        return Trl(kind)

    def recognises(self, values: Mapping[Any, Any]) -> bool:
        """Recognise a file by a model or dataset, a training setting and a key of TRL's own."""
        from vramwise.trainers.trl.recognise import is_training_config

        return is_training_config(values)

    def might_be(self, keys: frozenset[str]) -> bool:
        """Return whether the keys match TRL's."""
        from vramwise.trainers.trl.recognise import might_be

        return might_be(keys)

    def other_files(self) -> Sequence[Sign]:
        """Return signs of files that are not training configs."""
        from vramwise.trainers.trl.recognise import OTHER_FILES

        return OTHER_FILES

    def vocabulary(self, document: Document | None, stack: Stack) -> Vocabulary:
        """Return the keys of the file's kind of training; without a file, those of all kinds."""
        from vramwise.trainers.trl.keys import vocabulary
        from vramwise.trainers.trl.kind import kind_of

        return vocabulary(None if document is None else kind_of(document, self._kind).name, stack)

    def vocabulary_of(self, run: RunSpec) -> Vocabulary:
        """Return the keys of the run's kind of training."""
        from vramwise.trainers.trl.keys import vocabulary
        from vramwise.trainers.trl.kind import kind_name

        return vocabulary(kind_name(run), run.target.stack)

    def strange_keys(self, run: RunSpec) -> Iterable[StrangeKey]:
        """Return keys that TRL, its command, its launcher and a project's own script do not read."""
        from vramwise.trainers.trl.keys import strange_keys

        return [one for one in strange_keys(run, self.vocabulary_of(run)) if in_config(run, one.key)]

    def side_files(self, document: Document) -> tuple[str, ...]:
        """Return the JSON files of DeepSpeed and FSDP, and the YAML files of accelerate."""
        return side_files(document.values, "accelerate_config", "config_file")

    def datasets(self, document: Document) -> tuple[DatasetBlock, ...]:
        """Return `dataset_name`, `datasets`, or a project's mixture."""
        from vramwise.trainers.trl.datasets import dataset_blocks

        return tuple(dataset_blocks(document.values))

    def resolve(self, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
        """Return the run as this version of TRL resolves it."""
        from vramwise.trainers.trl.resolve import resolve_trl

        return resolve_trl(document, target, side_files, self._kind)

    def spell(self, run: RunSpec, change: Change) -> Spelling | None:
        """Return the change as edits of the file."""
        from vramwise.trainers.trl.spell import spell

        return spell(run, change)

    def words(self, change_id: str) -> tuple[str, ...]:
        """Return the lines to write for a change."""
        from vramwise.trainers.trl.spell import WORDS

        return WORDS.get(change_id, ())

    def compose(self, wishes: Wishes) -> Mapping[str, Any]:
        """Return a config for supervised fine-tuning from a few options."""
        from vramwise.trainers.trl.compose import compose

        if self._kind not in (None, "sft"):
            raise VramwiseError(
                f"without a file, only supervised fine-tuning is supported: for {self._kind}, write a config"
            )
        return compose(wishes)

    def starter(self) -> Starter:
        """Return the module that writes new configs."""
        from vramwise.trainers.trl import start

        return start

    def script(self, values: Mapping[str, Any], start: Start, comments: Mapping[str, str], head: Sequence[str]) -> str:
        """Return the same training as a Python script."""
        from vramwise.trainers.trl.script import script

        return script(values, start, comments, head)

    def launch_script(self, run: RunSpec, path: str) -> str:
        """Return the launch command; accelerate starts a process for each GPU."""
        several = f"accelerate launch --num_processes {run.batch.gpus}" if run.batch.gpus > 1 else "python"
        return f"{several} {path}"

    def unknown_keys(self, run: RunSpec) -> tuple[Severity, str]:
        """Return the effect: the command passes them to `accelerate launch`, which stops; a module drops them."""
        if run.config.document.script is not None:
            release = run.target.stack.releases["trl"]
            if release.origin.kind == "assumed":
                unpinned = "" if "trl" in run.target.stack.bounds else " (no version is pinned here)"
                return Severity.WARNING, f"TRL {release.version} stops with a TypeError{unpinned}"
            said = "" if release.known else f" in TRL {release.version}"
            return Severity.ERROR, f"the call stops with a TypeError{said}"
        if run.target.launcher == "module":
            return Severity.WARNING, "the script drops it without warning"
        return Severity.ERROR, "the command passes it on to `accelerate launch`, which stops"

    def key_unknown(self, key: str, stack: Stack) -> str | None:
        """Return why a key is unknown; None for a key of any kind of training, the command or its launcher."""
        from vramwise.trainers.trl.keys import ALL_PROJECT_KEYS, COMMAND_KEYS, launcher_keys

        first = key.strip().partition(".")[0]
        if first in COMMAND_KEYS | ALL_PROJECT_KEYS or first in launcher_keys(stack):
            return None
        return super().key_unknown(key, stack)

    def releases(self) -> Mapping[str, Mapping[str, str]]:
        """Return the known versions with what they install with."""
        return _RELEASES

    def rules(self) -> Sequence[Rule]:
        """Return the rules about TRL's own keys, and those that arguments and scripts share."""
        own = rules_below("vramwise.trainers.trl.rules")
        return (*own, *rules_below(ARGUMENT_RULES), *rules_below(SCRIPT_RULES))
