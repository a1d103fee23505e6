"""Write a timeline as a torch memory snapshot, which PyTorch's viewer (pytorch.org/memory_viz) opens.

A pickle (protocol 4) of plain containers, laid out like `torch.cuda.memory._snapshot` of torch 2.13; the viewer reads
it with a small unpickler of its own. Frames carry labels and phases instead of a stack, and `category` determines the
viewer's colours. `reader` reads snapshots.
"""

from __future__ import annotations

import pickle
from typing import Any

from vramwise.allocator.blocks import UNMAPPED, USED, WAITING, AllocationError, Block, Segment
from vramwise.allocator.caching import NEWEST, CachingAllocator
from vramwise.allocator.run import BEFORE_ANY_PHASE
from vramwise.allocator.settings import NO_SPLIT_LIMIT, AllocatorSettings, TorchVersion
from vramwise.timeline import Action, Event, Phase, Timeline

Entry = dict[str, Any]

_STATES = {USED: "active_allocated", WAITING: "active_pending_free"}
# The category of memory that is not a tensor. PyTorch's viewer fails on a snapshot that has categories but not this
# one.
_NO_CATEGORY = "unknown"


def write_snapshot(
    timeline: Timeline,
    settings: AllocatorSettings,
    *,
    torch: TorchVersion = NEWEST,
    total_bytes: int | None = None,
    limit_bytes: int | None = None,
    outside_bytes: int = 0,
) -> bytes:
    """Play a timeline into the allocator and return a snapshot that PyTorch's memory viewer opens."""
    writer = _SnapshotWriter(timeline)
    allocator = CachingAllocator(
        settings,
        torch=torch,
        total_bytes=total_bytes,
        limit_bytes=limit_bytes,
        outside_bytes=outside_bytes,
        watch=writer.segment_event,
    )
    writer.play(allocator)
    snapshot = {
        "segments": writer.segments(allocator),
        "device_traces": [writer.entries],
        "allocator_settings": _settings_entry(settings),
        "external_annotations": [],
    }
    return pickle.dumps(snapshot, protocol=4)


class _SnapshotWriter:
    """Turns events into trace entries."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.entries: list[Entry] = []
        self.owners: dict[Block, Event] = {}
        self.phase = BEFORE_ANY_PHASE
        self._frames: dict[tuple[int, Phase], list[Entry]] = {}
        self._frames_of: dict[Block, list[Entry]] = {}

    def play(self, allocator: CachingAllocator) -> None:
        live: dict[int, Block | None] = {}
        for event in self.timeline.events:
            if event.action == Action.ALLOC:
                try:
                    block = live[event.tensor] = allocator.malloc(event.size_bytes, event.stream)
                except AllocationError:
                    self._out_of_memory(event, allocator)
                    return
                if block is not None:
                    self._allocated(event, block)
            elif event.action == Action.FREE:
                block = live.pop(event.tensor)
                if block is not None:
                    self._freed(block)
                    allocator.free(block)
            elif event.action == Action.PHASE:
                self.phase = self.timeline.phases[event.tag]
            elif event.action == Action.EMPTY_CACHE:
                allocator.empty_cache()

    def segment_event(self, action: str, address: int, size: int, stream: int) -> None:
        """Record that the allocator took or released memory."""
        self._add(action, address, size, stream, self._phase_frames(), _NO_CATEGORY)

    def _allocated(self, event: Event, block: Block) -> None:
        self.owners[block] = event
        frames = self._frames_of[block] = self._label_frames(event.tag)
        category = self.timeline.tags[event.tag].category
        self._add("alloc", block.address, event.size_bytes, event.stream, frames, category)

    def _freed(self, block: Block) -> None:
        event, frames = self.owners.pop(block), self._frames_of.pop(block)
        category = self.timeline.tags[event.tag].category
        for action in ("free_requested", "free_completed"):
            self._add(action, block.address, event.size_bytes, event.stream, frames, category)

    def _out_of_memory(self, event: Event, allocator: CachingAllocator) -> None:
        bound = min(allocator.limit_bytes, allocator.capacity_bytes)
        frames = self._label_frames(event.tag)
        self._add("oom", 0, event.size_bytes, event.stream, frames, _NO_CATEGORY)
        entry = self.entries[-1]
        del entry["addr"]
        entry["device_free"] = max(bound - allocator.reserved_bytes, 0)

    def _add(self, action: str, address: int, size: int, stream: int, frames: list[Entry], category: str) -> None:
        self.entries.append(
            {
                "action": action,
                "addr": address,
                "size": size,
                "stream": stream,
                "time_us": len(self.entries),
                "compile_context": "N/A",
                "user_metadata": "",
                "frames": frames,
                "category": category,
            }
        )

    def _label_frames(self, tag: int) -> list[Entry]:
        """Return two frames, shown as `activations:3:layers.7.mlp: gate × up` and `step:3:forward`."""
        key = (tag, self.phase)
        if key not in self._frames:
            category, label = self.timeline.tags[tag]
            label_frame = {"name": label, "filename": category, "line": self.phase.step}
            self._frames[key] = [label_frame, *self._phase_frames()]
        return self._frames[key]

    def _phase_frames(self) -> list[Entry]:
        key = (-1, self.phase)
        if key not in self._frames:
            self._frames[key] = [{"name": self.phase.name, "filename": "step", "line": self.phase.step}]
        return self._frames[key]

    def segments(self, allocator: CachingAllocator) -> list[Entry]:
        """Return the segments at the end, by address."""
        entries = [
            self._segment_entry(segment, blocks)
            for segment in allocator.segments
            for blocks in _mapped_stretches(segment)
        ]
        return sorted(entries, key=lambda entry: entry["address"])

    def _segment_entry(self, segment: Segment, blocks: list[Block]) -> Entry:
        used = [block for block in blocks if block in self.owners]
        in_use = sum(block.size for block in used)
        return {
            "device": 0,
            "address": blocks[0].address,
            "total_size": sum(block.size for block in blocks),
            "allocated_size": in_use,
            "active_size": in_use,
            "requested_size": sum(self.owners[block].size_bytes for block in used),
            "stream": segment.shelf.stream,
            "segment_type": "small" if segment.shelf.pool.small else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": bool(segment.granule),
            "frames": [],
            "blocks": [self._block_entry(block) for block in blocks],
        }

    def _block_entry(self, block: Block) -> Entry:
        owner = self.owners.get(block)
        return {
            "address": block.address,
            "size": block.size,
            "requested_size": 0 if owner is None else owner.size_bytes,
            "state": _STATES.get(block.state, "inactive"),
            "frames": self._frames_of.get(block, []),
        }


def _mapped_stretches(segment: Segment) -> list[list[Block]]:
    """Return the runs of mapped blocks: one for a plain segment, any number for an expandable one."""
    stretches: list[list[Block]] = [[]]
    for block in segment.blocks():
        if block.state == UNMAPPED:
            stretches.append([])
        else:
            stretches[-1].append(block)
    return [stretch for stretch in stretches if stretch]


def _settings_entry(settings: AllocatorSettings) -> Entry:
    return {
        "PYTORCH_CUDA_ALLOC_CONF": settings.text,
        "max_split_size": -1 if settings.max_split_bytes >= NO_SPLIT_LIMIT else settings.max_split_bytes,
        "garbage_collection_threshold": settings.garbage_collection_threshold,
        "expandable_segments": settings.expandable_segments,
        "roundup_power2_divisions": {
            str(1 << slot): divisions for slot, divisions in enumerate(settings.roundup_divisions)
        },
    }
