"""A family is an entry of families.json: read from a folder or a zip, and named nowhere else."""

import ast
import subprocess
import sys
import zipfile
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

import vramwise
from vramwise.errors import VramwiseError
from vramwise.ghost.build_layers import FUSED_ATTENTION, NORMS, ROTATIONS
from vramwise.models import families
from vramwise.models.config import model_from_config
from vramwise.models.families.base import Block, Mixer

SOURCE = Path(vramwise.__file__).parent
CONFIG = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}


def spec(model_type, **fields):
    return model_from_config({"model_type": model_type, **CONFIG, **fields}, name="m", source="config.json")


def words(kind, name):
    """What a field may say, where its type lists that."""
    hint = get_type_hints(kind)[name]
    literals = [each for each in (hint, *get_args(hint)) if get_origin(each) is Literal]
    return {word for literal in literals for word in get_args(literal)}


def test_entries_use_the_words_that_fields_have():
    blocks = [block for family in families.all_families() for block in (family.block, *own_blocks(family))]
    kinds = [kind for _, kind in families.all_model_types().values()]
    for thing in [*blocks, *filter(None, (block.mixture for block in blocks)), *kinds]:
        for field in fields(thing):
            value, known = getattr(thing, field.name), words(type(thing), field.name)
            assert not known or not isinstance(value, str) or value in known, (field.name, value)
    assert {mixer for block in blocks for mixer in block.mixers.values()} <= set(get_args(Mixer))


def own_blocks(family):
    return [kind.block for kind in family.types.values() if kind.block is not None]


def test_defaults_are_fields_that_something_reads():
    """A misspelled key of an entry would be taken for a default that no code asks for."""
    sources = [
        path.read_text(encoding="utf-8") for room in ("models", "facts") for path in (SOURCE / room).rglob("*.py")
    ]
    text = "\n".join(sources)
    every = {name for _, kind in families.all_model_types().values() for name in kind.defaults}
    assert [name for name in sorted(every) if f'"{name}"' not in text and name not in switched()] == []


def switched():
    kinds = [kind for _, kind in families.all_model_types().values()]
    return {name for kind in kinds for name in (*kind.switches.values(), *kind.own_sizes, *kind.activation)}


def test_no_model_type_belongs_to_two_families():
    counted = Counter(name for family in families.all_families() for name in family.types)
    assert [name for name, count in counted.items() if count > 1] == []
    assert len(counted) >= 40


@pytest.mark.parametrize("model_type", sorted(families.all_model_types()))
def test_every_type_is_found_by_its_name(model_type):
    assert families.find_type(model_type) == families.all_model_types()[model_type]


def test_an_unknown_type_has_no_family():
    assert families.find_type("brand_new") is None
    assert families.find_type("") is None


def test_modules_are_no_families():
    with pytest.raises(VramwiseError, match=r"unknown parameter layout .* 'base'"):
        families.layout_of(replace(spec("llama"), family="base"))


def test_one_model_reads_one_family():
    """What a check pays for at its start: the code of its own model."""
    code = (
        "import sys; from vramwise.models import families; families.find_type('lfm2'); "
        "print(*sorted(n for n in sys.modules if n.startswith('vramwise.models.families.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    files = {name.rpartition(".")[2] for name in done.stdout.split()}
    assert files <= {"base", "config_fields", "layout", "parts", "lfm2"}


def test_families_are_found_in_a_zip(tmp_path):
    package = tmp_path / "package.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for path in SOURCE.rglob("*"):
            if path.suffix in (".py", ".json"):
                archive.write(path, Path("vramwise") / path.relative_to(SOURCE))
    code = "from vramwise.models import families; print(families.__file__, len(list(families.all_families())))"
    environment = {"PYTHONPATH": str(package), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    where, count = done.stdout.split()
    assert str(package) in where
    assert int(count) == len(list(families.all_families()))


# transformers' and Liger's own lists of what takes which kernel
LISTED_ELSEWHERE = tuple(SOURCE / name for name in ("facts/attention.py", "facts/liger.py", "models/compiled.py"))


def test_a_family_is_named_in_its_own_room_alone():
    """Others read a family's fields; what they compare with is never a family's or a model_type's name."""
    names = {family.name for family in families.all_families()} | set(families.all_model_types())
    wrong = []
    for room in ("ghost", "facts", "models", "rules", "variants"):
        for path in sorted((SOURCE / room).rglob("*.py")):
            if path.relative_to(SOURCE).parts[:2] in (("models", "families"), ("models", "recorder")):
                continue
            # of multimodal models, by what is around the text model; what other libraries list by model_type
            if path.name not in ("towers.py", "more_towers.py") and path not in LISTED_ELSEWHERE:
                wrong += [f"{path.relative_to(SOURCE)}: {word}" for word in compared_words(path) & names]
    wrong.remove("variants/changes/activations.py: mpt")  # a word in the name of a base model, not the family
    assert wrong == []


def compared_words(path):
    """The strings of comparisons, and the keys and members of tables."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare | ast.Dict | ast.Set | ast.MatchValue):
            keys = node.keys if isinstance(node, ast.Dict) else [node]
            inside = [each for key in keys if key is not None for each in ast.walk(key)]
            found |= {each.value for each in inside if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return found


def test_every_word_of_a_block_has_a_layer():
    blocks = [family.block for family in families.all_families()]
    blocks += [kind.block for _, kind in families.all_model_types().values() if kind.block is not None]
    for block in blocks:
        assert block.norm in NORMS
        assert block.rotation is None or block.rotation in ROTATIONS
        assert block.fused_attention is None or block.fused_attention in FUSED_ATTENTION
        assert len(block.attention) == (4 if block.fused_attention is None else 2)
        assert len(block.norms) == {"sandwich": 4, "sandwich, scaled": 4, "streams": 4, "one part": 1}.get(
            block.order, 2
        )


def test_a_types_own_block_wins():
    assert families.block_of(spec("cohere2")).masks_by_kind
    assert not families.block_of(spec("cohere")).masks_by_kind
    assert families.block_of(spec("brand_new", intermediate_size=64, vocab_size=9, max_position_embeddings=9)) == Block(
        drops_inside=True
    )
