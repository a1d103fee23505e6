"""The lengths of a run's data: of what the user names, else of the local files that the config names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vramwise.dataset.labels import labelled_by
from vramwise.dataset.rows import MOST_BYTES, MOST_ROWS, Budget, data_files, read_rows
from vramwise.dataset.samples import Sample, samples_of
from vramwise.dataset.tokens import BYTES_PER_TOKEN, count_tokens, tokenizer_in
from vramwise.errors import VramwiseError
from vramwise.trainers.base import DatasetBlock
from vramwise.units import mib
from vramwise.variants.lengths import Lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Lengths of training and of evaluation; `notes`: what was not read, and why.

    `named`: what the user named, "" for none; None where the config's own files were looked for.
    """

    train: Lengths | None = None
    evaluation: Lengths | None = None
    notes: tuple[str, ...] = ()
    named: str | None = None

    @property
    def samples(self) -> int:
        """How many lengths there are."""
        return sum([len(one.tokens) for one in (self.train, self.evaluation) if one is not None])


NO_DATA = Data()


def read_named(name: str, tokenizer: Path | None = None) -> Lengths:
    """The lengths of a file or folder that the user named; a VramwiseError where it cannot be read."""
    try:
        files = data_files(Path(name))
    except (OSError, ValueError) as error:
        raise VramwiseError(f"{name!r} is no path of a data file") from error
    return _lengths([(file, None, ()) for file in files], name, tokenizer)


def read_blocks(blocks: Sequence[DatasetBlock], base_dir: Path, tokenizer: Path | None = None) -> Data:
    """The lengths of the local files that a config names; where some are elsewhere, none: the rest may be longer."""
    train = [block for block in blocks if not block.evaluation]
    evals = [block for block in blocks if block.evaluation]
    notes: list[str] = []
    read = [_of_blocks(some, base_dir, tokenizer, notes) for some in (train, evals)]
    return Data(train=read[0], evaluation=read[1] if evals else read[0], notes=tuple(notes))


def _of_blocks(
    blocks: Sequence[DatasetBlock], base_dir: Path, tokenizer: Path | None, notes: list[str]
) -> Lengths | None:
    found = []
    for block in blocks:
        try:
            files = list(_local(block, base_dir))
        except (OSError, ValueError, VramwiseError):
            files = []
        if not files:
            return None
        found += [(file, block.kind, block.columns) for file in files]
    if not found:
        return None
    try:
        return _lengths(found, ", ".join(dict.fromkeys(block.path for block in blocks))[:120], tokenizer)
    except VramwiseError as error:
        notes.append(f"the data is not read: {error}")
        return None


def _local(block: DatasetBlock, base_dir: Path) -> Iterator[Path]:
    """Files from the working folder, then from the config's; nothing where one of them is not here."""
    for name in block.files or (block.path,):
        roots = [Path(), base_dir]
        if block.files:
            roots = [root / block.path for root in roots] + roots
        here = next((root / name for root in roots if (root / name).exists()), None)
        if here is None:
            raise VramwiseError(f"{name} is not here")
        yield from data_files(here)


def _lengths(files: Sequence[tuple[Path, str | None, tuple[str, ...]]], name: str, tokenizer: Path | None) -> Lengths:
    stamps = []
    for file, _, _ in files:
        try:
            status = file.stat()
            stamps.append((status.st_mtime_ns, status.st_size))
        except OSError as error:
            raise VramwiseError(f"{file} cannot be read: {error.strerror or error}") from error
    return _read(tuple(files), name, tokenizer, tuple(stamps))


@lru_cache(maxsize=8)
def _read(
    files: tuple[tuple[Path, str | None, tuple[str, ...]], ...], name: str, tokenizer: Path | None, stamps: object
) -> Lengths:
    """Remembered, by the files' times and sizes: a config is asked about several times."""
    budget, skipped = Budget(), 0
    rows: list[tuple[Sample, ...]] = []
    for file, kind, columns in files:
        for row in read_rows(file, budget, kind):
            found = samples_of(row, columns)
            skipped += not found
            if found:
                rows.append(found)
        if budget.spent:
            budget.cut = budget.cut or file != files[-1][0]
            break
    if not rows:
        raise VramwiseError(f"{name} holds no text: a row needs text, messages, a prompt and its answer, or input_ids")
    flat = [sample for found in rows for sample in found]
    counter = tokenizer_in(tokenizer)
    counts = iter(count_tokens(flat, counter))
    longest = [max((next(counts), place) for place, _ in enumerate(found)) for found in rows]
    tokens = [count for count, _ in longest]
    samples = [found[place] for found, (_, place) in zip(rows, longest, strict=True)]
    said = tuple(_said(name, tokens, flat, counter is not None, budget, skipped))
    by = labelled_by(samples, tokens)
    return Lengths(tokens=tokens, assumptions=said, whole=not budget.cut, unshuffled=True, labelled_by=by)


def _said(
    name: str, tokens: Sequence[int], samples: Sequence[Sample], tokenised: bool, budget: Budget, skipped: int
) -> Iterator[str]:
    how = "counted with the model's tokenizer, templates estimated"
    if not tokenised:
        how = f"estimated at {BYTES_PER_TOKEN} bytes a token, rather too many: the model's tokenizer is not here"
    if all(sample.tokens is not None for sample in samples):
        how = "as the rows say"
    yield f"data: {len(tokens):,} rows of {name}, {min(tokens):,} to {max(tokens):,} tokens ({how})"
    if budget.cut:
        yield f"only the first {mib(MOST_BYTES)} or {MOST_ROWS:,} rows of {name} were read: later ones may be longer"
    if skipped:
        yield f"{skipped:,} rows of {name} without text are left out"
