"""Keys looked up: types and defaults by version, what they do to memory, the rules about them."""

from dataclasses import replace

import pytest

from vramwise.errors import VramwiseError
from vramwise.lookup.keys import listing_trainers, look_up, memory_note, newest, notes
from vramwise.trainers.registry import trainer_named
from vramwise.trainers.vocabulary import key_facts_of
from vramwise.types import SETTINGS


def page(key):
    (found,) = look_up(key, "axolotl")
    return found


def test_every_note_is_about_a_field_of_a_run():
    fields = set(SETTINGS)
    assert set(notes()) <= fields


def test_a_key_says_what_it_takes_its_default_and_what_it_does_to_memory():
    found = page("sequence_len")
    (known,) = found.versions
    assert known.takes == "a whole number"
    assert known.default == 512
    assert known.versions == tuple(trainer_named("axolotl").releases())
    assert "grow in proportion" in found.memory
    assert "unpadded-sequences" in found.rules


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("load_in_4bit", "quantization"),
        ("micro_batch_size", "micro_batch_size"),
        ("peft_use_dora", "use_dora"),
        ("fsdp_config.offload_params", "offload_params"),
        ("flash_attention", "attn_implementation"),
        ("bf16", "precision"),
        ("val_set_size", "evaluates"),
        ("weight_decay", ""),
    ],
)
def test_a_key_leads_to_the_field_that_it_decides(key, field):
    found = page(key)
    assert found.field == field
    assert bool(found.memory) == bool(field)


def test_versions_that_differ_are_told_apart():
    since = page("eval_on_start").versions
    assert since[0].versions[0] == "0.21.0"


def test_a_plugins_key_names_its_plugin_and_an_old_one_its_successor():
    assert page("liger_rope").needs.endswith("LigerPlugin")
    assert "lora_mlp_kernel" in page("unsloth_lora_mlp").versions[-1].deprecated


def test_free_names_are_listed_and_not_taken_for_the_type():
    found = page("optimizer")
    assert "adamw_torch_8bit" in found.names
    assert found.versions[-1].takes == "text, or null"


def test_a_misspelt_key_gets_a_hint():
    with pytest.raises(VramwiseError, match="did you mean sequence_len"):
        look_up("seqence_len")
    with pytest.raises(VramwiseError, match="unknown trainer 'nobody'"):
        look_up("sequence_len", "nobody")
    with pytest.raises(VramwiseError, match="has no key"):
        look_up("x" * 100_000)


def test_every_field_that_a_vocabulary_names_is_one():
    fields = set(SETTINGS)
    for trainer in listing_trainers():
        for key, fact in key_facts_of(trainer, newest(trainer)).items():
            assert memory_note(trainer, key, fact)[0] in {*fields, ""}, key


class Words:
    """Keys as trainers have them whose arguments are dataclasses."""

    def keys(self):
        return frozenset({"output_dir", "max_length"})

    def type_of(self, key):
        return {"max_length": "int(ge=1)"}.get(key, "str?")

    def default(self, key):
        return {"max_length": 1024}.get(key)

    def meaning(self, key):
        return {"max_length": "rows are cut there"}.get(key)


def dataclasses_of(document, stack):
    assert stack.parts("transformers") == (5, 0, 0)
    return Words()


def test_fields_of_dataclasses_are_keys_as_well():
    one = trainer_named("hf-trainer")
    identity = replace(one.identity, package="dataclasses", releases=lambda: {"1.0.0": {"transformers": "5.0.0"}})
    facts = key_facts_of(replace(one, identity=identity, vocabulary=dataclasses_of), "1.0.0")
    assert facts["max_length"].default == 1024
    assert facts["max_length"].memory == "rows are cut there"
    assert facts["output_dir"].type == "str?"
    assert one.closed_blocks("1.0.0") == frozenset()


def test_explain_tells_a_key_as_well_as_a_rule(vramwise):
    shown = vramwise("explain", "gradient_checkpointing").stdout
    assert "Memory: Keeps only each layer's input" in shown
    assert " to 0.21.0: " in shown
    assert vramwise("explain", "eval-peak").stdout.startswith("eval-peak (info)")
    assert "no such rule 'nonsense'" in str(vramwise("explain", "nonsense").exception)
    assert "has no key 'no_such_key'" in str(vramwise("explain", "no_such_key").exception)


@pytest.mark.parametrize("trainer", ["trl", "llamafactory"])
def test_rules_for_all_trainers_are_found_by_each_ones_own_key(trainer):
    (found,) = look_up("per_device_eval_batch_size", trainer)
    assert "eval-batch-differs" in found.rules
