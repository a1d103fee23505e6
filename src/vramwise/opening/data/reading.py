"""Sample lengths of a run's data: of what the user names, otherwise of the local files that the config names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.limits import Budget, ceilings
from vramwise.limits.child import shared_time
from vramwise.opening.data.rows import NoPyarrow, data_files, read_rows
from vramwise.opening.data.samples import Sample, labelled_by, samples_of
from vramwise.opening.data.tokens import BYTES_PER_TOKEN, TokenizerFailed, count_tokens, tokenizer_in
from vramwise.trainers.base import DatasetBlock
from vramwise.units import mib
from vramwise.variants.lengths import Data, Lengths


@shared_time()
def read_named(name: str, tokenizer: Path | None = None) -> Lengths:
    """Return the lengths of a file or folder named by the user. Raises VramwiseError if it cannot be read."""
    try:
        files = data_files(Path(name))
    except (OSError, ValueError) as error:
        raise VramwiseError(f"{name!r} is not the path of a data file") from error
    return _lengths([(file, None, ()) for file in files], name, tokenizer)


@shared_time()
def read_blocks(blocks: Sequence[DatasetBlock], base_dir: Path, tokenizer: Path | None = None) -> Data:
    """Return the lengths of the local files that a config names.

    If some are not on this machine, none are read, as the rest may be longer.
    """
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
        notes.append(f"cannot read the data: {error}")
        return None


def _local(block: DatasetBlock, base_dir: Path) -> Iterator[Path]:
    """Yield files, looked up from the working folder, then from the config's.

    Raises VramwiseError if one is missing.
    """
    for name in block.files or (block.path,):
        roots = [Path(), base_dir]
        if block.files:
            roots = [root / block.path for root in roots] + roots
        here = next((root / name for root in roots if (root / name).exists()), None)
        if here is None:
            raise VramwiseError(f"{name} is not on this machine")
        yield from data_files(here)


def _lengths(files: Sequence[tuple[Path, str | None, tuple[str, ...]]], name: str, tokenizer: Path | None) -> Lengths:
    stamps = []
    for file, _, _ in files:
        try:
            status = file.stat()
            stamps.append((status.st_mtime_ns, status.st_size))
        except OSError as error:
            raise VramwiseError(f"{file} cannot be read: {error.strerror or error}") from error
    found = _remembered(tuple(files), name, tokenizer, tuple(stamps))
    if isinstance(found, VramwiseError):
        raise VramwiseError(*found.args)
    return found


_Files = tuple[tuple[Path, str | None, tuple[str, ...]], ...]


@lru_cache(maxsize=8)
def _remembered(files: _Files, name: str, tokenizer: Path | None, stamps: object) -> Lengths | VramwiseError:
    """Return the lengths or the error, cached by the files' times and sizes.

    A config is examined several times, and failing takes as long as reading.
    """
    try:
        return _read(files, name, tokenizer)
    except NoPyarrow:
        raise
    except VramwiseError as error:
        return VramwiseError(*error.args)  # without the objects it references


def _read(files: _Files, name: str, tokenizer: Path | None) -> Lengths:
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
        raise VramwiseError(_nothing(name, budget))
    flat = [sample for found in rows for sample in found]
    counter = tokenizer_in(tokenizer)
    try:
        counts = iter(count_tokens(flat, counter))
    except TokenizerFailed:
        counter, counts = None, iter(count_tokens(flat, None))
    longest = [max((next(counts), place) for place, _ in enumerate(found)) for found in rows]
    tokens = [count for count, _ in longest]
    samples = [found[place] for found, (_, place) in zip(rows, longest, strict=True)]
    unread = tuple(_unread(name, budget))
    return Lengths(
        tokens=tokens,
        assumptions=(*unread, *_textless(name, skipped)),
        described=_described(name, tokens, flat, counter is not None),
        whole=not budget.cut,
        unshuffled=True,
        labelled_by=labelled_by(samples, tokens),
        unread=unread,
    )


def _nothing(name: str, budget: Budget) -> str:
    if budget.left_out:
        return f"{name}: a row {_too_large()}; use --lengths with a file of lengths"
    if budget.cut:
        return f"{name}: its first {budget.bound} contain no text; use --lengths with a file of lengths"
    return f"{name} contains no text: each row needs text, messages, a prompt and answer, or input_ids"


def _too_large() -> str:
    return f"would take more than {mib(ceilings.MEMORY_BYTES)} of memory"


def _described(name: str, tokens: Sequence[int], samples: Sequence[Sample], tokenised: bool) -> str:
    how = "counted with the model's tokenizer, chat templates estimated"
    if not tokenised:
        how = (
            f"estimated at {BYTES_PER_TOKEN} bytes per token, erring high: the model's tokenizer is not on this machine"
        )
    if all(sample.tokens is not None for sample in samples):
        how = "as given in the rows"
    return f"{len(tokens):,} rows of {name}, {min(tokens):,} to {max(tokens):,} tokens ({how})"


def _unread(name: str, budget: Budget) -> Iterator[str]:
    """Yield what a limit on reading left out."""
    if budget.cut:
        yield f"only the first {budget.bound} of {name} were read: later rows may be longer"
    if budget.left_out:
        yield f"{budget.left_out:,} rows of {name} were skipped: each {_too_large()}"


def _textless(name: str, skipped: int) -> Iterator[str]:
    if skipped:
        yield f"{skipped:,} rows of {name} without text were skipped"
