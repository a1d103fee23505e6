"""For transformers' Trainer and what builds on it (TRL, Axolotl, Llama-Factory): the memory guard as a callback.

from vramwise.integrations.transformers import MemoryGuard
trainer = Trainer(..., callbacks=[MemoryGuard()])
"""

from __future__ import annotations

from vramwise.training.parent.extras import require

require(["torch", "transformers"], "the memory guard")

from vramwise.training.guard.callback import MemoryGuard  # noqa: E402

__all__ = ["MemoryGuard"]
