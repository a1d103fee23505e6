"""What a package registry has: its releases, unfiltered, and their files, as sources that are read and never run."""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

_TYPES = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_LONGEST = 2 * 2**30
_SYSTEM = {
    "python_version": "3.12",
    "python_full_version": "3.12.9",
    "sys_platform": "linux",
    "platform_system": "Linux",
}
_SYSTEM |= {"os_name": "posix", "platform_machine": "x86_64", "implementation_name": "cpython"}


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a release. `uploaded`: an ISO time, "" if the registry does not say."""

    version: Version
    name: str
    url: str
    sha256: str
    uploaded: str
    yanked: bool

    @property
    def day(self) -> str:
        """The day of its release."""
        return self.uploaded[:10]


def index_url() -> str:
    """The registry that pip uses."""
    said = os.environ.get("PIP_INDEX_URL")
    if said:
        return said.rstrip("/")
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return (found or "https://pypi.org/simple").rstrip("/")


@cache
def files(package: str, index: str) -> tuple[File, ...]:
    """Every file of a package, whatever Python it asks for; a wheel before a source archive, by version.

    None where the registry does not have the package.
    """
    url = f"{index}/{package}/"
    request = urllib.request.Request(url, headers={"Accept": _TYPES})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            text, base = answer.read(_LONGEST).decode(), answer.url
            listed = _of_json(text, base) if "json" in answer.headers["content-type"] else _of_html(text, base)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return ()
        raise SystemExit(f"the registry does not list {package}: {error}") from error
    except urllib.error.URLError as error:
        raise SystemExit(f"the registry does not list {package}: {error}") from error
    return tuple(sorted(listed, key=lambda file: (file.version, not file.name.endswith(".whl"))))


def _of_json(text: str, base: str) -> list[File]:
    found = []
    for one in json.loads(text)["files"]:
        if version := version_in(one["filename"]):
            sha, uploaded = one["hashes"].get("sha256", ""), one.get("upload-time") or ""
            url = urllib.parse.urljoin(base, one["url"])
            yanked = bool(one.get("yanked"))
            found.append(
                File(version=version, name=one["filename"], url=url, sha256=sha, uploaded=uploaded, yanked=yanked)
            )
    return found


def _of_html(text: str, base: str) -> list[File]:
    found = []
    for attributes, name in re.findall(r"<a ([^>]*)>([^<]*)</a>", text):
        words = dict(re.findall(r'([\w-]+)="([^"]*)"', attributes))
        if version := version_in(name.strip()):
            url, _, digest = urllib.parse.urljoin(base, html.unescape(words["href"])).partition("#sha256=")
            uploaded, yanked = words.get("data-upload-time", ""), "data-yanked" in attributes
            found.append(
                File(version=version, name=name.strip(), url=url, sha256=digest, uploaded=uploaded, yanked=yanked)
            )
    return found


def version_in(name: str) -> Version | None:
    """The version in the name of a wheel or source archive; None for another file."""
    try:
        return parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def releases(package: str, index: str) -> dict[Version, File]:
    """The best file of each final release, oldest first: no pre-release, and none that was withdrawn."""
    found: dict[Version, File] = {}
    for file in files(package, index):
        if not (file.yanked or file.version.is_prerelease):
            found.setdefault(file.version, file)
    return dict(sorted(found.items()))


def download(file: File, folder: Path) -> Path:
    """Fetch a file and compare its digest."""
    with urllib.request.urlopen(file.url, timeout=600) as answer:
        content = answer.read(_LONGEST)
    if file.sha256 and hashlib.sha256(content).hexdigest() != file.sha256:
        raise SystemExit(f"{file.name} is not what the registry lists: its digest differs")
    target = folder / file.name
    target.write_bytes(content)
    return target


class Archive:
    """The files of a release by their path in the package: of a wheel, a source archive or a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._texts: dict[str, bytes] = {}
        if path.is_dir():
            self._read = lambda name: (path / name).read_bytes()
            names = [str(one.relative_to(path)) for one in path.rglob("*") if one.is_file()]
        elif path.suffix == ".whl":
            packed = zipfile.ZipFile(path)
            self._read, names = packed.read, packed.namelist()
        else:
            tar = tarfile.open(path)  # noqa: SIM115 - read from until the end
            self._read = lambda name: tar.extractfile(name).read()  # type: ignore[union-attr]
            names = [one.name for one in tar.getmembers() if one.isfile()]
        top = "" if path.is_dir() or path.suffix == ".whl" else r"[^/]+/"
        self.names = {re.sub(rf"^{top}(?:src/)?", "", name): name for name in names}

    def text(self, name: str) -> str | None:
        """A file's text; None if there is none of that name."""
        return self._read(self.names[name]).decode() if name in self.names else None

    def texts(self, *names: str) -> list[str]:
        """The texts of those files that there are."""
        return [text for name in names if (text := self.text(name)) is not None]

    def first(self, *names: str) -> list[str]:
        """The text of the first file that there is."""
        return self.texts(*names)[:1]

    def below(self, folder: str) -> list[str]:
        """The paths of the Python files in a folder."""
        return sorted(name for name in self.names if name.startswith(folder) and name.endswith(".py"))

    @property
    def version(self) -> str:
        """The version that its file is named after."""
        return str(version_in(self.path.name))

    def unpack(self, folder: Path) -> None:
        """Write its Python files below a folder."""
        for name in self.names:
            if name.endswith(".py") and ".." not in name:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(self._read(self.names[name]))

    def day(self) -> str:
        """The day of its newest file."""
        if self.path.suffix == ".gz":
            with tarfile.open(self.path) as tar:
                newest = max(one.mtime for one in tar.getmembers())
            return datetime.fromtimestamp(newest, tz=UTC).date().isoformat()
        with zipfile.ZipFile(self.path) as packed:
            return "{:04}-{:02}-{:02}".format(*max(entry.date_time for entry in packed.infolist())[:3])

    def metadata(self) -> str:
        """What its author says of it, as the registry has it."""
        found = [one for one in self.names if re.fullmatch(r"[^/]+\.dist-info/METADATA|PKG-INFO", one)]
        return (self.text(found[0]) or "") if found else ""

    def requires(self, extras: tuple[str, ...] = ()) -> dict[str, Requirement]:
        """What it asks for, for Linux and a current Python."""
        found: dict[str, Requirement] = {}
        lines = re.findall(r"^Requires-Dist: (.+)$", self.metadata(), re.MULTILINE)
        for line in lines or (self.text("requirements.txt") or "").splitlines():  # a tag has no metadata
            try:
                one = Requirement(line)
            except InvalidRequirement:
                continue
            if one.marker is None or any(one.marker.evaluate({**_SYSTEM, "extra": extra}) for extra in ("", *extras)):
                package = re.sub(r"[-_.]+", "-", one.name).lower()
                joined = found[package].specifier & one.specifier if package in found else one.specifier
                one.specifier = joined
                found[package] = one
        return found
