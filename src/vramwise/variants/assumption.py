"""What a prediction rests on, as data: a kind and a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Assumption:
    """`kind` is what the text is about: the rows of the data, the model, or anything else of the run."""

    text: str
    kind: Literal["data", "model", "run"] = "run"

    def __str__(self) -> str:
        return self.text if self.kind == "run" else f"{self.kind}: {self.text}"
