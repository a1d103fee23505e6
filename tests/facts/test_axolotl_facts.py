"""Axolotl's vocabulary and what its schema accepts: our own cases and, where present, real verdicts on configs."""

import datetime
import json
from pathlib import Path

import pytest
import yaml

from installed import needs_corpus
from vramwise.trainers.axolotl import schema as axolotl
from vramwise.trainers.axolotl.schema.pins import admits, shown_range
from vramwise.trainers.value_types import accepts, describe, describe_value, parse_type
from vramwise.types import version_parts

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
DATA = Path(__file__).parents[1] / "data"
V19 = axolotl.schema_of_version("0.19.0")
TYPE_ERRORS = {"list_type", "int_from_float", "string_type"}


def test_all_top_level_keys_and_aliases_are_known() -> None:
    assert len(V19.keys()) == 390 + 4
    assert {"model_type", "type_of_model", "micro_batch_size", "fsdp_config", "trl"} <= V19.keys()
    assert V19.keys().isdisjoint({"context_parapllel_size", "unsloth_rope"})


def test_every_written_type_is_in_the_grammar() -> None:
    facts = V19._facts
    groups = [facts["keys"], *facts["blocks"].values(), *facts["plugins"].values()]
    types = [written for group in groups for written in group.values()]
    assert len(types) > 600
    for written in types:
        alternatives, _ = parse_type(written)
        assert alternatives
        assert describe(written)


def test_every_block_that_a_type_names_is_listed() -> None:
    facts = V19._facts
    groups = [facts["keys"], *facts["blocks"].values(), *facts["plugins"].values()]
    for written in (written for group in groups for written in group.values()):
        for one in parse_type(written)[0]:
            if one.kind in ("block", "open"):
                assert one.limits[0] in V19.blocks()


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("micro_batch_size", "int?"),
        ("base_model", "str"),
        ("bf16", "one_of(auto)|bool?"),
        ("model_type", "str?"),
        ("fsdp_config.offload_params", "bool?"),
        ("fsdp_config.fsdp_offload_params", "bool?"),
        ("fsdp_config.version", "int?"),
        ("fsdp_config.fsdp_version", "int?"),
        ("peft.loftq_config", "block(peft.loftq_config)?"),
        ("peft.loftq_config.loftq_bits", "int"),
        ("liger_rope", "bool?"),
        ("no_such_key", None),
        ("fsdp_config.no_such_key", None),
    ],
)
def test_key_type(key: str, expected: str | None) -> None:
    assert V19.key_type(key) == expected


def test_nested_keys_include_the_prefixed_spelling_of_fsdp_config() -> None:
    known = V19.nested_keys("fsdp_config")
    assert {"offload_params", "fsdp_offload_params", "fsdp_version", "version", "reshard_after_forward"} <= known
    assert "fsdp_fsdp_version" not in known
    assert V19.nested_keys("no_such_block") == frozenset()
    assert "use_reentrant" in V19.nested_keys("gradient_checkpointing_kwargs")
    assert {"path", "type", "chat_template"} <= V19.nested_keys("datasets[]")
    assert V19.nested_name("fsdp_config", "fsdp_offload_params") == "offload_params"


def test_blocks_that_refuse_unknown_keys() -> None:
    assert V19.refuses_unknown("fp8_config")
    assert V19.refuses_unknown("torch_compile_options")
    assert not V19.refuses_unknown("fsdp_config")


def test_defaults() -> None:
    defaults = V19.defaults()
    assert defaults["bf16"] == "auto"
    assert defaults["gradient_accumulation_steps"] == 1
    assert defaults["optimizer"] == "adamw_torch_fused"
    assert "eval_batch_size" not in defaults
    assert set(defaults) <= V19.keys()


def test_defaults_are_accepted_by_their_own_types() -> None:
    assert [key for key, value in V19.defaults().items() if V19.check_type(key, value)] == []


