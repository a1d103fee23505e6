"""The limits on what is read. A command takes at most 10 s of CPU time (`fit` 20 s) and 1 GiB of memory.

Each number follows from a cost: what one byte, value, row or event costs to decode and to use, times the number, must
stay within those two limits together with the program itself.
"""

from __future__ import annotations

from typing import Final

from vramwise.units import GIB, MIB

# Configs and similar files: DeepSpeed JSON, accelerate YAML, pyproject.toml. YAML takes 2 s per megabyte.
CONFIG_BYTES: Final = MIB
# A notebook with its images.
NOTEBOOK_BYTES: Final = 64 * MIB
# A config nests five deep and holds a few hundred values. Beyond these it is a mistake or an attack.
CONFIG_DEPTH: Final = 64
CONFIG_VALUES: Final = 20_000
# A model's config.json. The largest known has 200 KB.
MODEL_BYTES: Final = 4 * MIB
# A trace of a model: about 50 KB per precision and kind of layer.
TRACE_BYTES: Final = 16 * MIB
# Lock files: searched with a pattern, never parsed.
LOCK_BYTES: Final = 16 * MIB
# Files that `train` writes for a run and reads again: plans, markers, records.
RUN_FILE_BYTES: Final = 16 * MIB
# One line of `train`'s memory log; ours have about a hundred bytes.
LOG_LINE_BYTES: Final = MIB
# All data files together, a file of lengths, a memory log, a JSON trace.
DATA_BYTES: Final = 64 * MIB
DATA_ROWS: Final = 200_000
# Blank lines count too: even an empty line costs 0.3 µs.
DATA_LINES: Final = 4_000_000
# The memory of all rows as Python objects; it also bounds the time for creating and using them.
DATA_VALUES_BYTES: Final = 1536 * MIB
# The memory of one parsed text: its bytes, its text and its values together.
MEMORY_BYTES: Final = 768 * MIB
# A recording, gzipped or not; how many of its last events are replayed, once by `replay` and six times by `diagnose`;
# and how many segments and blocks it may have at the end. A card of 80 GiB has room for 40,000 small segments.
RECORDING_BYTES: Final = 256 * MIB
REPLAYED_EVENTS: Final = 1_000_000
DIAGNOSED_EVENTS: Final = 150_000
RECORDED_SEGMENTS: Final = 50_000
RECORDED_BLOCKS: Final = 500_000
# Limits for a library that decodes in its own process.
CHILD_MEMORY_BYTES: Final = 640 * MIB
CHILD_CPU_SECONDS: Final = 5
# The address space of a process that answers the page; the largest answers take about 1 GiB.
SERVED_MEMORY_BYTES: Final = 3 * GIB
# Reading a script, notebook or shell script. A unit of work is about 0.2 µs and at most 64 bytes: one character, leaf
# or note of a result, or one turn of a loop. For one value, for one reading, and for all readings of a command (the
# search of `fit` reads each of its edits); and what evaluating an expression, or parsing a word of Python, costs.
READER_VALUE_UNITS: Final = 300_000
READER_VALUE_STEPS: Final = 5_000
READER_UNITS: Final = 20_000_000
READER_ALL_UNITS: Final = 150_000_000
READER_STEP_UNITS: Final = 30
# The syntax tree of one word takes up to 1.7 KB and 8 µs.
READER_WORDS: Final = 250_000
# The last net under the units.
READER_MEMORY_BYTES: Final = 640 * MIB
READER_CPU_SECONDS: Final = 6
READER_ALL_CPU_SECONDS: Final = 10
