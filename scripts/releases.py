"""Bring what is known of other people's releases up to date: `make releases`.

    python scripts/releases.py                        # compares the registry with what is known, takes what is new
    python scripts/releases.py --only trl             # of one package; may be repeated
    python scripts/releases.py --wheel FILE           # takes releases from files: wheels, source archives, tags
    python scripts/releases.py --report FILE          # writes what changed there, for a pull request

Writes trainers/*/schema/history.json and releases.json from what they hold and the releases that they do not: none that
is known is dropped. Then the files that follow from them. Nothing of a release is run or imported, except that
Axolotl's schema is loaded in a process of its own (`axolotl_schema.py`).

`--index URL` (repeatable) replaces the registry that pip uses. A tag that no registry has becomes a source archive with
`git archive --prefix=axolotl-0.4.0/ -o axolotl-0.4.0.tar.gz v0.4.0`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

import registry
from differences import changes, unread, without_meaning
from histories import SRC, TRAINERS, Known
from known_packages import PACKAGES, Package, constants
from new_keys import sort_in
from registry import Archive, File
from stacks import by_pip, installed_with

ROOT = SRC.parent
# Files that follow from what is known of releases.
FOLLOWING = ("scripts/release_files.py", "scripts/other_words.py", "scripts/unread_keys.py")
# With more new releases than these, the code that changed between them is not listed.
_MOST_COMPARED = 5


class Work:
    """The registry and the files that were fetched from it, for one call."""

    def __init__(self, indexes: list[str], folder: Path, given: Iterable[Path] = ()) -> None:
        self.indexes, self.folder = indexes, folder
        self.given = {(one.name.split("-")[0].lower(), _version_of(one)): one for one in given}

    def releases(self, package: str) -> dict[Version, File]:
        """The final releases of a package in every registry, oldest first."""
        found: dict[Version, File] = {}
        for index in self.indexes:
            found = registry.releases(package, index) | found
        return dict(sorted(found.items()))

    def archive(self, package: str, version: str) -> Archive | None:
        """The files of a release; None if there is none of that version."""
        given = self.given.get((package, Version(version)))
        if given is not None:
            return Archive(given)
        found = self.releases(package).get(Version(version))
        if found is None:
            return None
        target = self.folder / found.name
        return Archive(target if target.is_file() else registry.download(found, self.folder))


def _version_of(path: Path) -> Version:
    found = registry.version_in(path.name)
    if found is None:
        raise SystemExit(f"{path.name}: neither a wheel nor a source archive")
    if found.is_prerelease:
        raise SystemExit(f"{path.name}: {found} is a pre-release, which is not taken: wait for the release")
    return found


def update(package: Package, work: Work, folder: Path) -> Iterator[str]:
    """Take every release that is not known, write the files, and yield what changed, as Markdown."""
    known = Known(folder)
    listed = {} if work.given else work.releases(package.name)
    wanted = [version for version in listed if version >= Version(package.first)]
    new = [version for version in wanted if str(version) not in known.releases]
    new = sorted([version for name, version in work.given if name == package.name] or new)
    newest = max((*new, *map(Version, known.releases)))
    if newest not in new and not work.given:
        yield from _refreshed(package, known, str(newest), work)
    for version in new:
        archive = work.archive(package.name, str(version))
        assert archive is not None
        day = (listed[version].day if version in listed else "") or archive.day()
        release = {"released": day, **package.release(archive)}
        release["with"] = installed_with(package, str(version), day, archive, work, is_newest=version == newest)
        with_it = {
            name: work.archive(name, release["with"][name]) for name in package.beside if name in release["with"]
        }
        if missing := [name for name in package.beside if with_it.get(name) is None]:
            raise SystemExit(
                f"{package.name} {version}: no wheel of {missing[0]} {release['with'].get(missing[0], '')}: "
                f"name it too with --wheel, or let it be downloaded"
            )
        facts = json.loads(json.dumps(package.facts(archive, **with_it)))  # as it is read again: no tuples
        print(f"{package.name} {version}: read", file=sys.stderr)
        if len(new) <= _MOST_COMPARED:
            yield from _said(package, known, str(version), facts, archive, work)
        known.add(str(version), release, facts)
        for path in work.folder.glob(f"{package.name.replace('-', '_')}-*"):
            if len(new) > _MOST_COMPARED:
                path.unlink()
    known.write(constants(package, known))
    table = folder.parents[1] / "unread.json"
    if newest in new and table.is_file() and (added := sort_in(package, known, table)):
        yield f"\nNot counted until a person sorts them ({table.name}): {', '.join(f'`{key}`' for key in added)}"


def _refreshed(package: Package, known: Known, newest: str, work: Work) -> Iterator[str]:
    """Take what pip installs with the newest release today."""
    release, found = known.releases[newest], by_pip(package, newest, work.indexes)
    moved = [f"{name} {found[name]} (was {release['with'].get(name)})" for name in found]
    moved = [words for words, name in zip(moved, found, strict=True) if release["with"].get(name) != found[name]]
    if found and moved:
        release["with"] = found
        yield f"{package.title} {newest} installs with {', '.join(moved)} now."


def _said(
    package: Package, known: Known, version: str, facts: Mapping[str, Any], archive: Archive, work: Work
) -> Iterator[str]:
    before = max((one for one in map(Version, known.releases) if one < Version(version)), default=None)
    if before is None:
        return
    yield f"## {package.title} {version}, after {before}\n"
    yield from changes(known.facts[str(before)], facts, package.constant)
    yield from without_meaning(known.facts[str(before)], facts, package)
    yield from unread(package, archive, work.archive(package.name, str(before)))
    yield f"Then bring docs/{package.page} up to date, and run `make test`."


def main() -> int:
    """Every package, or those that are named."""
    said = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    said.add_argument("--only", action="append", choices=[one.name for one in PACKAGES], metavar="PACKAGE")
    said.add_argument("--wheel", action="append", type=Path, default=[], metavar="FILE")
    said.add_argument("--index", action="append", metavar="URL")
    said.add_argument("--report", type=Path, metavar="FILE")
    said.add_argument("--into", type=Path, default=TRAINERS, help=argparse.SUPPRESS)
    options = said.parse_args()
    indexes = [one.rstrip("/") for one in options.index or [registry.index_url()]]
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        work = Work(indexes, Path(folder), options.wheel)
        named = options.only or ([] if not options.wheel else [name for name, _ in work.given])
        for package in (one for one in PACKAGES if one.name in named or not named):
            lines += update(package, work, options.into / package.folder / "schema")
    report = "\n".join(lines) if lines else "No package has a release that is not known.\n"
    print(report)
    if options.report:
        options.report.write_text(report + "\n", encoding="utf-8")
    if options.into == TRAINERS:
        for script in FOLLOWING:
            subprocess.run([sys.executable, script, "--write"], check=True, cwd=ROOT)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
