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
from string import Template
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "vramwise"
ASSETS = SOURCE / "page" / "assets"
PYODIDE = "314.0.7"
PYODIDE_SHA256 = "66b7949e5a0cba2250b586d7e368bf12fb482800748d182c4618254b685ffaa0"
RUNTIME = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
# Rooms that a browser has no use for: processes, terminals, servers, notebooks.
LEFT_OUT = ("training", "mcp", "cli", "integrations", "page/assets", "page/site", "notebook/frames.py", "__main__.py")
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
EXAMPLES = (
    "picture.yml",
    "mistakes.yml",
    "trl-sft.yml",
    "llamafactory-lora.yml",
    "qlora.yml",
    "full.yml",
    "picture.log",
)
FILLED = ("index.html", "worker.js", "sw.js")
# A zip that is the same whenever it is built from the same files.
MOMENT = (2026, 1, 1, 0, 0, 0)

sys.path.insert(0, str(ROOT / "src"))
from vramwise import __version__  # noqa: E402
from vramwise.page.serving import POLICY  # noqa: E402
from vramwise.render.html import asset, chart_script  # noqa: E402


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
    (out / "examples").mkdir()
    for name in EXAMPLES:
        shutil.copyfile(ROOT / "examples" / name, out / "examples" / name)
    for path in sorted(ASSETS.iterdir()):
        if path.name not in (*FILLED, "app.css"):
            shutil.copyfile(path, out / path.name)
    write(out / "style.css", asset("page.css") + asset("fit.css") + (ASSETS / "app.css").read_text("utf-8"))
    write(out / "chart.js", chart_script("export function drawRun(data, signal) {", "}\n"))
    write(out / "licences.txt", licences())
    fetched_bytes = sum((out / name).stat().st_size for name in COUNTED)
    fill("index.html", out, policy=POLICY, version=__version__)
    fill("worker.js", out, bytes=fetched_bytes)
    files = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join((out / name).read_bytes() for name in files)).hexdigest()[:16]
    fill("sw.js", out, digest=digest, files=json.dumps(["./", *files]))


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
    write(out / "pyodide-lock.json", json.dumps({"info": lock["info"], "packages": {}}))


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


def fill(name: str, out: Path, **values: object) -> None:
    """A file of the page with its places filled."""
    write(out / name, Template((ASSETS / name).read_text(encoding="utf-8")).substitute(values))


def write(path: Path, text: str) -> None:
    """UTF-8, lines as they are."""
    path.write_text(text, encoding="utf-8", newline="")


def tell(out: Path) -> None:
    """What it weighs."""
    files = [path for path in out.rglob("*") if path.is_file()]
    raw = sum(path.stat().st_size for path in files)
    small = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files)
    print(f"{out}: {len(files)} files, {raw / 1e6:.1f} MB, {small / 1e6:.2f} MB compressed")


if __name__ == "__main__":
    main()
