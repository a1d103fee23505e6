"""LLaMA-Factory as a trainer: the functions of this folder as methods of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vramwise.rules.base import Rule
from vramwise.rules.discovery import rules_below
from vramwise.trainers.arguments import ARGUMENT_RULES, ArgumentsTrainer, Vocabulary, side_files
from vramwise.trainers.base import DatasetBlock, SideFiles, Spelling
from vramwise.trainers.signs import Sign
from vramwise.types import Change, Document, RunSpec, Stack, Target

if TYPE_CHECKING:
    from vramwise.trainers.starting import Starter
    from vramwise.trainers.wishes import Wishes


# The default of TrainingArguments.
_SEED = 42


class LlamaFactory(ArgumentsTrainer):
    """The files of `llamafactory-cli train`."""

    name = "llamafactory"
    package = "llamafactory"
    title = "LLaMA-Factory"
    held_out_key = "val_size"
    caps_transformers = True
    other_names = ("llama-factory", "llama_factory", "llmtuner", "LLaMA-Factory")  # in logs
    own_setting = "cutoff_len"  # logs print a setting with this name for no other trainer

    def split_seed(self, document: Document) -> int | None:
        """Return `seed`, which also draws the held-out samples."""
        seed = document.values.get("seed", _SEED)
        return seed if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 else None

    def other_files(self) -> Sequence[Sign]:
        """Return signs of files that are not training configs."""
        from vramwise.trainers.llamafactory.recognise import OTHER_FILES

        return OTHER_FILES

    def vocabulary(self, document: Document | None, stack: Stack) -> Vocabulary:
        """Return its own keys and those of TrainingArguments."""
        from vramwise.trainers.llamafactory.keys import vocabulary

        return vocabulary(stack)

    def recognises(self, values: Mapping[Any, Any]) -> bool:
        """Recognise a file by a model, training settings and its own keys."""
        from vramwise.trainers.llamafactory.recognise import is_training_config

        return is_training_config(values)

    def might_be(self, keys: frozenset[str]) -> bool:
        """Return whether there is a model and one of its own keys."""
        from vramwise.trainers.llamafactory.recognise import OWN

        return "model_name_or_path" in keys and bool(keys & OWN)

    def side_files(self, document: Document) -> tuple[str, ...]:
        """Return the files of DeepSpeed and FSDP."""
        return side_files(document.values)

    def datasets(self, document: Document) -> tuple[DatasetBlock, ...]:
        """Return the datasets of `dataset` and `eval_dataset`."""
        from vramwise.trainers.llamafactory.datasets import dataset_blocks

        return tuple(dataset_blocks(document.values))

    def resolve(self, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
        """Return the run as this version resolves it."""
        from vramwise.trainers.llamafactory.resolve import resolve_llamafactory

        return resolve_llamafactory(document, target, side_files)

    def spell(self, run: RunSpec, change: Change) -> Spelling | None:
        """Return the change as edits of the file."""
        from vramwise.trainers.llamafactory.spell import spell

        return spell(run, change)

    def words(self, change_id: str) -> tuple[str, ...]:
        """Return the lines to write for a change."""
        from vramwise.trainers.llamafactory.spell import WORDS

        return WORDS.get(change_id, ())

    def compose(self, wishes: Wishes) -> Mapping[str, Any]:
        """Return a config for supervised fine-tuning from a few options."""
        from vramwise.trainers.llamafactory.compose import compose

        return compose(wishes)

    def starter(self) -> Starter:
        """Return the module that writes new configs."""
        from vramwise.trainers.llamafactory import start

        return start

    def releases(self) -> Mapping[str, Mapping[str, str]]:
        """Return the known versions with the versions that they install with."""
        from vramwise.trainers.llamafactory.keys import releases

        return releases()

    def rules(self) -> Sequence[Rule]:
        """Return the rules about its own keys, and those that all arguments share."""
        return (*rules_below("vramwise.trainers.llamafactory.rules"), *rules_below(ARGUMENT_RULES))
