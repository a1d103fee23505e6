"""The record of an out-of-memory: what the memory held, bounded and whole. No torch: snapshots are plain containers."""

import json

import pytest
from plans import make_plan

from installed import need
from vramwise.training.guard import oom
from vramwise.training.guard.oom import UNCLAIMED, Claim, trimmed, what_it_held
from vramwise.units import MIB


def block(size_mib, state="active_allocated"):
    size = size_mib * MIB
    return {"size": size, "requested_size": size, "state": state, "frames": [{"name": "f", "line": 1}] * 20}


def snapshot(events=100):
    """Two segments on device 0 and one on device 1; a history with one large request."""
    segments = [
        {"device": 0, "address": 0x1000, "total_size": 60 * MIB, "stream": 0, "segment_type": "large", "is_expandable": False,
         "frames": [1] * 50, "blocks": [block(20), block(20), block(20, "inactive")]},
        {"device": 0, "address": 0x1000_0000, "total_size": 30 * MIB, "stream": 0, "segment_type": "large", "is_expandable": False,
         "blocks": [block(10), block(10, "active_pending_free"), block(10, "inactive")]},
        {"device": 1, "address": 0x1000, "total_size": 99 * MIB, "stream": 0, "segment_type": "large", "blocks": [block(99)]},
    ]  # fmt: skip
    trace = [{"action": "alloc", "addr": 0x1000, "size": 512, "stream": 0, "frames": [{"name": "x" * 50}]}] * (
        events - 1
    )
    trace.append({"action": "alloc", "addr": 0x1000_0000, "size": 10 * MIB, "stream": 0})
    return {"segments": segments, "device_traces": [trace, []], "allocator_settings": {}}


CLAIMS = {0x1000: Claim("weights", "lm_head.weight"), 0x1000 + 20 * MIB: Claim("gradients", "lm_head.weight")}


def test_what_it_held():
    held = what_it_held(snapshot(), CLAIMS)
    assert held.categories == {"weights": 20 * MIB, "gradients": 20 * MIB, UNCLAIMED: 20 * MIB}
    assert (held.cached_bytes, held.largest_hole_bytes) == (30 * MIB, 20 * MIB)
    assert [(one.category, one.label, one.count) for one in held.largest] == [
        ("weights", "lm_head.weight", 1),
        ("gradients", "lm_head.weight", 1),
        (UNCLAIMED, "", 2),
    ]
    assert held.recent_requests == [(10 * MIB, 1), (512, 99)]


def test_of_the_second_device():
    assert what_it_held(snapshot(), {}, device=1).categories == {UNCLAIMED: 99 * MIB}


def test_stacks_and_old_events_go_first():
    small = trimmed(snapshot(), 3)
    assert [len(trace) for trace in small["device_traces"]] == [3, 0]
    assert "frames" not in json.dumps(small)
    assert len(small["segments"]) == 3


@pytest.fixture
def witness(monkeypatch):
    """As if the allocator had called us."""
    held = what_it_held(snapshot(), CLAIMS)
    moment = oom._Moment(
        requested_bytes=700 * MIB,
        allocated_bytes=60 * MIB,
        reserved_bytes=90 * MIB,
        device_free_bytes=5 * MIB,
        holdings=held,
        snapshot=snapshot(50_000),
    )
    monkeypatch.setattr(oom._witness, "moment", moment)


def test_the_record_says_what_was_there(tmp_path, witness):
    plan = make_plan(tmp_path, attempt=2)
    oom.record(plan, RuntimeError("CUDA out of memory."), "train", step=7)
    facts = oom.read_record(tmp_path, 2)
    assert facts == json.loads((tmp_path / "oom.json").read_text())
    assert facts["held"]["categories"]["weights"] == 20 * MIB
    assert oom.describe(facts) == [
        "out of memory in train at step 7 (micro-batch 4): 700 MiB requested",
        "in use 60 MiB: weights 20 MiB, gradients 20 MiB, activations and temporaries 20 MiB",
        "reserved but idle 30 MiB, in the largest piece 20 MiB",
        "  1 × 20 MiB  lm_head.weight (weights)",
        "  1 × 20 MiB  lm_head.weight (gradients)",
        "  2 × 10 MiB  activations and temporaries",
    ]


