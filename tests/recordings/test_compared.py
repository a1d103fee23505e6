"""`replay --config`: where a predicted run first asks for other memory than the recorded one."""

import json
from pathlib import Path

import jsonschema
import pytest
from made_recordings import DATA

from vramwise.errors import VramwiseError
from vramwise.recordings.compared import compare
from vramwise.timeline import Action, Event, Phase, Tag, Timeline
from vramwise.units import MIB

ROOT = Path(__file__).resolve().parents[2]
RECORDED = DATA / "full_gc_default.json.gz"
# The model and the run of that recording.
MODEL = {
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-05,
}
SCRIPT = """\
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("./model", dtype="bfloat16", attn_implementation="sdpa")
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=2,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": True},
    bf16=True,
    optim="adamw_torch_fused",
)
Trainer(model=model, args=args, train_dataset=load_dataset("json", data_files="rows.jsonl")["train"]).train()
"""
RUN = ("--config", "train.py", "--gpu", "h200", "--torch", "2.11", "--with", "transformers==5.17.0")
PADDED = ("--lengths", "lengths.txt")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    Path("model/config.json").write_text(json.dumps(MODEL))
    Path("train.py").write_text(SCRIPT)
    Path("lengths.txt").write_text("1024\n" * 12)


@pytest.mark.usefixtures("run")
def test_a_run_that_is_predicted_as_it_was_recorded(vramwise):
    done = vramwise("replay", RECORDED, *RUN, *PADDED)
    assert done.exit_code == 0
    first, empty, replayed = done.stdout.splitlines()[:3]
    assert first.startswith("the recording has all 2,645 requests of 1 MiB or more in step ")
    assert (empty, replayed[:10]) == ("", "all 11,752")


@pytest.mark.usefixtures("run")
def test_the_first_difference_is_shown_with_its_operation(vramwise):
    """Without lengths, rows are taken to differ and to need an attention mask; the recorded rows were all alike."""
    done = vramwise("replay", RECORDED, *RUN)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0].endswith("; 89 places differ")
    assert lines[2:5] == [
        "at request 2 of the step:",
        "  predicted                             recorded",
        "       1 MiB  forward: attention mask   —",
    ]
    assert "  … and" not in done.stdout
    assert "… and 86 more places" in lines


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("words", [(), PADDED])
def test_the_example_in_the_docs_is_the_output(vramwise, words):
    page = (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8")
    assert f"{' '.join((*RUN, *words))}\n{vramwise('replay', RECORDED, *RUN, *words).stdout}```" in page


@pytest.mark.usefixtures("run")
def test_json_adds_the_comparison(vramwise):
    document = json.loads(vramwise("replay", RECORDED, *RUN, "--format", "json").stdout)
    schema = json.loads((ROOT / "docs/schemas/replay.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)
    found = document["comparison"]
    assert set(found) == set(schema["properties"]["comparison"]["properties"])
    assert (found["requests"], found["requests_found"], found["differences"]) == (2846, 2579, 89)
    assert len(found["first_differences"]) == 20
    assert found["first_differences"][0] == {
        "request": 2,
        "predicted": [{"size_bytes": size * MIB, "phase": "forward", "label": "attention mask"} for size in (1, 1, 2)],
        "recorded": [],
        "predicted_count": 3,
        "recorded_count": 0,
    }
    assert document["allocations"] == 11752


@pytest.mark.usefixtures("run")
def test_a_recording_of_another_run_is_refused_in_one_sentence(vramwise):
    Path("train.py").write_text(SCRIPT.replace("batch_size=2", "batch_size=3"))
    done = vramwise("replay", RECORDED, *RUN, *PADDED)
    assert done.exit_code == 2
    assert "another model, batch size or row length" in str(done.exception)


def test_what_is_only_for_a_comparison_needs_one(vramwise):
    done = vramwise("replay", RECORDED, "--gpu", "h200")
    assert done.exit_code == 2
    assert "need --config" in done.stderr


def timeline(*steps):
    """A run of steps, each a list of sizes in MiB."""
    events, phases, tensor = [], [], 0
    for number, sizes in enumerate(steps, 1):
        events.append(Event(Action.PHASE, 0, 0, 0, len(phases)))
        phases.append(Phase("forward", number))
        for size in sizes:
            events.append(Event(Action.ALLOC, tensor, int(size * MIB), 0, 0))
            tensor += 1
    return Timeline(events=events, tags=[Tag("activations", "an op")], phases=phases)


# A head, four layers alike, and the way back.
STEP = [3, 5, *[1, 2, 4] * 4, 9, 8, 7, *[6, 4, 2] * 4, 10, 11]


def sizes_of(differences):
    return [
        (one.number, [r.size_bytes // MIB for r in one.predicted], [r.size_bytes // MIB for r in one.recorded])
        for one in differences
    ]


def test_two_equal_runs():
    found = compare(timeline(STEP, STEP), timeline(STEP, STEP, STEP))
    assert (found.step, found.requests, found.found, found.differences) == (2, len(STEP), len(STEP), ())


@pytest.mark.parametrize("at", [0, 1, 5, 14, 15, 20, len(STEP) - 1])
def test_a_request_that_only_one_of_them_makes(at):
    """Where a recorded step begins is not known: its first request is compared with the one before."""
    longer = [*STEP[:at], 77, *STEP[at:]]
    assert sizes_of(compare(timeline(longer), timeline(longer, STEP)).differences) == [(at, [77], [] if at else [11])]
    differences = compare(timeline(STEP), timeline(STEP, longer, STEP[:3])).differences
    assert sizes_of(differences) == ([(at, [], [77])] if at else [])


def test_a_request_of_another_size():
    other = [*STEP[:8], 50, *STEP[9:]]
    found = compare(timeline(other), timeline(STEP, STEP))
    assert sizes_of(found.differences) == [(8, [50], [STEP[8]])]
    assert found.found == len(STEP) - 1


def test_small_requests_do_not_count():
    found = compare(timeline([*STEP, 0.5]), timeline([0.25, *STEP]))
    assert found.differences == ()


def test_a_recording_that_ends_within_a_step_is_compared_by_the_step_before():
    assert compare(timeline(STEP), timeline(STEP, STEP, STEP[:16])).differences == ()


def test_the_end_of_a_step_that_was_not_recorded():
    found = compare(timeline(STEP), timeline(STEP[:-2]))
    assert sizes_of(found.differences) == [(len(STEP) - 2, [10, 11], [])]


@pytest.mark.parametrize("recorded", [[], [100, 101, 102, 103, 104, 105, 106]])
def test_nothing_alike(recorded):
    with pytest.raises(VramwiseError, match="no 6 requests in a row"):
        compare(timeline(STEP), timeline(recorded))
