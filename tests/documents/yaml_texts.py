"""YAML texts for the tests of this folder: the corpus of real configs, and a generator that writes untidily."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from nightly import examples as tried

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "axolotl"
CORPUS_FILES = sorted(CORPUS.glob("*.y*ml"))

# VRAMWISE_FUZZ=50 tries fifty times as many examples, other ones each time; without it a run is the same every time.
_FUZZ = int(os.environ.get("VRAMWISE_FUZZ", "0"))


def examples(count: int) -> settings:
    """Settings of a property test that tries so many examples."""
    return settings(
        deadline=None,
        suppress_health_check=list(HealthCheck),
        max_examples=count * _FUZZ or tried(count),
        derandomize=not _FUZZ,
        database=None,
    )


SCALARS = [
    *("1", "-3", "0x10", "010", "1_000", "1:30", "1.5", "5e-5", "5.0e-05", ".inf", "true", "no", "On", "null", "~"),
    *("foo", "foo bar", "a:b", "http://x.y/z", "2024-01-01", "é", "日本", "a#b", "x-y", "-x", "./p"),
    *("'s'", "'it''s'", "''", '"d"', '"q\\n\\"e\\""', '"\\u00e9 #"', "'a: b'", '"# no comment"', "!!str 5"),
]
KEYS = ["a", "b", "c", "lora_r", "bf16", "k-1", "é", "'q'", '"d d"', "0", "x.y", "on_", "long_key_name"]
COMMENTS = ["# c", "#", "# a: 1", "# - x", "# {", "# '", "# é: ü"]

plain_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**6), 10**6),
        st.floats(allow_nan=False),
        st.sampled_from(
            ["", "yes", "5e-5", "1.0", "foo", "a: b", "- x", "#", "é", "x #y", "null", "'", '"', "a\nb", "~", "0x1"]
        ),
        st.text(st.characters(codec="utf-8"), max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["u", "v w", "1", "yes", "é"]), inner, max_size=3)
    ),
    max_leaves=4,
)


class _Writer:
    """Draws one document. Lines are collected without breaks."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.anchors: list[str] = []
        self.maps: list[str] = []
        self.lines: list[str] = []

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def tail(self) -> str:
        return self.pick(["  ", " "]) + self.pick(COMMENTS) if self.chance(20) else self.pick(["", "", "", "  "])

    def filler(self, indent: int) -> None:
        for _ in range(self.pick([0, 0, 0, 0, 1, 1, 2])):
            blank = self.pick(["", "", "  "])
            self.lines.append(
                blank if self.chance(50) else " " * self.pick([0, indent, indent + 2]) + self.pick(COMMENTS)
            )

    def mapping(self, indent: int, depth: int, first: str = "") -> None:
        """Lines of a block mapping; `first` stands before the first key instead of its indentation."""
        keys = self.draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=5 if depth == 0 else 3, unique=True))
        merge_at = self.draw(st.integers(0, len(keys))) if self.maps and self.chance(25) else None
        for position, key in enumerate(keys):
            if position:
                self.filler(indent)
            lead = first if position == 0 and first else " " * indent
            if position == merge_at:
                self.lines.append(f"{lead}<<: *{self.pick(self.maps)}")
                lead = " " * indent
            self.value(lead + key + self.pick([":", ":", ":", " :"]), indent, depth)

    def value(self, start: str, indent: int, depth: int) -> None:
        """Lines of one value behind `start`, which is `key:` or a dash."""
        item = start.rstrip().endswith("-")
        name = f"n{len(self.anchors) + len(self.maps)}" if self.chance(12) else None
        lead = start + " " + (f"&{name} " if name else "")
        kind = self.pick(
            ["scalar"] * 6
            + ["empty", "alias", "long", "block", "flow", "flow"]
            + ([] if depth > 2 else ["map", "seq"] * 2)
        )
        if kind == "alias" and self.anchors + self.maps and not name:
            self.lines.append(lead + "*" + self.pick(self.anchors + self.maps) + self.tail())
            return
        if kind == "empty":
            self.lines.append(lead.rstrip() + self.tail())
        elif kind == "long":
            quote = self.pick(["", "'", '"'])
            self.lines += [f"{lead}{quote}one", " " * (indent + 2) + f"two{quote}" + self.tail()]
        elif kind == "block":
            self.block_scalar(lead, indent)
        elif kind == "flow":
            self.flow(lead, indent)
        elif kind == "map":
            step = self.pick([1, 2, 2, 2, 4])
            if item and not name and self.chance(70):
                self.mapping(len(start) + 1, depth + 1, start + " ")
            else:
                self.lines.append(lead.rstrip() + self.tail())
                self.filler(indent + step)
                self.mapping(indent + step, depth + 1)
            if name:
                self.maps.append(name)
            return
        elif kind == "seq" and item and not name and self.chance(50):  # `- - x`
            inner = len(start) + 1
            self.value(start + " -", inner, depth + 1)
            if self.chance(50):
                self.value(" " * inner + "-", inner, depth + 1)
        elif kind == "seq":
            self.lines.append(lead.rstrip() + self.tail())
            inner = indent + (self.pick([1, 2]) if item else self.pick([0, 2]))
            for _ in range(self.pick([1, 2, 3])):
                self.filler(inner)
                self.value(" " * inner + "-", inner, depth + 1)
        else:
            self.lines.append(lead + self.pick(SCALARS) + self.tail())
        if name:
            self.anchors.append(name)

    def block_scalar(self, lead: str, indent: int) -> None:
        self.lines.append(lead + self.pick("|>") + self.pick(["", "", "-", "+"]) + self.tail())
        for _ in range(self.pick([0, 1, 2])):
            self.lines.append(" " * (indent + 2) + self.pick(["text", " more", "# text", "k: v", "é", ""]))
        for _ in range(self.pick([0, 0, 0, 1, 2])):
            self.lines.append(self.pick(["", " " * (indent + 4)]))

    def flow(self, lead: str, indent: int) -> None:
        mapping = self.chance(60)
        count = self.pick([0, 1, 2, 3])
        scalars = [s for s in SCALARS if not s.startswith("!")]
        keys = self.draw(st.lists(st.sampled_from(KEYS), min_size=count, max_size=count, unique=True))
        parts = [
            self.pick(scalars) if not mapping else f"{key}: {self.pick([*scalars, '[1, 2]', '{z: 1}', ''])}"
            for key in keys
        ]
        opening, closing = "{}" if mapping else "[]"
        comma = "," if parts and self.chance(15) else ""
        if self.chance(65) or not parts:
            self.lines.append(lead + opening + ", ".join(parts) + comma + closing + self.tail())
            return
        self.lines.append(lead + opening + self.tail())
        for position, part in enumerate(parts):
            comma = "," if position + 1 < len(parts) or comma else ""
            self.lines.append(" " * (indent + 2) + part + comma + self.tail())
        self.lines.append(" " * (indent + 1) + closing + self.tail())


@st.composite
def documents(draw: Any) -> str:
    """A text that is mostly valid YAML with a mapping on top."""
    writer = _Writer(draw)
    if writer.chance(10):
        writer.lines.append("---")
    writer.filler(0)
    writer.mapping(0, 0)
    writer.filler(0)
    newline = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"]))
    end = draw(st.sampled_from([newline, newline, "", newline * 2]))
    text = newline.join(writer.lines) + end
    if writer.chance(10):  # mixed line ends
        text = "".join(line + draw(st.sampled_from(["\n", "\r\n"])) for line in writer.lines)
    return ("\ufeff" if writer.chance(5) else "") + text


def reference(text: str) -> Any:
    """What Axolotl's reader makes of a text."""
    return yaml.safe_load(text)
