"""The embedded engine: no file is recognised as its own, because it is asked for."""

from __future__ import annotations

from dataclasses import replace

from vramwise.trainers.axolotl.recognise import IDENTITY as AXOLOTL

IDENTITY = replace(
    AXOLOTL,
    name="transformers",
    title="the embedded engine",
    recognises=lambda values: False,
    might_be=lambda keys: False,
)
