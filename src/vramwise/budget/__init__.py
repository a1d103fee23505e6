"""The one budget for reading: how many bytes, values, rows and levels of a file from elsewhere are taken in.

Every reader of outside content goes through this room (tests/test_architecture.py lists them): `read_file` for bytes,
`unzipped` for gzip, `parse_json` for JSON, `Budget` for data that is read row by row, and `guarded` for libraries that
decode in C and can only be stopped from outside. The numbers are in `limits`, with the cost they were chosen by.
"""

from vramwise.budget.files import read_file, unzipped
from vramwise.budget.json_values import json_memory_bytes, parse_json
from vramwise.budget.rows import Budget

__all__ = ["Budget", "json_memory_bytes", "parse_json", "read_file", "unzipped"]
