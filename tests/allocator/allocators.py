"""Shared by the allocator's tests: make one from a settings string, look at what it holds."""

from vramwise.allocator.blocks import FREE, UNMAPPED, USED, WAITING
from vramwise.allocator.caching import CachingAllocator
from vramwise.allocator.settings import parse_settings
from vramwise.units import MIB

EXPANDABLE = "expandable_segments:True"
NAMES = {FREE: "free", USED: "used", WAITING: "waiting", UNMAPPED: "unmapped"}


def make(conf="", torch=(2, 11), **options):
    return CachingAllocator(parse_settings(conf, torch), torch=torch, **options)


def layout(allocator):
    """Each segment's blocks in order of creation: (state, MiB); the endless unmapped tail without its size."""
    shown = []
    for segment in allocator.segments:
        blocks = [(NAMES[block.state], block.size / MIB) for block in segment.blocks()]
        if blocks[-1][0] == "unmapped":
            blocks[-1] = ("unmapped", ...)
        shown.append(blocks)
    return shown