def test_plugins_and_their_keys() -> None:
    assert V19.plugin_keys()["cut_cross_entropy"] == "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
    assert V19.plugin_keys()["liger_fused_linear_cross_entropy"] == "axolotl.integrations.liger.LigerPlugin"
    assert len(V19.known_plugins()) == 15
    assert not set(V19.plugin_keys()) & V19.keys()


@pytest.mark.parametrize(
    "written",
    ["axolotl.integrations.liger.LigerPlugin", "liger.LigerPlugin", "axolotl.integrations.liger.plugin.LigerPlugin"],
)
def test_plugin_spellings(written: str) -> None:
    assert V19.plugin_named(written) == "axolotl.integrations.liger.LigerPlugin"


@pytest.mark.parametrize("written", ["axolotl.integrations.liger.LigrPlugin", "liger", "", "my.own.Plugin"])
def test_plugins_of_others(written: str) -> None:
    assert V19.plugin_named(written) is None


def test_optimizer_groups_hold_known_names_only() -> None:
    for group in V19._facts["optimizer_groups"]:
        assert V19.optimizer_group(group) <= V19.optimizers()
    assert set(V19._facts["optimizer_packages"]) <= V19.optimizers()
    assert len(V19.optimizers()) == 41 + 17
    assert V19.optimizer_group("raises_later") == {"ao_adamw_4bit", "ao_adamw_8bit"}
    assert V19._facts["optimizer_packages"]["came_pytorch"] == "came_pytorch"
    assert "adamw_torch" not in V19._facts["optimizer_packages"]


def test_attention_names() -> None:
    assert {"flash_attention_2", "sdpa", "eager", "flex_attention"} <= V19.attn_implementations()
    assert V19.attention_facts()["legacy_flags"]["flash_attention"] == "flash_attention_2"
    assert V19.attention_facts()["refused_short_names"]["flash"] == "flash_attention_2"
    mapped = set(V19.attention_facts()["legacy_flags"].values())
    assert mapped <= V19.attn_implementations()


def test_deprecations_name_successors_that_exist() -> None:
    known = V19.keys() | set(V19.plugin_keys())
    for key, fact in V19.deprecations().items():
        if fact.successor:
            assert fact.successor.partition(".")[0] in known, key
    assert V19.deprecations()["dataset_processes"].successor == "dataset_num_proc"
    assert V19.deprecations()["max_packed_sequence_len"].effect == "refused"


def test_adapters_and_schedulers() -> None:
    assert V19.adapters() == {"lora", "qlora", "llama-adapter"}
    assert V19.plugin_adapters()["mora"] in V19.known_plugins()
    assert {"cosine", "rex", "one_cycle"} <= V19.lr_schedulers()


@pytest.mark.parametrize(
    ("word", "among", "first"),
    [
        ("context_parapllel_size", V19.keys(), "context_parallel_size"),
        ("adamw_8bt", V19.optimizers(), "adamw_8bit"),
        ("Adamw-Torch-Fused", V19.optimizers(), "adamw_torch_fused"),
        ("mciro_batch_size", V19.keys(), "micro_batch_size"),
        ("gradient_acumulation_steps", V19.keys(), "gradient_accumulation_steps"),
        ("flash_attention2", V19.attn_implementations(), "flash_attention_2"),
    ],
)
def test_suggestions(word: str, among: frozenset[str], first: str) -> None:
    assert axolotl.suggest(word, sorted(among))[0] == first


def test_no_suggestion_for_a_word_that_is_like_nothing() -> None:
    assert axolotl.suggest("zzzzqqq", V19.keys()) == ()


