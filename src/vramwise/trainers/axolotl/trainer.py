"""Axolotl as a trainer: the functions of this room under the names that all trainers have."""

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
    """Axolotl's YAML."""

    name = "axolotl"
    package = "axolotl"
    title = "Axolotl"
    own_setting = "micro_batch_size"  # that logs print under this name for no other trainer

    def recognises(self, values: Mapping[Any, Any]) -> bool:
        """By words that no other tool writes, or a base model with something to train it by."""
        from vramwise.trainers.axolotl.recognise import is_training_config

        return is_training_config(values)

    def might_be(self, keys: frozenset[str]) -> bool:
        """By a base model, or a word that is Axolotl's own."""
        from vramwise.trainers.axolotl.recognise import OWN

        return "base_model" in keys or bool(keys & OWN)

    def side_files(self, document: Document) -> tuple[str, ...]:
        """The DeepSpeed JSON."""
        name = document.values.get("deepspeed")
        return (name,) if isinstance(name, str) else ()

    def datasets(self, document: Document) -> tuple[DatasetBlock, ...]:
        """`datasets` and `test_datasets`."""
        from vramwise.trainers.axolotl.datasets import dataset_blocks

        return tuple(dataset_blocks(document.values))

    def schedule(self, document: Document) -> Schedule:
        """`num_epochs`, `max_steps` and `val_set_size`."""
        from vramwise.trainers.axolotl.datasets import schedule

        return schedule(document.values)

    def resolve(self, document: Document, target: Target, side_files: SideFiles) -> RunSpec:
        """Every field, as this version of Axolotl decides it."""
        from vramwise.trainers.axolotl.resolve import resolve_axolotl
        from vramwise.trainers.axolotl.schema.values import axolotl_config

        config = axolotl_config(document, target.stack)
        return resolve_axolotl(config, target, side_files)

    def spell(self, run: RunSpec, change: Change) -> Spelling | None:
        """The change as edits of the file."""
        from vramwise.trainers.axolotl.spell import spell

        return spell(run, change)

    def words(self, change_id: str) -> tuple[str, ...]:
        """The lines to write for a change."""
        from vramwise.trainers.axolotl.spell.words import WORDS

        return WORDS.get(change_id, ())

    def type_errors(self, document: Document, stack: Stack) -> Sequence[tuple[str, str]]:
        """What the schema of this version refuses by type."""
        from vramwise.trainers.axolotl.schema import schema_in

        return list(schema_in(stack).type_errors(document.values))

    def key_unknown(self, key: str, stack: Stack) -> str | None:
        """None for a key of the schema, of a plugin, or one that was renamed."""
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
        """Versions whose facts are known, with their pins."""
        from vramwise.trainers.axolotl.schema import releases

        return releases()

    def key_facts(self, version: str) -> Mapping[str, KeyFact]:
        """Its keys in a version, with what is known of each."""
        from vramwise.trainers.axolotl.keys import key_facts

        return key_facts(version)

    def closed_blocks(self, version: str) -> frozenset[str]:
        """Blocks that refuse unknown keys."""
        from vramwise.trainers.axolotl.schema import schema_of_version

        schema = schema_of_version(version)
        return frozenset(block for block in schema.blocks() if schema.refuses_unknown(block))

    def compose(self, wishes: Wishes) -> Mapping[str, Any]:
        """A config from a few wishes."""
        from vramwise.trainers.axolotl.compose import compose

        return compose(wishes)

    def starter(self) -> Starter:
        """What writes new configs."""
        from vramwise.trainers.axolotl import start

        return start

    def rules(self) -> Sequence[Rule]:
        """Rules about Axolotl's own keys."""
        return rules_below("vramwise.trainers.axolotl.rules")
