"""The files of the page. `vramwise serve` answers its requests with this machine's Python; a built page has Pyodide.

Both builds have the same files but for the worker and the service worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

from vramwise import __version__
from vramwise.render.html import asset, chart_script
from vramwise.whole_files import write_new

ASSETS = Path(__file__).resolve().parent / "assets"
# Files of one build only, and those that others are made of.
_APART = ("index.html", "worker.js", "sw.js", "local_worker.js", "local_sw.js", "app.css")
_LOCAL_FOOT = "Answered by vramwise on this machine. No cookies, no analytics, no requests to other sites."
# The page says what it is, and which scripts it may run.
_POLICY = (
    "default-src 'none'; script-src 'self'$wasm; worker-src 'self'; connect-src 'self'; "
    "style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types vramwise"
)


def policy(*, wasm: bool) -> str:
    """Return the content security policy of the page."""
    return Template(_POLICY).substitute(wasm=" 'wasm-unsafe-eval'" if wasm else "")


def filled(name: str, values: Mapping[str, object]) -> str:
    """Return an asset with its places filled."""
    return Template((ASSETS / name).read_text(encoding="utf-8")).substitute(values)


def common_files(*, build: str, foot: str, wasm: bool) -> dict[str, str]:
    """Return the texts of the files that both builds have, by name."""
    about = {"policy": policy(wasm=wasm), "version": __version__, "build": build, "foot": foot}
    return {
        "index.html": filled("index.html", about),
        **{path.name: path.read_text(encoding="utf-8") for path in sorted(ASSETS.iterdir()) if path.name not in _APART},
        "style.css": asset("page.css") + asset("fit.css") + (ASSETS / "app.css").read_text(encoding="utf-8"),
        "chart.js": chart_script("export function drawRun(data, signal) {", "}\n"),
        **{f"examples/{path.name}": path.read_text(encoding="utf-8") for path in _examples()},
    }


def local_files() -> dict[str, str]:
    """Return the texts of all files of the page that this machine's Python answers, by name."""
    return {
        **common_files(build="local", foot=_LOCAL_FOOT, wasm=False),
        "worker.js": (ASSETS / "local_worker.js").read_text(encoding="utf-8"),
        "sw.js": (ASSETS / "local_sw.js").read_text(encoding="utf-8"),
    }


def write_files(files: Mapping[str, str], folder: Path) -> None:
    """Write the files into a folder, as UTF-8 with their line ends."""
    for name, text in files.items():
        write_new(folder / name, text.encode(), make_folder=True)


def _examples() -> list[Path]:
    """Return the example configs and log: in an installed package they are here, in a checkout at the top."""
    installed = Path(__file__).resolve().parent / "examples"
    folder = installed if installed.is_dir() else Path(__file__).resolve().parents[3] / "examples"
    return sorted(path for path in folder.iterdir() if path.suffix in (".yml", ".log"))