ACCEPTED = [
    ("micro_batch_size", 8),
    ("micro_batch_size", "8"),
    ("micro_batch_size", " 8 "),
    ("micro_batch_size", 8.0),
    ("micro_batch_size", "8.0"),
    ("micro_batch_size", True),
    ("micro_batch_size", None),
    ("learning_rate", "5e-5"),
    ("learning_rate", 2),
    ("weight_decay", "1e-2"),
    ("weight_decay", True),
    ("sample_packing", "yes"),
    ("sample_packing", "TRUE"),
    ("sample_packing", 0),
    ("sample_packing", 1.0),
    ("bf16", "auto"),
    ("bf16", "on"),
    ("lora_target_modules", "all-linear"),
    ("lora_target_modules", ["q_proj"]),
    ("eval_steps", 0.1),
    ("deepspeed", {"zero_optimization": {}}),
    ("deepspeed", "deepspeed_configs/zero2.json"),
    ("datasets", [{"path": "x"}]),
    ("fsdp_config", {}),
    ("fsdp_config.offload_params", "true"),
    ("gradient_checkpointing", "offload"),
    ("image_size", [224, 224]),
    ("max_memory", {0: "10GiB", "cpu": "60GiB"}),
    ("flash_attention", "whatever"),
    ("no_such_key", object()),
    ("output_dir", b"out"),
]
REFUSED = [
    ("micro_batch_size", 0.1),
    ("micro_batch_size", "8.5"),
    ("micro_batch_size", "1e3"),
    ("micro_batch_size", "eight"),
    ("micro_batch_size", "1."),
    ("micro_batch_size", [8]),
    ("micro_batch_size", float("inf")),
    ("micro_batch_size", datetime.date(2026, 1, 1)),
    ("learning_rate", "fast"),
    ("learning_rate", None),
    ("base_model", 7),
    ("output_dir", None),
    ("sequence_len", None),
    ("sample_packing", "maybe"),
    ("sample_packing", 2),
    ("bf16", "AUTO"),
    ("rl", "DPO"),
    ("gradient_checkpointing", "unsloth"),
    ("tokens", {"bos": "<s>"}),
    ("lora_target_modules", [1]),
    ("datasets", []),
    ("datasets", {"path": "x"}),
    ("datasets", ["x"]),
    ("fsdp_config", ["full_shard"]),
    ("fsdp_config.offload_params", "maybe"),
    ("fsdp_config.fsdp_state_dict_type", "FULL"),
    ("fsdp_config.min_num_params", 0),
    ("image_size", [224]),
    ("lora_rank_pattern", {"q_proj": 0}),
    ("overrides_of_model_config", {1: 2}),
    ("relora_prune_ratio", 1.5),
]


@pytest.mark.parametrize(("key", "value"), ACCEPTED)
def test_accepted(key: str, value: object) -> None:
    assert V19.check_type(key, value) is None


@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_refused(key: str, value: object) -> None:
    sentence = V19.check_type(key, value)
    assert sentence is not None
    assert sentence.startswith(f"{key} takes ")
    assert sentence.endswith(f"found {describe_value(value)}")


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("warmup_steps", 0.1, "warmup_steps takes a whole number, found the number 0.1"),
        ("output_dir", None, "output_dir takes text, found null"),
        ("tokens", {"bos": "<s>"}, "tokens takes a list of texts, found a mapping"),
        ("bf16", "fast", "bf16 takes 'auto', true or false, found the text 'fast'"),
        (
            "fsdp_config.min_num_params",
            0,
            "fsdp_config.min_num_params takes a whole number at least 1, found the number 0",
        ),
        ("datasets", [], "datasets takes a non-empty list of mappings, found an empty list"),
    ],
)
def test_sentences(key: str, value: object, sentence: str) -> None:
    assert V19.check_type(key, value) == sentence


def test_type_errors_walks_blocks_and_skips_plugins_that_are_not_listed() -> None:
    values = {
        "warmup_steps": 0.5,
        "fsdp_config": {"fsdp_offload_params": "maybe", "unknown": 1, 3: 4},
        "liger_rope": "maybe",
        "unknown": 1,
    }
    assert [key for key, _ in V19.type_errors(values)] == ["warmup_steps", "fsdp_config.fsdp_offload_params"]
    listed = {"plugins": ["liger.LigerPlugin"], "liger_rope": "maybe"}
    assert [key for key, _ in V19.type_errors(listed)] == ["liger_rope"]


def test_type_errors_survives_odd_values() -> None:
    assert dict(V19.type_errors({"plugins": "liger", 3: 4})) == {
        "plugins": "plugins takes a list of texts, found the text 'liger'"
    }


