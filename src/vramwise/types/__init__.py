"""The nouns of vramwise: what flows from a config file to a verdict.

Reading order: document → machine → model → run (its sections in `sections/`) → finding; then timeline.py. Everything
here is data. Nothing here reads files, knows a trainer or does arithmetic beyond its own fields.
Bytes are `int` and end in `_bytes`; MiB and GiB are 1024-based.
"""

from vramwise.types.document import (
    START,
    Config,
    Document,
    DuplicateKey,
    KeyPath,
    Origin,
    Place,
    Span,
    join_key,
    place_of,
    split_key,
)
from vramwise.types.finding import Change, Edit, Finding, Fix, Severity, Skipped
from vramwise.types.machine import GpuSpec, Release, Stack, Target
from vramwise.types.model import ModelSpec
from vramwise.types.run import (
    PLACES,
    SECTIONS,
    SETTINGS,
    RunSpec,
    Schedule,
    Unfollowed,
    flat_name,
    in_sections,
    neutral,
)
from vramwise.types.sections.adapter import TrainedBlocks
from vramwise.types.sections.kernels import ChunksInPlace, ExpertMasks
from vramwise.types.sections.sharding import ZeroSettings

__all__ = [
    "PLACES",
    "SECTIONS",
    "SETTINGS",
    "START",
    "Change",
    "ChunksInPlace",
    "Config",
    "Document",
    "DuplicateKey",
    "Edit",
    "ExpertMasks",
    "Finding",
    "Fix",
    "GpuSpec",
    "KeyPath",
    "ModelSpec",
    "Origin",
    "Place",
    "Release",
    "RunSpec",
    "Schedule",
    "Severity",
    "Skipped",
    "Span",
    "Stack",
    "Target",
    "TrainedBlocks",
    "Unfollowed",
    "ZeroSettings",
    "flat_name",
    "in_sections",
    "join_key",
    "neutral",
    "place_of",
    "split_key",
]
