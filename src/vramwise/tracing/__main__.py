"""`python -m vramwise.tracing CONFIG.json`: writes the trace to standard output, to be kept and used as a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from vramwise.budget import limits, parse_json, read_file
from vramwise.tracing.worker import trace


def main() -> int:
    """Trace one config."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m vramwise.tracing CONFIG.json > TRACE.json\n")
        return 2
    config = parse_json(read_file(Path(sys.argv[1]), limits.MODEL_BYTES, "a config.json"))
    found = trace(config) if isinstance(config, dict) else {"failed": "not a JSON object"}
    if "failed" in found:
        sys.stderr.write(f"error: {found['failed']}\n")
        return 2
    json.dump(found, sys.stdout, separators=(",", ":"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
