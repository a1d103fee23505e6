"""Odd values under every known key: nothing but a sentence comes back, from any verb and in any format.

`internal-error` is caught as well: it is a traceback in better clothes.
"""

import itertools

import pytest

from opened import check_document, make_target
from vramwise.api import predict, rules
from vramwise.documents.document import parse_document
from vramwise.documents.edit import diff, with_changes
from vramwise.errors import INTERNAL_ERROR, VramwiseError
from vramwise.opening.subject import on_target
from vramwise.render.annotations import render_github, render_sarif
from vramwise.render.report_json import render_json
from vramwise.render.resolved import render_resolved
from vramwise.render.text import render_text, summary
from vramwise.trainers.axolotl.schema import schema_of_version
from vramwise.trainers.registry import trainer_named
from vramwise.verbs.fix import fix_subject

NO_CARD = make_target(env={}, look_around=False)
CARD = make_target(env={}, look_around=False, gpu="rtx-4090", gpus=2)
ODD = (
    *("null", "''", "true", "0", "-1", "3", "-0.0", "1.5", ".inf", "-.inf", ".nan", "'inf'", "'8'", "'²'", "1:30"),
    *("999999999999999999999", "9" * 60, "9" * 5000, "'" + "9" * 5000 + "'", "0x" + "f" * 5000, "x" * 3000),
    *("2001-01-01", "2001-01-01 10:00:00", "2001-99-99", "!!timestamp 2001-01-01", "!!float 3", "!!str 3"),
    *("!!binary aGVsbG8=", "!!binary /w==", "!!set {a, b}", "!!omap [a: 1, b: 2]", "!!pairs [a: 1, a: 2]"),
    *("[]", "{}", "[null]", "[1, two, 3.5, null]", "[[1, [2]]]", "[{a: 1}, b]", "[2001-01-01, !!binary aGVsbG8=]"),
    *("{a: 1}", "{1: 2}", "{null: 1}", "{true: {2.5: x}}", "{2001-01-01: 1}", "{!!binary aGVsbG8=: 1}"),
    *(
        "{? [1, 2] : 3}",
        "[" * 60 + "]" * 60,
        "[" * 3000 + "]" * 3000,
        "&a [*a]",
        '"a\\nb::error::c"',
        '"\\e]52;c;x\\a"',
    ),
)
FACTS = schema_of_version("0.21.0")
KEYS = sorted(FACTS.keys() | set(FACTS.plugin_keys()))
BLOCKS = sorted((block, key) for block in FACTS.blocks() for key in FACTS.nested_keys(block) if "." not in block)
MODEL = "base_model: meta-llama/Llama-3.2-1B\n"
SMALL = (
    "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\nsequence_len: 64\nmicro_batch_size: 1\n"
    "val_set_size: 0.1\n"
)
# Keys whose value a prediction uses.
DECISIVE = (
    *("micro_batch_size", "sequence_len", "eval_batch_size", "eval_sequence_len", "eval_steps", "batch_size"),
    *("lora_r", "lora_target_modules", "lora_modules_to_save", "adapter", "optimizer", "plugins", "fsdp_config"),
    *("gradient_accumulation_steps", "pad_to_multiple_of", "tensor_parallel_size", "deepspeed", "base_model", "gptq"),
)


def judged(text, target, *, predicts=False):
    """Read, judge and write out in every format; the document, or None where it is refused."""
    try:
        document = parse_document("odd.yml", text.encode())
    except VramwiseError:
        return None
    report = check_document(document, target, predicts=predicts)
    faults = [found.message for found in report.findings if found.rule == INTERNAL_ERROR]
    assert not faults, (text[:300], faults)
    for render in (render_json, lambda some: render_sarif(some, rules()), render_github, summary):
        render([report])
    render_text(report)
    render_resolved(report.run, "odd.yml")
    return document


def sampled(pairs, step, start):
    """Every step-th pair: another residue for each key, so that all keys and all values come."""
    return itertools.islice(pairs, start, None, step)


def test_every_key_takes_or_refuses_odd_values():
    for key, value in sampled(itertools.product(KEYS, ODD), 83, 1):
        judged(f"{'' if key == 'base_model' else MODEL}{key}: {value}\n", CARD)


def test_every_key_of_a_block_takes_or_refuses_odd_values():
    for (block, key), value in sampled(itertools.product(BLOCKS, ODD), 41, 2):
        name, entry = block.removesuffix("[]"), f"  - {key}" if block.endswith("[]") else f"  {key}"
        judged(f"{MODEL}{name}:\n{entry}: {value}\n", NO_CARD)


def test_mending_odd_values_twice_is_mending_them_once():
    for key, value in sampled(itertools.product(KEYS, ODD), 307, 3):
        document = judged(f"{'' if key == 'base_model' else MODEL}{key}: {value}\n", CARD)
        for unsafe in (False, True) if document else ():
            once = fix_subject(on_target(document, trainer_named("axolotl"), CARD), unsafe=unsafe).subject
            twice = fix_subject(once, unsafe=unsafe).subject
            assert once.document.text == twice.document.text, (key, value[:80])
            diff(document, once.document)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("key", DECISIVE)
def test_predictions_with_odd_values(key):
    kept = [line for line in (MODEL + SMALL).splitlines() if not line.startswith(f"{key}:")]
    for value in ODD[DECISIVE.index(key) :: 29]:
        if not value.startswith("9"):  # what enormous runs need is the simulation's business
            judged("\n".join([*kept, f"{key}: {value}", ""]), CARD, predicts=True)


@pytest.mark.parametrize("key", ["lora_r: null", "lora_r: 0", "adapter: loar", "adapter: ''", "eval_steps: .inf"])
def test_predict_goes_on_where_a_rank_or_a_step_is_missing(key, tmp_path):
    name = key.partition(":")[0]
    kept = [line for line in (MODEL + SMALL).splitlines() if not line.startswith(f"{name}:")]
    path = tmp_path / "odd.yml"
    path.write_text("\n".join([*kept, key, ""]))
    prediction = predict(path, gpu="rtx-4090", torch="2.8", steps=1).prediction
    assert prediction.run.adapter.lora_r == 8


@pytest.mark.parametrize(
    "change",
    [
        "micro_batch_size=2001-99-99",
        "micro_batch_size=2001-01-01",
        "micro_batch_size=" + "9" * 5000,
        "micro_batch_size." + "9" * 5000 + "=1",
        "micro_batch_size=!!binary x",
        "micro_batch_size=!!python/object:os.system x",
        "micro_batch_size=" + "[" * 3000,
        "micro_batch_size={? [1] : 2}",
        "micro_batch_size=&a [*a]",
        "micro_batch_size=\0",
        "micro_batch_size=\udcff",
        "micro_batch_size=1\n---\n2",
        "micro_batch_size=0x_",
    ],
)
def test_a_change_that_cannot_be_is_a_sentence(change):
    document = parse_document("odd.yml", (MODEL + SMALL).encode())
    with pytest.raises(VramwiseError) as refused:
        with_changes(document, [change])
    assert "\n" not in str(refused.value).replace(change, "")


def test_a_file_of_thousands_of_unknown_keys_is_judged_at_once():
    text = MODEL + "".join(f"gradient_acumulation_step{number}: 1\n" for number in range(9000))
    report = check_document(parse_document("odd.yml", text.encode()), NO_CARD)
    unknown = [found for found in report.findings if found.rule == "unknown-key"]
    assert len(unknown) == 101
    assert "further findings are not shown" in unknown[-1].message
    assert unknown[-1].fix is None
