"""The process that runs a model's tokenizer: texts from standard input as a JSON list, then one count a line.

Started by `tokens` and bound by `budget.child`: the file comes from elsewhere and the package decodes it in Rust.
"""

from __future__ import annotations

import json
import sys

from vramwise.budget.child import confine


def main(path: str) -> None:
    """Write how many tokens each text has; nothing where the tokenizer cannot be read."""
    confine()
    from tokenizers import Tokenizer

    texts = json.load(sys.stdin.buffer)
    tokenizer = Tokenizer.from_file(path)
    for found in tokenizer.encode_batch(texts, add_special_tokens=False):
        sys.stdout.write(f"{len(found.ids)}\n")
    sys.stdout.flush()
