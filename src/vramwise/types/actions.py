"""Hints about what to do next, in the words of the interface: an option of the command line, a field of the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

# Parts of sentences, by purpose. An interface without these options passes its own table to `in_words_of`.
COMMAND_LINE: Mapping[str, str] = {
    "choose a card": "name a card with --gpu",
    "say how many cards": "use --gpus N to set how many there are",
    "say the version": "--with {}==VERSION names yours",
    "several cards": "several (--gpus)",
    "read the lengths": "--data FILE reads them from your data, --lengths FILE takes a list of lengths",
    "read how long": "use --data FILE to read the row lengths",
    "lengths": "--data or --lengths gives the real lengths",
    "prompt lengths": "--lengths gives the real lengths of prompts",
    "name the model": "--model FOLDER with its config.json gives its shape",
    "try a step": "the first steps on the card (`vramwise train` measures them)",
    "simulate more": "--steps N takes more",
    "allow": "--allow {}",
    "allow several": " ",
    "allowed only": "only with --allow",
    "nothing to allow": "No --allow option was found that makes it fit",
    "search less": "use --keep KEY to search fewer",
    "keep room": "use --margin {}GiB to get it",
    "list the cards": "name a card (`vramwise gpus`)",
    "insist": "name a training config, or insist with --trainer",
    "name the call": "name the file with the call that creates the trainer",
    "predict a loop": (
        "it is a loop of its own: before the loop, let the program ask with `import vramwise` and "
        "`print(vramwise.predict(model=model, optimizer=optimizer, batch=batch))`"
    ),
    "add a model": "add one, or use --model with a hub id or a config.json",
    "write a model": "write a model there, or name one with --model",
    "name its origin": "Name the one it was made from with --model, or point to its config.json",
    "point to a model": (
        "Point to its config.json, or to the folder that holds it, as base_model or with --model; or name a known "
        "model of the same shape with --model"
    ),
    "looked for a model": "not a folder or file here, not in the catalogue, not in {}",
    "fetch a model": ("; or fetch it: `predict` downloads it, or run `hf download {} config.json`"),
    "give the config": "give the config: `vramwise diagnose train.log --config config.yml`",
    "give the snapshot": "add --snapshot snapshot.pickle",
    "say the trainer": "use --config or --trainer ({}) for yours",
}
_words: ContextVar[Mapping[str, str]] = ContextVar("_words", default=COMMAND_LINE)


def action(name: str) -> str:
    """Return what to do as part of a sentence; raises KeyError for an unknown action."""
    return _words.get()[name]


@contextmanager
def in_words_of(words: Mapping[str, str]) -> Iterator[None]:
    """Make `action` use these words inside the block. `words` must have every key of COMMAND_LINE."""
    before = _words.set(words)
    try:
        yield
    finally:
        _words.reset(before)
