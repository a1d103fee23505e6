"""What a release is installed with: the newest by pip's own resolver, older ones by what there was on their day."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from registry import Archive

if TYPE_CHECKING:
    from known_packages import Package
    from releases import Work

# Packages that the registry has no wheel of: pip would have to run their code to know what they ask for.
SOURCE_ALONE = frozenset({"deepspeed"})


def installed_with(
    package: Package, version: str, day: str, archive: Archive, work: Work, *, is_newest: bool
) -> dict[str, str]:
    """The version of each package that a release was installed with when it came out.

    For the newest release, what pip installs today. For older ones, the newest versions of that day that it allows.
    """
    day = "" if is_newest else day
    found = by_pip(package, version, work.indexes) if is_newest and not work.given else {}
    wanted = archive.requires(package.extras)
    for name in (one for one in package.installs if one not in found):
        ranges = wanted.get(name)
        fitting = [
            one
            for one, file in work.releases(name).items()
            if (not day or not file.day or file.day <= day) and (ranges is None or one in ranges.specifier)
        ]
        if fitting:
            found[name] = str(fitting[-1])
    return {name: found[name] for name in package.installs if name in found}


def by_pip(package: Package, version: str, indexes: list[str]) -> dict[str, str]:
    """What `pip install` brings today, by its own resolver; nothing where it finds no answer."""
    if not package.wheels_alone:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--target", folder, "--python-version", "3.12", "--only-binary=:all:", "--report", str(report)]
        for place, index in enumerate(indexes):
            command += ["--extra-index-url" if place else "--index-url", index]
        # Its own requirements decide; what people add themselves comes at its newest.
        names = [name for name in package.installs if name not in SOURCE_ALONE]
        command += [f"{package.name}=={version}", *names]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "PIP_NO_INPUT": "1"}
        )
        if done.returncode:
            reason = ([line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no answer"])[-1]
            print(f"{package.name} {version}: pip finds no stack ({reason}); the newest of its day", file=sys.stderr)
            return {}
        listed = json.loads(report.read_text(encoding="utf-8"))["install"]
    found = {one["metadata"]["name"].lower().replace("_", "-"): one["metadata"]["version"] for one in listed}
    return {name: found[name].split("+")[0] for name in names if name in found}
