"""The one way an edit fails: it is refused, with a sentence, and nothing changes."""

from __future__ import annotations

from vramwise.errors import VramwiseError


class EditRefused(VramwiseError):  # noqa: N818 (it reads as what happened)
    """An edit that cannot be made without touching something else."""
