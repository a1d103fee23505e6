"""Readings from torch's counters, with a stand-in for torch.cuda. No torch."""

from types import SimpleNamespace

from vramwise.training.guard.samples import CudaBackend


def stand_in(stats):
    asked = []
    cuda = SimpleNamespace(
        current_device=lambda: 1,
        get_device_properties=lambda _: SimpleNamespace(name="NVIDIA H200", total_memory=100),
        memory_stats_as_nested_dict=lambda _: stats,
        mem_get_info=lambda device: asked.append(device) or (40, 100),
        reset_peak_memory_stats=lambda device: asked.append(f"reset {device}"),
    )
    return SimpleNamespace(cuda=cuda), asked


STATS = {
    "allocated_bytes": {"all": {"current": 1, "peak": 2}, "small_pool": {"current": 9}},
    "reserved_bytes": {"all": {"current": 3, "peak": 4}},
    "num_alloc_retries": 5,
}


def test_one_reading():
    torch, _ = stand_in(STATS)
    backend = CudaBackend(torch)
    reading = backend.read()
    assert (reading.allocated_bytes, reading.peak_allocated_bytes) == (1, 2)
    assert (reading.reserved_bytes, reading.peak_reserved_bytes) == (3, 4)
    assert (reading.retries, reading.device_free_bytes) == (5, 40)
    assert (backend.name, backend.device_bytes) == ("cuda:1 NVIDIA H200", 100)


def test_the_driver_is_asked_rarely():
    torch, asked = stand_in(STATS)
    now = [0.0]
    backend = CudaBackend(torch, clock=lambda: now[0])
    for now[0] in (0.0, 0.1, 1.0, 4.9):
        assert backend.read().device_free_bytes == 40
    assert len(asked) == 1
    backend.read(fresh=True)
    assert len(asked) == 2
    now[0] = 12.0
    backend.read()
    assert len(asked) == 3


def test_before_the_first_allocation_there_are_no_counters():
    torch, asked = stand_in({})
    backend = CudaBackend(torch)
    assert backend.read().peak_reserved_bytes == 0
    backend.reset_peaks()
    assert asked[-1] == "reset 1"
