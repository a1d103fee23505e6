"""Rules about LLaMA-Factory's own keys."""

from __future__ import annotations

from vramwise.rules.base import Rule

RULES: tuple[Rule, ...] = ()
