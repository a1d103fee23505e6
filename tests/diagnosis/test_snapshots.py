"""Snapshots: who held the memory, holes, replay, growth; and files that are not what they seem."""

import contextlib
import json
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_snapshots import MIB, Script, fragmented, leaking, no_failure, optimizer_step, too_much_logits, write

import vramwise
from nightly import examples
from vramwise.diagnosis.read.frames import Origins
from vramwise.errors import VramwiseError
from vramwise.recordings.recording import Events, Recording
from vramwise.units import readable


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (leaking, "leak"),
        (fragmented, "fragmentation"),
        (optimizer_step, "optimizer-state"),
        (too_much_logits, "logits"),
    ],
)
def test_a_snapshot_alone_shows_the_cause(make, cause, tmp_path):
    diagnosis = vramwise.diagnose(None, snapshot=write(tmp_path / "snapshot.pickle", make()))
    assert diagnosis.verdict == "diagnosed"
    assert diagnosis.causes[0].id == cause


def test_who_held_the_memory(tmp_path):
    shot = vramwise.diagnose(None, snapshot=write(tmp_path / "s.pickle", optimizer_step())).snapshot
    assert dict(shot.by_category) == {"weights": 2000 * MIB, "gradients": 2000 * MIB, "optimizer": 1950 * MIB}
    assert shot.failing_category == "optimizer"
    assert shot.holders[0].place.startswith("modeling_llama.py:7 __init__")
    assert shot.allocated_bytes == sum(shot.by_category.values())


def test_tensors_freed_after_the_failure_count(tmp_path):
    """A dump from an except block: the stack has unwound, and the recording ends with frees."""
    data = too_much_logits()
    trace = data["device_traces"][0]
    addresses = [entry for entry in trace if entry["action"] == "alloc" and entry["size"] == 2000 * MIB]
    for action in ("free_requested", "free_completed"):
        trace.append({**addresses[0], "action": action})
    for segment in data["segments"]:
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and block["size"] == 2000 * MIB:
                block["state"] = "inactive"
    shot = vramwise.diagnose(None, snapshot=write(tmp_path / "s.pickle", data)).snapshot
    assert shot.by_category["activations"] == 2000 * MIB


def test_what_other_settings_would_have_done(tmp_path):
    shot = vramwise.diagnose(None, snapshot=write(tmp_path / "s.pickle", fragmented())).snapshot
    served = {outcome.settings: outcome.served for outcome in shot.what_if}
    assert served["expandable_segments:True"]
    assert shot.largest_hole_bytes < shot.requested_bytes <= shot.unallocated_bytes
    assert shot.holes == 8


def test_weights_made_one_by_one_are_no_leak(tmp_path):
    script = Script()
    for _ in range(300):
        script.alloc(4 * MIB, "weights")
    script.alloc(600 * MIB, "activations")
    path = write(tmp_path / "s.pickle", script.snapshot(limit_bytes=1500 * MIB, settings="expandable_segments:True"))
    diagnosis = vramwise.diagnose(None, snapshot=path)
    assert not diagnosis.snapshot.growing
    assert diagnosis.causes[0].id in ("capacity", "oversized-batch")


def test_activations_that_each_layer_saves_are_no_leak(tmp_path):
    script = Script()
    script.alloc(50 * MIB, "weights")
    script.steps(3)
    for _ in range(40):  # layers: one block saved, one freed
        script.alloc(20 * MIB, "activations")
        script.free(script.alloc(20 * MIB, "activations"))
    path = write(tmp_path / "s.pickle", script.snapshot(limit_bytes=600 * MIB, settings="expandable_segments:True"))
    diagnosis = vramwise.diagnose(None, snapshot=path)
    assert not diagnosis.snapshot.growing
    assert diagnosis.causes[0].id == "capacity"


