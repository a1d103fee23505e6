"""Axolotl as a trainer: the functions of this folder as methods of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vramwise.rules.base import Rule
from vramwise.rules.discovery import rules_below
from vramwise.trainers.base import DatasetBlock, SideFiles, Spelling
from vramwise.types import Change, Document, RunSpec, Schedule, Stack, Target

if TYPE_CHECKING:
    from vramwise.trainers.starting import Starter
    from vramwise.trainers.vocabulary import KeyFact
    from vramwise.trainers.wishes import Wishes


class Axolotl:
    """Axolotl's YAML configs."""

    name = "axolotl"
    package = "axolotl"
    title = "Axolotl"
    own_setting = "micro_batch_size"  # logs print a setting with this name for no other trainer

    def recognises(self, values: Mapping[Any, Any]) -> bool:
        """Recognise a file by keys that no other tool uses, or by a base model with training settings."""
        from vramwise.trainers.axolotl.recognise import is_training_config

        return is_training_config(values)

    def might_be(self, keys: frozenset[str]) -> bool:
        """Return whether there is a base model or one of Axolotl's own keys."""
        from vramwise.trainers.axolotl.recognise import OWN

        return "base_model" in keys or bool(keys & OWN)

    def side_files(self, document: Document) -> tuple[str, ...]:
        """Return the name of the DeepSpeed JSON file, if any."""
        name = document.values.get("deepspeed")
        return (name,) if isinstance(name, str) else ()

    def datasets(self, document: Document) -> tuple[DatasetBlock, ...]:
        """Return the entries of `datasets`, `pretraining_dataset` and `test_datasets`."""
        from vramwise.trainers.axolotl.datasets import dataset_blocks

        return tuple(dataset_blocks(document.values))

    def schedule(self, document: Document) -> Schedule:
        """Return the schedule from `num_epochs`, `max_steps` and `val_set_size`."""
        from vramwise.trainers.axolotl.datasets import schedule

        return schedule(document.values)

    def resolve(self, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
        """Return the run as this version of Axolotl resolves it."""
        from vramwise.trainers.axolotl.resolve import resolve_axolotl
        from vramwise.trainers.axolotl.schema.values import axolotl_config

        config = axolotl_config(document, target.stack)
        return resolve_axolotl(config, target, side_files)

    def spell(self, run: RunSpec, change: Change) -> Spelling | None:
        """Return the change as edits of the file."""
        from vramwise.trainers.axolotl.spell import spell

        return spell(run, change)

    def words(self, change_id: str) -> tuple[str, ...]:
        """Return the lines to write for a change."""
        from vramwise.trainers.axolotl.spell.words import WORDS

        return WORDS.get(change_id, ())

    def type_errors(self, document: Document, stack: Stack) -> Sequence[tuple[str, str]]:
        """Return the values whose type the schema of this version refuses."""
        from vramwise.trainers.axolotl.schema import schema_in

        return list(schema_in(stack).type_errors(document.values))

    def key_unknown(self, key: str, stack: Stack) -> str | None:
        """Return why a key is unknown; None for a key of the schema or of a plugin, or a renamed one."""
        from vramwise.trainers.axolotl.schema import elsewhere, history, schema_in, suggest

        schema = schema_in(stack)
        first = key.strip().partition(".")[0]
        known = schema.keys() | schema.plugin_keys().keys() | schema.deprecations().keys()
        if first in known:
            return None
        if when := elsewhere(history(first), schema.version):
            return f"{first} {when}, and this is {schema.short}"
        near = " or ".join(suggest(first, known))
        return f"{self.title} knows no key '{first}'" + (f": did you mean {near}?" if near else "")

    def releases(self) -> Mapping[str, Mapping[str, str]]:
        """Return the known versions with their pins."""
        from vramwise.trainers.axolotl.schema import releases

        return releases()

    def key_facts(self, version: str) -> Mapping[str, KeyFact]:
        """Return its keys in a version, with facts about each."""
        from vramwise.trainers.axolotl.keys import key_facts

        return key_facts(version)

    def closed_blocks(self, version: str) -> frozenset[str]:
        """Return the blocks that refuse unknown keys."""
        from vramwise.trainers.axolotl.schema import schema_of_version

        schema = schema_of_version(version)
        return frozenset(block for block in schema.blocks() if schema.refuses_unknown(block))

    def compose(self, wishes: Wishes) -> Mapping[str, Any]:
        """Return a config from a few options."""
        from vramwise.trainers.axolotl.compose import compose

        return compose(wishes)

    def starter(self) -> Starter:
        """Return the module that writes new configs."""
        from vramwise.trainers.axolotl import start

        return start

    def rules(self) -> Sequence[Rule]:
        """Return the rules about Axolotl's own keys."""
        return rules_below("vramwise.trainers.axolotl.rules")