def test_the_snapshot_is_bounded_and_readable(tmp_path, witness, monkeypatch):
    monkeypatch.setattr(oom, "MAX_SNAPSHOT_BYTES", 400_000)
    oom.record(make_plan(tmp_path), RuntimeError("CUDA out of memory."), "train")
    name = oom.read_record(tmp_path, 1)["snapshot"]
    data = (tmp_path / name).read_bytes()
    assert 100_000 < len(data) <= 400_000

    from vramwise.recordings.unpickle import load_plain

    assert len(load_plain(data)["segments"]) == 3


def test_a_snapshot_that_never_gets_small_enough_is_left_out(tmp_path, witness, monkeypatch):
    monkeypatch.setattr(oom, "MAX_SNAPSHOT_BYTES", 10)
    oom.record(make_plan(tmp_path), RuntimeError("CUDA out of memory."), "train")
    assert oom.read_record(tmp_path, 1)["snapshot"] is None


def test_without_a_device_there_is_what_the_error_says(tmp_path):
    error = RuntimeError("CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 23.64 GiB")
    oom.record(make_plan(tmp_path), error, "eval")
    facts = oom.read_record(tmp_path, 1)
    assert facts["requested_bytes"] == int(1.95 * 1024**3)
    assert (facts["held"], facts["snapshot"], facts["phase"]) == (None, None, "eval")


def test_a_write_that_fails_leaves_the_old_record(tmp_path, monkeypatch):
    plan = make_plan(tmp_path)
    oom.record(plan, RuntimeError("first"), "train")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        oom.record(plan, RuntimeError("second"), "train")
    assert oom.read_record(tmp_path, 1)["error"] == "first"


class OutOfMemoryError(RuntimeError):
    pass


def chained():
    try:
        try:
            raise OutOfMemoryError("CUDA out of memory")
        except OutOfMemoryError as error:
            raise ValueError("while training") from error
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OutOfMemoryError("x"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"), True),
        (chained(), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("out of memory"), False),
        (MemoryError(), False),
    ],
)
def test_which_errors_count(error, expected):
    assert oom.is_out_of_memory(error) is expected


def test_records_of_an_earlier_run_are_forgotten(tmp_path):
    for attempt in (1, 2, 3):
        oom.record(make_plan(tmp_path, attempt=attempt), RuntimeError("x"), "train")
    oom.forget_records(tmp_path, 2)
    assert [oom.read_record(tmp_path, attempt) is None for attempt in (1, 2, 3)] == [False, True, True]


def test_claims_name_weights_gradients_and_optimizer_state():
    need("torch")
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 64)).sum().backward()
    optimizer.step()
    claims = dict(oom._claims(model, optimizer))
    assert claims[model.weight.data_ptr()] == Claim("weights", "weight")
    assert claims[model.weight.grad.data_ptr()] == Claim("gradients", "weight")
    assert claims[optimizer.state[model.weight]["exp_avg"].data_ptr()] == Claim("optimizer", "weight: exp_avg")


@pytest.mark.parametrize(
    "size", ["1.2.3 GiB", ". GiB", "² GiB", "٣ GiB", f"{'9' * 5000} GiB", "1e5 MiB", " GiB", "0 bytes", "5.5 TiB"]
)
def test_any_size_in_an_error_leaves_a_record(tmp_path, size):
    """What cannot be read is not known; the recovery goes on."""
    plan = make_plan(tmp_path)
    oom.record(plan, RuntimeError(f"CUDA out of memory. Tried to allocate {size}."), "train", step=1)
    facts = oom.read_record(tmp_path, 1)
    assert facts["requested_bytes"] in (None, 0, int(5.5 * 1024**4))
    assert oom.describe(facts)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 99999, "{}", '{"phase": 3}', '{"phase": "train", "held": [1]}'])
def test_a_record_that_is_cut_short_still_recovers(tmp_path, text):
    from vramwise.training.parent.supervise import out_of_memory_of

    plan = make_plan(tmp_path)
    oom.record_path(tmp_path, 1).write_text(text)
    facts = out_of_memory_of(plan, 1)
    assert facts["phase"] == "train"
    assert oom.describe(facts)[0].startswith("out of memory in train")


def test_a_record_that_cannot_be_written_does_not_hide_the_out_of_memory(tmp_path, monkeypatch, capsys):
    from vramwise.training.worker import main as worker

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(oom, "put_whole", full)
    worker._record(make_plan(tmp_path), RuntimeError("CUDA out of memory"), "train", 1)
    assert "cannot be written down: OSError" in capsys.readouterr().err
