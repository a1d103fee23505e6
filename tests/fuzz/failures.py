"""Failures as files: one for each kind and place, beside it how it came about and how to see it again."""

import re
from pathlib import Path


class Found:
    """The failures of one target, in `folder`/`target.name`."""

    def __init__(self, folder, target):
        self.folder = Path(folder) / target.name
        self.extension = target.extension
        self.lines = []
        self._seen = set()

    def keep(self, failure, data, *, check, seed, index, argv=()):
        """Write the input down, unless one of the same kind and place is there."""
        slug = _slug(f"{failure.kind} {failure.place}")
        if slug in self._seen:
            return
        self._seen.add(slug)
        path = self.folder / f"{slug}.{self.extension}"
        self.lines.append(f"{failure.kind} at {failure.place}\n    python -m tests.fuzz.run --replay {path}")
        if path.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        story = (
            f"{failure.kind} at {failure.place}\ncheck {check}, seed {seed}, index {index}\n"
            f"repro: python -m tests.fuzz.run --replay {path}\nargv: {argv!r}\n\n{failure.detail}\n"
        )
        path.with_suffix(f".{self.extension}.why").write_text(story, encoding="utf-8", errors="backslashreplace")

    def say(self, failure, *, name, check, argv):
        """A failure of a file that exists already."""
        line = f"{failure.kind} at {failure.place}\n    {name}, check {check}, argv {argv!r}"
        self.lines.append(f"{line}\n{failure.detail}".encode(errors="backslashreplace").decode())


def _slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:100]
