"""The Axolotl plugin that watches a run: see `watch.py`."""

from __future__ import annotations

from typing import Any

from axolotl.integrations.base import BasePlugin
from watch import watched


class Watch(BasePlugin):
    """Looks at every batch."""

    def add_callbacks_post_trainer(self, cfg: Any, trainer: Any) -> list[Any]:
        """Called once the trainer is made."""
        return [watched(trainer)]