def test_gradients_of_checkpointed_layers_are_no_leak(tmp_path):
    """Autograd's thread has no stack, and each layer is recomputed in between: one step, not one for each layer."""
    script = Script()
    script.alloc(50 * MIB, "weights")
    for _ in range(30):  # layers, one backward pass
        script.free(script.alloc(20 * MIB, "recomputed"))
        script.alloc(20 * MIB, "autograd")
    script.alloc(20 * MIB, "optimizer")
    path = write(tmp_path / "s.pickle", script.snapshot(limit_bytes=660 * MIB, settings="expandable_segments:True"))
    diagnosis = vramwise.diagnose(None, snapshot=path)
    assert not diagnosis.snapshot.growing
    assert diagnosis.snapshot.by_category["gradients"] == 600 * MIB
    assert diagnosis.causes[0].id == "optimizer-state"


def test_blocks_of_a_few_steps_are_no_leak(tmp_path):
    """Caches and states that come into being in the first steps are not growth."""
    script = Script()
    script.alloc(50 * MIB, "weights")
    script.steps(4, keep=100 * MIB)
    script.steps(20)
    script.alloc(300 * MIB, "activations")
    path = write(tmp_path / "s.pickle", script.snapshot(limit_bytes=600 * MIB, settings="expandable_segments:True"))
    assert not vramwise.diagnose(None, snapshot=path).snapshot.growing


def test_a_leak_goes_before_the_fragments_it_leaves(tmp_path):
    """Kept blocks between buffers that grow: other settings would serve this request, and a later one would fail."""
    script = Script()
    script.alloc(50 * MIB, "weights")
    for step in range(12):
        script.free(script.alloc((200 + 4 * step) * MIB, "activations"))
        script.alloc(120 * MIB, "kept")
        script.free(script.alloc(2 * MIB, "gradients"))
    script.alloc(500 * MIB, "activations")
    path = write(tmp_path / "s.pickle", script.snapshot(limit_bytes=2600 * MIB))
    diagnosis = vramwise.diagnose(None, snapshot=path)
    assert any(outcome.served for outcome in diagnosis.snapshot.what_if if outcome.settings)
    assert [cause.id for cause in diagnosis.causes][:2] == ["leak", "fragmentation"]


@pytest.mark.parametrize(
    ("calls", "category", "part"),
    [
        ([("site-packages/torch/optim/adamw.py", "_init_group"), ("train.py", "main")], "optimizer", "optimizer"),
        (
            [("site-packages/muon.py", "step"), ("site-packages/torch/optim/optimizer.py", "wrapper")],
            "optimizer",
            "optimizer",
        ),
        (
            [("modeling_llama.py", "forward"), ("train.py", "closure"), ("site-packages/torch/optim/adamw.py", "step")],
            "activations",
            "forward",
        ),
        ([("kernels.py", "forward"), ("site-packages/torch/autograd/function.py", "apply")], "activations", "forward"),
        ([("kernels.py", "backward"), ("site-packages/torch/autograd/function.py", "apply")], "gradients", "backward"),
        (
            [("modeling_llama.py", "forward"), ("site-packages/torch/utils/checkpoint.py", "backward")],
            "activations",
            "backward",
        ),
        (
            [("site-packages/torch/nn/functional.py", "cross_entropy"), ("modeling_llama.py", "forward")],
            "logits",
            "forward",
        ),
        ([("site-packages/transformers/modeling_utils.py", "to"), ("train.py", "main")], "weights", ""),
        ([("my_metrics.py", "update")], "other", ""),
        ([], "gradients", "backward"),
    ],
)
def test_the_innermost_call_says_what_memory_is_for(calls, category, part):
    stack = [{"filename": file, "name": name, "line": 1} for file, name in calls]
    others = [{"filename": "train.py", "name": "main", "line": 1}]
    events = Events(rows=[(0, 1, 1, 0), (0, 2, 1, 0)], landmarks=[], sources=[0, 1], count=2)
    entries = [{"frames": others}, {"frames": stack}]
    recording = Recording(name="", device=0, events=events, segments=(), settings="", torch=None, entries=entries)
    origin = Origins(recording).of(1)
    assert (origin.category, origin.part) == (category, part)


def test_a_snapshot_without_failure(tmp_path):
    diagnosis = vramwise.diagnose(None, snapshot=write(tmp_path / "s.pickle", no_failure()))
    assert diagnosis.verdict == "no-failure"
    assert diagnosis.snapshot.by_category["weights"] == 100 * MIB


