"""An Axolotl run that `accelerate launch` starts, where Axolotl's own file has neither FSDP nor DeepSpeed.

Axolotl sets accelerate's variables for what its own file has and leaves the others, so those of the launcher
hold (`prepare_optim_env` in 0.21): accelerate itself wraps the model, which Axolotl has read as for DDP.
"""

from __future__ import annotations

from vramwise.trainers.arguments.resolve.accelerate import launched
from vramwise.trainers.arguments.resolve.sharding import as_wrapped, resolve_fsdp
from vramwise.trainers.base import SideFiles
from vramwise.trainers.deepspeed import read_deepspeed, resolve_zero
from vramwise.trainers.fields import Fields
from vramwise.types import Target

_LOADING = "the launcher's settings, which Axolotl does not know of: loading and saving were not measured"


def resolve_launched(fields: Fields, target: Target, files: SideFiles) -> bool:
    """Fills sharding and what belongs to it by the launcher's options and file; False where they spread nothing."""
    told = launched(target.accelerate, files)
    if told.missing:
        return False
    if told.deepspeed:
        content = files.get(told.deepspeed) if isinstance(told.deepspeed, str) else None
        resolve_zero(fields, read_deepspeed(told.deepspeed, content), target.stack.parts("deepspeed"), "")
    elif told.fsdp is not None:
        resolve_fsdp(fields, told.fsdp, "", 1)
        as_wrapped(fields, target.stack.parts("accelerate"))
    else:
        return False
    fields.assume("sharding", fields.values["sharding"], f"{told.why}: {_LOADING}")
    return True
