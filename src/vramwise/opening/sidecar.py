"""Reads the JSON and YAML files that a config names, and the modules that a script imports from beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from vramwise.documents.document import parse_value
from vramwise.errors import ConfigError, VramwiseError
from vramwise.limits import ceilings, parse_json, read_file
from vramwise.limits.json_values import OverBudget, TooDeep
from vramwise.units import mib

# Options of `accelerate launch` that name a file.
ACCELERATE_FILES = ("config_file", "deepspeed_config_file")


def named_by_accelerate(contents: Iterable[Mapping[str, Any] | None]) -> list[str]:
    """Return the DeepSpeed files that accelerate's config files name."""
    blocks = [content.get("deepspeed_config") for content in contents if content is not None]
    names = [block.get(ACCELERATE_FILES[1]) for block in blocks if isinstance(block, Mapping)]
    return [name for name in names if isinstance(name, str) and name]


def texts_of(accelerate: Mapping[str, str]) -> dict[str, str]:
    """Return the text of accelerate's config file by its name, if a shell script writes the file itself."""
    return {accelerate["config_file"]: accelerate["text"]} if "text" in accelerate else {}


def read_side_files(
    names: Sequence[str], path: str, texts: Mapping[str, str] | None = None
) -> dict[str, Mapping[str, Any] | None]:
    """Return the content of each file, searched in the current folder and beside the config; None if missing.

    `texts`: files that exist only as texts, by name. Raises ConfigError for a file that exceeds the limits of a
    config, because its effect is then unknown.
    """
    return {name: _of_text(texts[name]) if texts and name in texts else _read(name, path) for name in names}


def _of_text(text: str) -> Mapping[str, Any] | None:
    content = _parsed(text.encode(), is_yaml=True)
    return content if isinstance(content, dict) else None


def read_module(name: str, path: str) -> tuple[bytes, bool] | None:
    """Return the source of a module beside a script, or of the package that the script is in; None if there is none.

    The second value says whether it is a package's `__init__.py`.
    """
    first, inside = name.partition(".")[0], name.replace(".", "/")
    folder = Path(path).resolve().parent
    for root in (folder, *[parent.parent for parent in (folder, *folder.parents) if parent.name == first]):
        for file in (root / f"{inside}.py", root / inside / "__init__.py"):
            try:
                if file.is_file():
                    return read_file(file, ceilings.CONFIG_BYTES, "a module"), file.stem == "__init__"
            except (OSError, ValueError, VramwiseError):  # a module that cannot be read counts as a library's
                return None
    return None


def _read(name: str, path: str) -> Mapping[str, Any] | None:
    for folder in (Path(), Path(path).parent):
        content = _read_mapping(folder / name)
        if content is not None:
            return content
    return None


def _read_mapping(path: Path) -> Mapping[str, Any] | None:
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > ceilings.CONFIG_BYTES:
            raise ConfigError(
                f"{path}, which the config names, is larger than {mib(ceilings.CONFIG_BYTES)}: too large for a config"
            )
        content = _parsed(read_file(path, ceilings.CONFIG_BYTES, "a config"), path.suffix in (".yaml", ".yml"))
    except TooDeep as error:
        raise ConfigError(f"{path}, which the config names, cannot be read: {error}") from error
    except (OSError, ValueError):
        return None
    except OverBudget as error:
        raise ConfigError(f"{path}, which the config names, cannot be read: {error.message}") from error
    except ConfigError:
        raise
    except VramwiseError:  # unreadable files count as missing
        return None
    return content if isinstance(content, dict) else None


@lru_cache(maxsize=16)
def _parsed(data: bytes, is_yaml: bool) -> Any:
    """Return the parsed content of a file, or None if it is invalid.

    Cached, because a search asks for every variant.
    """
    try:
        return parse_value(data.decode("utf-8")) if is_yaml else parse_json(data.decode("utf-8"))
    except (OverBudget, TooDeep):
        raise
    except (ValueError, VramwiseError):
        return None