def test_the_page_is_drawn(tmp_path, vramwise):
    path = write(tmp_path / "s.pickle", fragmented())
    page = tmp_path / "page.html"
    assert vramwise("diagnose", "--snapshot", path, "--html", page).exit_code == 1
    text = page.read_text("utf-8")
    assert "was in pieces" in text
    assert "http://" not in text.replace("http://www.w3.org", "")


class _Code:
    def __reduce__(self):
        return (exec, ("raise SystemExit('ran')",))


def test_a_pickle_that_asks_to_run_code_is_refused(tmp_path):
    path = write(tmp_path / "s.pickle", {"segments": [], "device_traces": [[_Code()]]})
    with pytest.raises(VramwiseError, match="nothing was run"):
        vramwise.diagnose(None, snapshot=path)


FUZZED = bytes(pickle.dumps(fragmented(), protocol=4))


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_pickles_are_read_or_refused(tmp_path, data):
    damaged = bytearray(FUZZED)
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(damaged), len(damaged) // 2, 10]))
    path = tmp_path / "s.pickle"
    path.write_bytes(bytes(damaged[:cut]))
    with contextlib.suppress(VramwiseError):
        vramwise.diagnose(None, snapshot=str(path))


PREDICTED = """\
base_model: meta-llama/Llama-3.2-1B
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
sequence_len: 4096
sample_packing: true
pad_to_sequence_len: true
micro_batch_size: 4
optimizer: adamw_torch_fused
bf16: true
attn_implementation: sdpa
gradient_checkpointing: true
"""


def test_a_predicted_snapshot_holds_the_run_on_its_card_under_our_own_labels(tmp_path, vramwise):
    """Where the run does not fit, the snapshot ends with the request that fails; page, JSON and prediction agree."""
    (tmp_path / "config.yml").write_text(PREDICTED)
    words = ("predict", tmp_path / "config.yml", "--gpu", "rtx-4090", "--snapshot", tmp_path / "predicted.pickle")
    predicted = json.loads(vramwise(*words, "--format", "json").stdout)
    shown = vramwise(
        "diagnose", "--snapshot", tmp_path / "predicted.pickle", "--html", tmp_path / "page.html", "--format", "json"
    )
    assert shown.exit_code == 1
    document = json.loads(shown.stdout)
    shot, failure = document["snapshot"], predicted["out_of_memory"]
    assert shot["failed"]
    assert shot["requested_bytes"] == failure["requested_bytes"]
    assert document["causes"][0]["id"] == "logits"
    assert {"weights", "logits", "activations"} <= set(shot["by_category"])
    assert sum(shot["by_category"].values()) == shot["allocated_bytes"]
    page = (tmp_path / "page.html").read_text("utf-8")
    assert f"Peak reserved</dt><dd>{readable(shot['reserved_bytes'])}" in page
    assert f"Peak allocated</dt><dd>{readable(shot['allocated_bytes'])}" in page


def test_the_page_says_what_to_change(tmp_path, vramwise):
    write(tmp_path / "snapshot.pickle", fragmented())
    vramwise("diagnose", "--snapshot", tmp_path / "snapshot.pickle", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.index("What to change") < page.index("Peak reserved")
    assert "expandable_segments:True" in page[page.index("What to change") : page.index("Peak reserved")]


def test_the_page_and_the_json_speak_of_one_moment(tmp_path):
    """A request that fails makes the allocator give back its cache: less is reserved at the failure than before."""
    from vramwise.diagnosis.drawing import draw
    from vramwise.diagnosis.reading import read_all

    write(tmp_path / "snapshot.pickle", fragmented())
    reading = read_all(None, snapshot=str(tmp_path / "snapshot.pickle"))
    report, shot = draw(reading).report, reading.diagnosis.snapshot
    assert (report.peak_reserved_bytes, report.peak_allocated_bytes) == (shot.reserved_bytes, shot.allocated_bytes)
    assert report.breakdown_bytes == shot.by_category
