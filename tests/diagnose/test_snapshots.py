"""Snapshots: who held the memory, holes, replay, growth; and files that are not what they seem."""

import contextlib
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings import MIB, fragmented, leaking, no_failure, optimizer_step, too_much_logits, write

import vramwise
from vramwise.errors import VramwiseError


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
    assert shot.holders[0].place.startswith("linear.py:7")
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
    from recordings import Script

    script = Script()
    for _ in range(300):
        script.alloc(4 * MIB, "weights")
    script.alloc(600 * MIB, "activations")
    path = write(tmp_path / "s.pickle", script.snapshot(limit_bytes=1500 * MIB, settings="expandable_segments:True"))
    diagnosis = vramwise.diagnose(None, snapshot=path)
    assert not diagnosis.snapshot.growing
    assert diagnosis.causes[0].id in ("capacity", "oversized-batch")


def test_activations_that_each_layer_saves_are_no_leak(tmp_path):
    from recordings import Script

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


def test_a_snapshot_without_failure(tmp_path):
    diagnosis = vramwise.diagnose(None, snapshot=write(tmp_path / "s.pickle", no_failure()))
    assert diagnosis.verdict == "no-failure"
    assert diagnosis.snapshot.by_category["weights"] == 100 * MIB


def test_the_page_is_drawn(tmp_path, vramwise):
    path = write(tmp_path / "s.pickle", fragmented())
    page = tmp_path / "page.html"
    assert vramwise("diagnose", "--snapshot", path, "--html", page).exit_code == 1
    text = page.read_text("utf-8")
    assert "lay in pieces" in text
    assert "http://" not in text.replace("http://www.w3.org", "")


class _Code:
    def __reduce__(self):
        return (exec, ("raise SystemExit('ran')",))


def test_a_pickle_that_asks_to_run_code_is_refused(tmp_path):
    path = write(tmp_path / "s.pickle", {"segments": [], "device_traces": [[_Code()]]})
    with pytest.raises(VramwiseError, match="nothing was run"):
        vramwise.diagnose(None, snapshot=path)


FUZZED = bytes(pickle.dumps(fragmented(), protocol=4))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
