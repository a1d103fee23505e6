"""The process that runs a model's tokenizer: texts from standard input as a JSON list, then one count per line.

Started by `tokens` and limited by `budget.child`: the file is untrusted and the package decodes it in Rust.
"""

from __future__ import annotations

import json
import sys

from vramwise.limits.child import confine


def main(path: str) -> None:
    """Write the number of tokens of each text; nothing if the tokenizer cannot be read."""
    confine()
    from tokenizers import Tokenizer

    texts = json.load(sys.stdin.buffer)
    tokenizer = Tokenizer.from_file(path)
    for found in tokenizer.encode_batch(texts, add_special_tokens=False):
        sys.stdout.write(f"{len(found.ids)}\n")
    sys.stdout.flush()