def test_choices_are_exact_and_numbers_stay_in_bounds() -> None:
    assert accepts("one_of(a,b)", "a")
    assert not accepts("one_of(a,b)", "A")
    assert accepts("caseless_one_of(a,b)", "A")
    assert accepts("int(ge=1,le=3)", "3")
    assert not accepts("int(ge=1,le=3)", 4)
    assert not accepts("int", "1" * 5000)
    assert not accepts("float", 10**400)


def test_a_number_that_stands_for_a_name_is_taken() -> None:
    assert [value for value in ("rope", 1, 5, 6, "spiral") if V19.check_type("mora.mora_type", value) is None] == [
        "rope",
        1,
        6,
    ]


def test_a_type_outside_the_grammar_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a type"):
        parse_type("integer?")


VERSIONS = axolotl.known_releases()


def test_known_releases_are_in_order() -> None:
    assert (VERSIONS[0], VERSIONS[-1]) == ("0.5.0", "0.21.0")
    assert list(VERSIONS) == sorted(VERSIONS, key=version_parts)
    assert {f"0.{minor}" for minor in range(5, 22)} == {version.rpartition(".")[0] for version in VERSIONS}
    with pytest.raises(KeyError):
        axolotl.schema_of_version("0.1.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_whole(version: str) -> None:
    one = axolotl.schema_of_version(version)
    facts = one._facts
    groups = [facts["keys"], *facts["blocks"].values(), *facts["plugins"].values()]
    for written in (written for group in groups for written in group.values()):
        for alternative in parse_type(written)[0]:
            if alternative.kind in ("block", "open"):
                assert alternative.limits[0] in one.blocks()
    assert [key for key, value in one.defaults().items() if one.check_type(key, value)] == []
    assert all(one.key_type(f"{block}.{key}") for block in one.blocks() for key in one.defaults(block))
    assert not set(one.plugin_keys()) & one.keys()
    assert set(one.plugin_defaults()) <= set(one.plugin_keys()) | one.keys()
    assert set(one.built_in_plugins()) <= set(one.known_plugins())
    assert set(one.plugin_adapters().values()) <= set(one.known_plugins())
    assert all(one.plugin_named(path) == path for path in one.known_plugins())
    assert all(one.optimizer_group(group) <= one.optimizers() for group in facts["optimizer_groups"])
    assert set(facts["optimizer_packages"]) <= one.optimizers()
    known = one.keys() | set(one.plugin_keys())
    successors = [fact.successor for fact in one.deprecations().values() if fact.successor]
    assert all(successor.partition(".")[0] in known for successor in successors)


@pytest.mark.parametrize(
    ("version", "other", "since"),
    [("0.21.0", "0.20.0", True), ("0.20.0", "0.20.0", True), ("0.19.0", "0.20.0", False)],
)
def test_since_compares_versions(version: str, other: str, since: bool) -> None:
    assert axolotl.schema_of_version(version).since(other) is since


@pytest.mark.parametrize(
    ("key", "version", "sentence"),
    [
        ("eval_on_start", "0.19.0", "was added in Axolotl 0.21"),
        ("eval_on_start", "0.21.0", ""),
        ("fsdp", "0.21.0", "was removed in Axolotl 0.20"),
        ("relora_steps", "0.18.0", "was removed in Axolotl 0.12"),
        ("tiled_mlp", "0.10.0", "was added in Axolotl 0.11"),
        ("no_such_key", "0.21.0", ""),
    ],
)
def test_a_key_of_another_version_says_so(key: str, version: str, sentence: str) -> None:
    assert axolotl.elsewhere(axolotl.history(key), version) == sentence


@pytest.mark.parametrize(
    ("wanted", "version", "inside"),
    [
        (">=2.13.0,<2.15.0", (2, 14), True),
        (">=2.13.0,<2.15.0", (2, 15), False),
        (">=2.13.0,<2.15.0", (2, 12, 1), False),
        (">=2.11.0,<=2.13.0", (2, 13), True),
        (">=2.11.0,<=2.13.0", (2, 13, 0), True),
        (">=2.11.0,<=2.13.0", (2, 13, 1), False),
        ("==5.20.1", (5, 20, 1), True),
        ("==5.20.1", (5, 19), False),
    ],
)
def test_versions_against_pins(wanted: str, version: tuple[int, ...], inside: bool) -> None:
    assert admits(wanted, version) is inside


def test_ranges_for_people() -> None:
    assert shown_range(">=2.13.0,<2.15.0") == "2.13 to before 2.15"
    assert shown_range(">=2.11.0,<=2.12.1") == "2.11 to 2.12.1"


@pytest.mark.parametrize(
    ("version", "released", "python", "torch", "transformers"),
    [
        ("0.5.2", "2024-11-19", ">=3.10", ">=2.3.1", "==4.46.3"),
        ("0.10.0", "2025-06-17", ">=3.10", ">=2.5.1", "==4.52.3"),
        ("0.14.0", "2026-01-30", ">=3.10", "==2.8.0", "==5.0.0"),
        ("0.18.0", "2026-07-17", ">=3.10", ">=2.11.0,<=2.12.1", "==5.14.1"),
        ("0.19.0", "2026-09-10", ">=3.10", ">=2.11.0,<=2.13.0", "==5.16.1"),
        ("0.20.0", "2026-09-30", ">=3.12", ">=2.13.0,<=2.14.0", "==5.17.0"),
        ("0.21.0", "2026-10-16", ">=3.12", ">=2.13.0,<2.15.0", "==5.20.1"),
    ],
)
def test_pins(version: str, released: str, python: str, torch: str, transformers: str) -> None:
    one = axolotl.schema_of_version(version)
    assert (one.released, one.python) == (released, python)
    assert (one.pins["torch"], one.pins["transformers"]) == (torch, transformers)
    assert {"peft", "trl", "accelerate", "datasets", "bitsandbytes", "liger-kernel"} <= set(one.pins)


@pytest.mark.parametrize(
    ("key", "since", "gone", "successor"),
    [
        ("micro_batch_size", None, None, None),
        ("torch_compile_regional", "0.21.0", None, None),
        ("eval_on_start", "0.21.0", None, None),
        ("nf4_backend", "0.20.0", None, None),
        ("lora_fp32_gradients", "0.20.0", None, None),
        ("cut_cross_entropy_accum_c_fp32", "0.20.0", None, None),
        ("selective_checkpointing.save_modules", "0.20.0", None, None),
        ("ple_cpu_offload", "0.19.0", None, None),
        ("fsdp", None, "0.20.0", "fsdp_config"),
        ("fsdp_config.use_orig_params", "0.13.1", "0.20.0", None),
        ("fsdp_config.fsdp_offload_params", "0.13.1", None, None),
        ("dataset_processes", None, None, "dataset_num_proc"),
        ("diffusion", "0.13.1", None, "diffusion_lm"),
    ],
)
def test_history(key: str, since: str | None, gone: str | None, successor: str | None) -> None:
    found = axolotl.history(key)
    assert found == axolotl.History(name=key, since=since, gone=gone, successor=successor)


def test_history_of_what_nobody_knows() -> None:
    assert axolotl.history("no_such_key") is None
    assert axolotl.value_history("optimizer", "no_such_optimizer") is None
    assert axolotl.value_history("micro_batch_size", "adamw_torch") is None


def test_history_knows_which_version_has_a_key() -> None:
    for key in ("fsdp", "nf4_backend", "eval_on_start", "micro_batch_size"):
        found = axolotl.history(key)
        assert found is not None
        assert [found.known_in(one) for one in VERSIONS] == [
            bool(axolotl.schema_of_version(one).key_type(key)) for one in VERSIONS
        ]


@pytest.mark.parametrize(
    ("key", "name", "since"),
    [
        ("optimizer", "muon_8bit", "0.21.0"),
        ("optimizer", "scao", "0.20.0"),
        ("optimizer", "adamc", "0.19.0"),
        ("optimizer", "adamw_torch", None),
        ("attn_implementation", "varlen", "0.21.0"),
        ("attn_implementation", "flash_attention_4", "0.19.0"),
        ("adapter", "mixlora", "0.20.0"),
        ("plugins", "axolotl.integrations.context_parallel.ContextParallelPlugin", "0.20.0"),
        ("lr_scheduler", "rex", None),
    ],
)
def test_history_of_names(key: str, name: str, since: str | None) -> None:
    found = axolotl.value_history(key, name)
    assert found is not None
    assert (found.since, found.gone) == (since, None)


def test_defaults_that_changed() -> None:
    of = {version: axolotl.schema_of_version(version) for version in VERSIONS[-4:]}
    assert [one.defaults().get("fsdp_version") for one in of.values()] == [None, None, 2, 2]
    assert [one.defaults("vllm").get("gpu_memory_utilization") for one in of.values()] == [0.9, 0.9, 0.9, None]
    assert of["0.21.0"].plugin_defaults()["expert_parallel_backend"] == "auto"


def test_fsdp_1_is_refused_since_it_left() -> None:
    assert axolotl.schema_of_version("0.19.0").deprecations()["fsdp"].effect == "works"
    new = axolotl.schema_of_version("0.20.0").deprecations()
    assert (new["fsdp"].effect, new["fsdp"].successor) == ("refused", "fsdp_config")
    assert new["fsdp_config.sharding_strategy"].successor == "fsdp_config.reshard_after_forward"
    assert new["fsdp_config.use_orig_params"].effect == "ignored"


def test_keys_of_a_built_in_plugin_are_judged_without_being_listed() -> None:
    wrong = {"expert_parallel_backend": "nccl"}
    assert [key for key, _ in axolotl.schema_of_version("0.21.0").type_errors(wrong)] == ["expert_parallel_backend"]
    assert list(axolotl.schema_of_version("0.19.0").type_errors(wrong)) == []


# The diffusion plugin of 0.21 mends these before the schema sees them.
MENDED_BY_A_PLUGIN = {"llama-3__diffusion__sft-1b.yaml"}


@needs_corpus
@pytest.mark.parametrize(
    ("version", "verdicts", "refused"),
    [
        ("0.19.0", CORPUS / "axolotl-verdicts-sm90-1gpu.json", 8),
        ("0.19.0", CORPUS / "axolotl-verdicts-sm75-2gpu.json", 8),
        ("0.21.0", DATA / "axolotl-0.21-verdicts-sm90-1gpu.json", 7),
        ("0.21.0", DATA / "axolotl-0.21-verdicts-sm75-2gpu.json", 7),
    ],
)
def test_agrees_with_axolotl_on_real_configs(version: str, verdicts: Path, refused: int) -> None:
    flagged = 0
    for record in json.loads(verdicts.read_text(encoding="utf-8")):
        values = yaml.safe_load((CORPUS / "axolotl" / record["file"]).read_text(encoding="utf-8"))
        ours = {key for key, _ in axolotl.schema_of_version(version).type_errors(values)}
        theirs = {place for kind, place, _ in record["errors"] if kind in TYPE_ERRORS}
        assert theirs <= ours, record["file"]
        if record["ok"] and not (version == "0.21.0" and record["file"] in MENDED_BY_A_PLUGIN):
            assert not ours, record["file"]
        flagged += bool(theirs)
    assert flagged == refused


@needs_corpus
def test_unknown_keys_are_those_that_axolotl_0_21_drops() -> None:
    newest = axolotl.schema_of_version("0.21.0")
    records = json.loads((DATA / "axolotl-0.21-verdicts-sm90-1gpu.json").read_text(encoding="utf-8"))
    for record in records:
        values = yaml.safe_load((CORPUS / "axolotl" / record["file"]).read_text(encoding="utf-8"))
        loaded = {*newest.built_in_plugins(), *map(newest.plugin_named, values.get("plugins") or ())}
        known = newest.keys() | {key for key, plugin in newest.plugin_keys().items() if plugin in loaded}
        if record["unknown"] is not None:
            assert sorted(set(values) - known) == record["unknown"], record["file"]
