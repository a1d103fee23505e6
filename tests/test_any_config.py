"""Random configs of known keys: checking, resolving and fixing never crash, and a fix never corrupts."""

import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nightly import examples
from opened import check_document, make_target
from vramwise.documents.document import parse_document
from vramwise.errors import ConfigError
from vramwise.opening.subject import on_target
from vramwise.render.report_json import file_json
from vramwise.render.resolved import render_resolved
from vramwise.render.text import render_text
from vramwise.trainers.axolotl.schema import schema_of_version
from vramwise.trainers.registry import trainer_named
from vramwise.verbs.fix import fix_subject

TARGETS = [
    make_target(env={}, look_around=False, gpu=gpu, gpus=gpus, torch=torch)
    for gpu, gpus, torch in (
        (None, None, None),
        ("t4", 2, "2.9"),
        ("h100", 8, "2.13"),
        ("24GB", 1, "2.2"),
        ("mi300x", 3, "2.8"),
    )
]
WORDS = (
    "auto",
    "lora",
    "qlora",
    "adamw_8bit",
    "flash_attention_2",
    "sdpa",
    "offload",
    "dpo",
    "grpo",
    "no",
    "steps",
    "5e-5",
    "",
    "x",
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 4096),
    st.sampled_from(WORDS),
    st.floats(allow_nan=True),
    st.text(max_size=8),
)
nested = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["use_reentrant", "version", "path", "a.b", "stage"]), inner, max_size=3)
    ),
    max_leaves=6,
)
FACTS = schema_of_version("0.21.0")
configs = st.dictionaries(
    st.sampled_from(sorted(FACTS.keys() | set(FACTS.plugin_keys()))), nested, min_size=1, max_size=12
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(configs, st.sampled_from(TARGETS))
@example({"device_map": {"": []}}, TARGETS[0])
def test_any_config_can_be_judged_and_mended(values, target):
    text = yaml.safe_dump(values, allow_unicode=True)
    try:
        document = parse_document("any.yml", text.encode())
    except ConfigError:
        return
    report = check_document(document, target)
    assert file_json(report)["resolved"]
    render_text(report)
    render_resolved(report.run, "any.yml")
    mended = fix_subject(on_target(document, trainer_named("axolotl"), target), unsafe=True).subject.document
    again = parse_document("any.yml", mended.text.encode())
    assert repr(again.values) == repr(mended.values)
