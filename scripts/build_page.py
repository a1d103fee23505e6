"""Build the page as one static folder: `make page`.

Pyodide (Python for the browser) comes from its npm package, at a version and checksum that are pinned here; nothing of
it is kept in the repository. Beside it go vramwise with PyYAML and click as one archive, the page's files, and the
examples. Node compiles what is imported first, with the very Python that will run it, so that browsers need not.
"""

import argparse
import gzip
import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from gzip import GzipFile
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "vramwise"
ASSETS = SOURCE / "page" / "assets"
PYODIDE = "314.0.7"
PYODIDE_SHA256 = "66b7949e5a0cba2250b586d7e368bf12fb482800748d182c4618254b685ffaa0"
RUNTIME = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
# Rooms that a browser has no use for: processes, terminals, servers, notebooks.
LEFT_OUT = (
    "training",
    "mcp",
    "cli",
    "integrations",
    "page/assets",
    "page/serving.py",
    "page/local.py",
    "notebook/frames.py",
    "__main__.py",
)
# Of Python's own library what a worker never imports; of its text encodings those that reading a file may ask for.
LIBRARY_LEFT_OUT = frozenset(
    """
    _pydatetime _pyio _pyrepl antigravity bdb cProfile cmd colorsys compileall configparser ctypes doctest email
    filecmp fileinput ftplib http imaplib mailbox modulefinder multiprocessing netrc optparse pdb plistlib poplib
    profile pstats pty pyclbr pydoc rlcompleter sched shelve smtplib socketserver sqlite3 tabnanny this timeit trace
    turtle unittest wave webbrowser wsgiref xml xmlrpc zipapp zoneinfo
    """.split()  # noqa: SIM905
)
ENCODINGS = (
    "__init__",
    "aliases",
    "ascii",
    "cp437",
    "idna",
    "latin_1",
    "punycode",
    "unicode_escape",
    "utf_16",
    "utf_8",
    "utf_8_sig",
)
# A zip that is the same whenever it is built from the same files.
MOMENT = (2026, 1, 1, 0, 0, 0)

sys.path.insert(0, str(ROOT / "src"))
from vramwise import __version__  # noqa: E402
from vramwise.page.folder import common_files, filled, write_files  # noqa: E402

FOOT = (
    "Works offline once loaded. No cookies, no analytics, no requests to other sites. "
    '<a href="licences.txt">Licences</a>'
)


def main() -> None:
    """Build into --out; --pyodide names a package that is here already."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "page")
    parser.add_argument("--pyodide", type=Path, help="the npm package's .tgz, instead of fetching it")
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        package = asked.pyodide or fetched(Path(folder))
        if hashlib.sha256(package.read_bytes()).hexdigest() != PYODIDE_SHA256:
            sys.exit(f"{package.name} is not pyodide {PYODIDE} as it was published: its checksum differs")
        made = Path(folder) / "page"
        build(made, package)
        shutil.rmtree(asked.out, ignore_errors=True)
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, asked.out)
    tell(asked.out)


def fetched(folder: Path) -> Path:
    """The npm package, fetched."""
    command = ["npm", "pack", "--silent", f"pyodide@{PYODIDE}"]
    try:
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"pyodide {PYODIDE} could not be fetched with npm ({error}); --pyodide FILE takes it from a .tgz")
    return folder / f"pyodide-{PYODIDE}.tgz"


def build(out: Path, package: Path) -> None:
    """Every file of the page."""
    unpack(package, out / "pyodide")
    (out / "vramwise.tar.gz").write_bytes(packed())
    compile_all(out)
    fetched_bytes = sum((out / name).stat().st_size for name in COUNTED)
    files = {
        **common_files(build="static", foot=FOOT, wasm=True),
        "worker.js": filled("worker.js", {"bytes": fetched_bytes}),
        "licences.txt": licences(),
    }
    write_files(files, out)
    names = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join((out / name).read_bytes() for name in names)).hexdigest()[:16]
    write_files({"sw.js": filled("sw.js", {"digest": digest, "files": json.dumps(["./", *names])})}, out)


# What the worker fetches and counts: a module's own imports are not among it.
COUNTED = ("vramwise.tar.gz", "pyodide/pyodide.asm.wasm", "pyodide/python_stdlib.zip", "pyodide/pyodide-lock.json")


def unpack(package: Path, out: Path) -> None:
    """The files of Pyodide that run; of its list of packages none, because none is loaded."""
    out.mkdir(parents=True)
    with tarfile.open(package) as archive:
        for name in (*RUNTIME, "pyodide-lock.json"):
            found = archive.extractfile(f"package/{name}")
            assert found is not None
            (out / name).write_bytes(found.read())
    lock = json.loads((out / "pyodide-lock.json").read_text(encoding="utf-8"))
    slim(out / "python_stdlib.zip")
    write_files({"pyodide-lock.json": json.dumps({"info": lock["info"], "packages": {}})}, out)


def slim(library: Path) -> None:
    """Python's library without what is left out of it."""
    slimmer = library.with_suffix(".slim")
    with zipfile.ZipFile(library) as before, zipfile.ZipFile(slimmer, "w", compresslevel=9) as after:
        for name in sorted(before.namelist()):
            top, _, inside = name.partition("/")
            encoding = top == "encodings" and inside and inside.removesuffix(".py") not in ENCODINGS
            if not name.endswith("/") and top.removesuffix(".py") not in LIBRARY_LEFT_OUT and not encoding:
                after.writestr(zipfile.ZipInfo(name, MOMENT), before.read(name), zipfile.ZIP_DEFLATED)
    slimmer.replace(library)


