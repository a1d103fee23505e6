"""The axes of a search: what they offer holds once it is written, is taken by the trainer, keeps the training, and
leads nowhere that could not be reached before."""

from collections.abc import Iterator

import pytest
import varied

from vramwise.documents.document import parse_document
from vramwise.errors import VramwiseError
from vramwise.opening.subject import Subject
from vramwise.variants.axes import ALLOW, AXES, opened

# What makes a training what it is: no axis that is open by itself may touch it.
RESULT = (
    *("effective_batch_size", "sequence_len", "sample_packing", "samples_apart", "adapter", "lora_r", "lora_alpha"),
    *("lora_dropout", "quantization", "precision", "weights_dtype", "fp32_embeddings", "autocast", "unfrozen"),
    *("rl", "objective", "sharding", "max_grad_norm", "base_model", "data_parallel"),
)
# versions and machines, taken in turn
PLACES = (("0.19.0", "h100", 1), ("0.21.0", "rtx-4090", 2), ("0.20.0", "t4", 1), ("0.18.0", "a100-80gb", 4))


def configs() -> Iterator[tuple[str, bytes]]:
    for name, text in varied.TEXTS.items():
        yield name, text.encode()
    for path in varied.sample(20):
        yield path.name, path.read_bytes()


def opened_at(name: str, data: bytes) -> Subject:
    version, gpu, gpus = PLACES[len(name) % len(PLACES)]
    try:
        return varied.subject_of(parse_document(name, data), version, gpu, gpus)
    except VramwiseError:
        pytest.skip("vramwise refuses this public config, so it offers no change: nothing to run")


@pytest.mark.parametrize(("name", "data"), list(configs()))
def test_a_choice_holds_is_taken_and_leads_nowhere_new(name, data):
    before = opened_at(name, data)
    axes = opened(ALLOW)
    could = {axis.name: varied.reach(before, axis) for axis in axes}
    refused = varied.errors(before)
    for step in varied.steps(before, ALLOW):
        fields, run = step.change.fields, step.after.run
        wanted = {field: varied.plain(field, value) for field, value in fields.items()}
        assert varied.held(run, fields) == wanted, step.change.id
        assert varied.errors(step.after) <= refused, step.change.id
        if step.change.effect != "changes":
            moved = {field for field in RESULT if run.value(field) != before.run.value(field)}
            assert not moved, f"{step.change.id} is said to keep the training"
        if step.axis.name == "batches":
            assert run.evaluation.eval_batch_size in (None, run.batch.micro_batch_size)
        earlier = axes[: 1 + next(place for place, axis in enumerate(axes) if axis.name == step.axis.name)]
        for axis in earlier:
            assert varied.reach(step.after, axis) <= could[axis.name], f"{step.change.id} opens more of {axis.name}"


@pytest.mark.parametrize(("name", "data"), list(configs()))
def test_what_is_open_by_itself_is_closed(name, data):
    """From each choice the same values can be reached again: all but the one the file came with, at most."""
    before = opened_at(name, data)
    could = {axis.name: varied.reach(before, axis) for axis in opened()}
    for step in varied.steps(before):
        present = frozenset(varied.held(before.run, varied.AXIS_FIELDS[step.axis.name]).items())
        lost = could[step.axis.name] - varied.reach(step.after, step.axis)
        assert lost <= {present}, f"{step.change.id} gives up more of {step.axis.name}"


@pytest.mark.parametrize("allow", [(), tuple(ALLOW)], ids=["default", "all"])
@pytest.mark.parametrize("turn", range(3))
def test_choices_on_all_axes_hold_together(turn, allow):
    for name, text in varied.TEXTS.items():
        before = after = opened_at(name, text.encode())
        wanted = {}
        for number, axis in enumerate(opened(allow)):
            offered = [change for change in axis.choices(after.run) if after.trainer.spell(after.run, change)]
            if offered:
                change = offered[(turn * 7 + number + len(name)) % len(offered)]
                after = varied.made(after, change)
                wanted |= {field: varied.plain(field, value) for field, value in change.fields.items()}
        if wanted.get("evaluates") is False:  # nothing is evaluated, so there are no sizes
            wanted = {field: value for field, value in wanted.items() if not field.startswith("eval_")}
        assert varied.held(after.run, wanted) == wanted, name
        assert varied.errors(after) <= varied.errors(before), name
        assert after.run.batch.effective_batch_size == before.run.batch.effective_batch_size


@pytest.mark.parametrize("version", varied.VERSIONS)
def test_every_change_is_offered_somewhere_and_spelt_in_every_version(version):
    offered = set()
    # the command sets the allocator, and weights are loaded in the run's own type: none of these is offered here
    elsewhere = {"expandable-segments", "load-in-bf16", "bf16-weights"}
    missing = {kind.id for axis in AXES for kind in axis.kinds} - elsewhere
    for number, text in enumerate(varied.TEXTS.values()):
        subject = varied.subject(text, version=version, gpus=1 + number % 2, extra=("flash-attn==2.8.3",))
        for axis in opened(ALLOW):
            for change in axis.choices(subject.run):
                if change.id in missing and (after := varied.made(subject, change)) is not None:
                    wanted = {field: varied.plain(field, value) for field, value in change.fields.items()}
                    assert varied.held(after.run, change.fields) == wanted
                    offered.add(change.id)
        missing -= offered
    assert not missing


def test_what_only_the_user_may_allow_is_closed_by_default():
    assert {axis.allow for axis in AXES if axis.allow} == set(ALLOW)
    assert not [axis.name for axis in opened() if axis.allow]
    assert opened(["qlora"])[0].name == "method"
    assert len({axis.name for axis in opened(ALLOW)}) == len(opened(ALLOW))


def test_everything_that_is_open_by_itself_says_that_it_keeps_the_result():
    changing = {kind.id for axis in opened() for kind in axis.kinds if kind.effect == "changes"}
    assert changing == {"quantize-experts"}  # which the file asks for


def test_all_divisors_of_the_effective_batch_are_offered():
    run = varied.subject(varied.SMALL).run
    axis = next(axis for axis in AXES if axis.name == "batches")
    found = [(one.fields["micro_batch_size"], one.fields["gradient_accumulation_steps"]) for one in axis.choices(run)]
    assert found == [(12, 1), (6, 2), (4, 3), (3, 4), (1, 12)]
