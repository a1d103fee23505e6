"""LLaMA-Factory's prompt templates that are made of texts alone → training/embedded/templates.json.

    PYTHON_WITH_LLAMAFACTORY scripts/generate_templates.py > src/vramwise/training/embedded/templates.json

Left out: templates with images or sound, and those with code of their own.
`system_in_user`: the system's text is part of the first question; `thought`: words around thoughts, which an answer
without any gets empty.
A piece is a text, or {"token": ...} for one token by its name, or {"special": "bos_token" | "eos_token"}.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

_SPECIAL = ("bos_token", "eos_token")


def pieces(formatter: Any) -> list[Any]:
    """The slots of a formatter as JSON."""
    found = [{"special": next(iter(slot))} if isinstance(slot, set) else slot for slot in formatter.slots]
    # of special tokens LLaMA-Factory knows two by name, and passes over any other
    return [one for one in found if not isinstance(one, dict) or one.get("special", "eos_token") in _SPECIAL]


def main() -> None:
    """Print the table."""
    from llamafactory.data.formatter import EmptyFormatter, StringFormatter
    from llamafactory.data.mm_plugin import BasePlugin
    from llamafactory.data.template import TEMPLATES, Llama2Template, ReasoningTemplate, Template

    table: dict[str, Any] = {}
    for name, one in sorted(TEMPLATES.items()):
        texts = (one.format_user, one.format_assistant, one.format_system)
        plain = type(one) in (Template, Llama2Template, ReasoningTemplate) and type(one.mm_plugin) is BasePlugin
        if not plain or any(type(text) is not StringFormatter for text in texts):
            continue
        assert type(one.format_prefix) is EmptyFormatter
        table[name] = {
            "prefix": pieces(one.format_prefix),
            "system": pieces(one.format_system),
            "user": pieces(one.format_user),
            "assistant": pieces(one.format_assistant),
            "default_system": one.default_system,
            "stop_words": one.stop_words,
            "efficient_eos": one.efficient_eos,
            "replace_eos": one.replace_eos,
            "system_in_user": type(one) is Llama2Template,
            "thought": list(one.thought_words) if type(one) is ReasoningTemplate else None,
        }
    source = f"LLaMA-Factory {version('llamafactory')}: data/template.py"
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in table.items())
    print(f'{{"source": {json.dumps(source)}, "templates": {{\n{lines}\n}}}}')


if __name__ == "__main__":
    main()