# of the files that the page takes along
SUFFIXES = (".py", ".json", ".txt", ".js", ".css", ".html")


def packed() -> bytes:
    """vramwise's source with what it imports: one stream, because hundreds of small files compress badly one by one."""
    made = BytesIO()
    with (
        GzipFile(fileobj=made, mode="wb", compresslevel=9, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as archive,
    ):
        for top, folder in (("vramwise", SOURCE), ("yaml", package_of("yaml")), ("click", package_of("click"))):
            for path in sorted(folder.rglob("*")):
                inside = path.relative_to(folder).as_posix()
                if path.is_file() and path.suffix in SUFFIXES and wanted(top, inside):
                    about = tarfile.TarInfo(f"{top}/{inside}")
                    about.size = path.stat().st_size
                    with path.open("rb") as file:
                        archive.addfile(about, file)
    return made.getvalue()


def wanted(top: str, inside: str) -> bool:
    """Whether a file goes along."""
    return top != "vramwise" or not any(inside == name or inside.startswith(f"{name}/") for name in LEFT_OUT)


def package_of(name: str) -> Path:
    """Where a package of this Python lies."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        sys.exit(f"{name} is not installed in this Python: pip install -e . first")
    return Path(found.origin).parent


def compile_all(out: Path) -> None:
    """What a page imports first, as its own Python compiles it: then no browser has to."""
    config = ROOT / "examples" / "qlora.yml"
    script = Path(__file__).with_name("compile_page.mjs")
    try:
        subprocess.run(["node", script, out / "pyodide", out / "vramwise.tar.gz", config], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"the page's Python could not be compiled with node: {error}")


def licences() -> str:
    """Whose work is in the folder."""
    return (
        f"vramwise {__version__}: MIT\n"
        f"Pyodide {PYODIDE}: MPL-2.0, https://github.com/pyodide/pyodide\n"
        "CPython: PSF-2.0, https://github.com/python/cpython\n"
        "PyYAML: MIT, https://github.com/yaml/pyyaml\n"
        "click: BSD-3-Clause, https://github.com/pallets/click\n"
    )


def tell(out: Path) -> None:
    """What it weighs."""
    files = [path for path in out.rglob("*") if path.is_file()]
    raw = sum(path.stat().st_size for path in files)
    small = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files)
    print(f"{out}: {len(files)} files, {raw / 1e6:.1f} MB, {small / 1e6:.2f} MB compressed")


if __name__ == "__main__":
    main()
