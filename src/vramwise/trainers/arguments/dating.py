"""Finds the releases that a file was written for: the newest that take what it sets, if the assumed ones refuse it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from vramwise.trainers.arguments.vocabulary import Vocabulary, argument_versions
from vramwise.types import Document, Stack, admits, version_parts

# Returns what the releases of a stack refuse of a file.
Refused = Callable[[Document, Stack], frozenset[str]]
_NAMED = 3


def refused_by(words: Vocabulary, document: Document) -> frozenset[str]:
    """Return the arguments of a file, or of a script's config, that are unknown, and those whose value is refused."""
    script = document.script
    home = None if script is None else script.homes.get("args")
    names = document.values if script is None else home.arguments if home is not None else ()
    unknown = {key for key in names if isinstance(key, str) and key not in words}
    misread = (one.key for one in words.misreadings(document.values) if one.grave)
    return frozenset({*unknown, *misread, *(key for key, _ in words.type_errors(document.values))})


def dated(
    document: Document, stack: Stack, package: str, releases: Mapping[str, Mapping[str, str]], refused: Refused
) -> tuple[tuple[str, str, str], ...]:
    """Return (package, version, why) for each package whose assumed release refuses what an older one takes.

    `releases`: those of the trainer's `package`, oldest first, with what each installs with.
    """
    found: list[tuple[str, str, str]] = []
    release = stack.releases.get(package)
    if release is None or release.origin.kind != "assumed":
        return ()  # what it installs with goes by it
    now = refused(document, stack)
    of_arguments: Mapping[str, Mapping[str, str]] = {version: {} for version in argument_versions()}
    for name, known in ((package, releases), ("transformers", of_arguments)):
        best, before = None, now
        for version, other in _older(stack, name, known) if now else ():
            left = refused(document, other)
            if left < before:
                best, before = (version, other), left
        if best is not None:
            version, stack = best
            why = f"written for {name} {_short(version)} or older: {_listed(sorted(now - before))}"
            found.append((name, version, why))
            now = before
    return tuple(found)


def stops_from(document: Document, stack: Stack, package: str, known: Sequence[str], refused: Refused, key: str) -> str:
    """Return the first known release of a package after the assumed one that refuses a key; "" if none does."""
    release = stack.releases.get(package)
    later = [one for one in known if release is not None and version_parts(one) > release.parts]
    return next((one for one in later if key in refused(document, stack.at(package, one))), "")


def _older(stack: Stack, package: str, known: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, Stack]]:
    """Yield the stacks with each older release of a package, the newest first, if its release is only assumed."""
    release = stack.releases.get(package)
    if release is None or release.origin.kind != "assumed":
        return
    for version in reversed(list(known)):
        if version_parts(version) < release.parts and admits(stack.bounds.get(package, ()), version):
            yield version, stack.at(package, version, known[version])


def _short(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
