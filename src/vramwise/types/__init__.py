"""The data types of vramwise, from the config file to the findings.

Reading order: document → machine → model → run (its sections in `sections/`) → finding; then timeline.py. Everything
here is data. Nothing here reads files, knows a trainer or does arithmetic beyond its own fields. Bytes are `int` and
end in `_bytes`; MiB and GiB are 1024-based.
"""

from vramwise.types.document import START as START
from vramwise.types.document import Asked as Asked
from vramwise.types.document import Assumed as Assumed
from vramwise.types.document import Bounds as Bounds
from vramwise.types.document import Config as Config
from vramwise.types.document import Document as Document
from vramwise.types.document import DuplicateKey as DuplicateKey
from vramwise.types.document import Home as Home
from vramwise.types.document import KeyPath as KeyPath
from vramwise.types.document import Origin as Origin
from vramwise.types.document import Place as Place
from vramwise.types.document import Script as Script
from vramwise.types.document import Span as Span
from vramwise.types.document import Unsaid as Unsaid
from vramwise.types.document import join_key as join_key
from vramwise.types.document import place_of as place_of
from vramwise.types.document import split_key as split_key
from vramwise.types.finding import Change as Change
from vramwise.types.finding import Edit as Edit
from vramwise.types.finding import Finding as Finding
from vramwise.types.finding import Fix as Fix
from vramwise.types.finding import Severity as Severity
from vramwise.types.finding import Skipped as Skipped
from vramwise.types.machine import GpuSpec as GpuSpec
from vramwise.types.machine import Release as Release
from vramwise.types.machine import Stack as Stack
from vramwise.types.machine import Target as Target
from vramwise.types.machine import admits as admits
from vramwise.types.machine import version_parts as version_parts
from vramwise.types.model import ModelSpec as ModelSpec
from vramwise.types.run import PLACES as PLACES
from vramwise.types.run import SECTIONS as SECTIONS
from vramwise.types.run import SETTINGS as SETTINGS
from vramwise.types.run import RunSpec as RunSpec
from vramwise.types.run import Schedule as Schedule
from vramwise.types.run import Unfollowed as Unfollowed
from vramwise.types.run import in_sections as in_sections
from vramwise.types.run import neutral as neutral
from vramwise.types.sections import setting_of as setting_of
from vramwise.types.sections.adapter import TrainedBlocks as TrainedBlocks
from vramwise.types.sections.kernels import BY_LABEL as BY_LABEL
from vramwise.types.sections.kernels import ChunksInPlace as ChunksInPlace
from vramwise.types.sections.kernels import ExpertMasks as ExpertMasks
from vramwise.types.sections.sharding import ZeroSettings as ZeroSettings
