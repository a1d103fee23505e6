"""Every key of the four trainers' schemas is read by a resolver, harmless with a reason, or named as not counted."""

import ast
import json
import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

import vramwise
from opened import make_target, subject_of_text
from vramwise.trainers.registry import trainer_named
from vramwise.trainers.vocabulary import key_facts_of
from vramwise.variants.bounds import unmodelled
from vramwise.variants.doubts import doubts_of
from vramwise.variants.unread import table_of

SOURCE = Path(vramwise.__file__).parent
ROOT = Path(__file__).parents[2]
# Where each trainer's keys are read; those of scripts are renamed by `trainers/scripts/calls.py` before.
RESOLVERS = {
    "axolotl": ("axolotl/resolve", "axolotl/schema/values.py", "axolotl/trainer.py"),
    "trl": ("trl/resolve", "trl/kind.py", "trl/trainer.py", "arguments/resolve"),
    "llamafactory": ("llamafactory/resolve", "llamafactory/trainer.py", "arguments/resolve"),
    "unsloth": ("unsloth/resolve", "unsloth/trainer.py", "trl/resolve", "arguments/resolve"),
}
SHARED = ("deepspeed.py", "installed.py")
# Spelt otherwise in scripts: `target_parameters` is LoraConfig's name for it.
RENAMED = {"target_parameters": "lora_target_parameters"}


# Read by names that are put together: `liger_{part}`, `load_in_{bits}bit`.
PUT_TOGETHER = {
    "axolotl": {f"liger_{part}" for part in ("rope", "rms_norm", "rms_norm_gated", "layer_norm", "glu_activation")}
    | {"liger_swiglu"},
    "trl": {"load_in_8bit"},
}


@cache
def said(trainer):
    """The strings in the resolvers' code: what they ask for is among them."""
    words = set()
    for place in (*RESOLVERS[trainer], *SHARED):
        path = SOURCE / "trainers" / place
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
                    words |= {node.value}
    return frozenset(words)


def is_read(trainer, key):
    short = key.replace("fsdp_config.fsdp_", "fsdp_config.")
    known = {key, short, RENAMED.get(key, key), f"fsdp_config.{short}"}
    return bool(known & said(trainer)) or key in PUT_TOGETHER.get(trainer, ())


def keys_of(trainer):
    made = trainer_named(trainer)
    return sorted(key_facts_of(made, list(made.releases())[-1]))


def sorted_as(trainer, key):
    """What the table says of a key: "named", a reason, or "" where it says nothing."""
    short = key.replace("fsdp_config.fsdp_", "fsdp_config.")
    for part in table_of(trainer):
        if key in part["named"] or short in part["named"]:
            return "named"
        for why, patterns in part["harmless"].items():
            if any(fnmatchcase(name, re.sub(r"\[\]", "[[][]]", one)) for one in patterns for name in (key, short)):
                return why
    return ""


@pytest.mark.parametrize("trainer", RESOLVERS)
def test_every_key_is_read_or_harmless_or_named(trainer):
    left = [key for key in keys_of(trainer) if not is_read(trainer, key) and not sorted_as(trainer, key)]
    assert left == [], "sort them into trainers/unread.json"


@pytest.mark.parametrize("trainer", RESOLVERS)
@pytest.mark.parametrize("key", ["invented", "invented.inner", "liger_invented", "fsdp_config.invented"])
def test_a_new_key_is_in_none_of_the_three(trainer, key):
    assert not is_read(trainer, key)
    assert not sorted_as(trainer, key)


@pytest.mark.parametrize("trainer", RESOLVERS)
def test_the_table_has_no_key_that_no_trainer_has(trainer):
    """What is named must exist in some version of the trainer."""
    made = trainer_named(trainer)
    known = {key for version in made.releases() for key in key_facts_of(made, version)}
    if trainer == "llamafactory" or trainer == "unsloth":
        known |= set(keys_of("trl"))
    gone = [key for part in table_of(trainer) for key in part["named"] if key not in known]
    assert gone == []


def test_a_named_key_is_said_and_opens_its_end_of_the_range():
    def found(text, trainer="axolotl", **words):
        return subject_of_text(text, make_target(trainer=trainer, **words), trainer=trainer)

    base = "base_model: Qwen/Qwen3-0.6B\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n"
    subject = found(f"{base}lora_rank_pattern:\n  q_proj: 64\n")
    assert [one.text for one in doubts_of(subject.run, subject.model) if one.kind == "key"] == [
        "not counted: lora_rank_pattern (ranks that differ by layer)"
    ]
    more, less = f"{base}kd_trainer: true\n", f"{base}freeze_mm_modules: true\n"
    assert [(one.name, one.less) for one in unmodelled(found(more).run)] == [("kd_trainer", False)]
    assert [(one.name, one.less) for one in unmodelled(found(less).run)] == [("freeze_mm_modules", True)]
    assert not [one for one in doubts_of(found(base).run, subject.model) if one.kind == "key"]


def test_a_value_that_changes_nothing_is_not_named():
    text = "base_model: Qwen/Qwen3-0.6B\nfsdp_version: 2\nfsdp_config:\n  auto_wrap_policy: {}_BASED_WRAP\n"

    def named(policy):
        subject = subject_of_text(text.format(policy), make_target(gpus=2))
        return any("auto_wrap_policy" in one.text for one in doubts_of(subject.run, subject.model))

    assert named("SIZE")
    assert not named("TRANSFORMER")


def test_the_page_is_that_of_the_table():
    page = (ROOT / "docs/unread-keys.md").read_text()
    table = json.loads((SOURCE / "trainers/unread.json").read_text())
    for part in [table[name] for name in table if name != "parts"]:
        assert all(f"`{key}`" in page and entry["why"] in page for key, entry in part["named"].items())
        assert all(
            f"| {why} | {' '.join(f'`{key}`' for key in keys)} |" in page for why, keys in part["harmless"].items()
        )
