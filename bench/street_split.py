"""Split the street cases by chance: `python bench/street_split.py STREET FOLDER`.

Cases of `diagnose` go to FOLDER/read and FOLDER/unread, one half each, all others to FOLDER/others. `read` is for
design; `unread` is looked at only after the code is done. The seed is fixed, so every session gets the same halves.
Score one with `python STREET/score_street.py FOLDER/read/a`.
"""

import json
import random
import shutil
import sys
from pathlib import Path

SEED = 20261119
SOURCES = ("a", "b", "c", "reported")


def halves(cases: list[dict]) -> dict[str, list[dict]]:
    """Return the cases by the folder they go to."""
    logs = [case for case in cases if any(run["args"][0] == "diagnose" for run in case["runs"])]
    drawn = random.Random(SEED).sample(logs, len(logs))
    middle = len(drawn) // 2
    return {"read": drawn[:middle], "unread": drawn[middle:], "others": [case for case in cases if case not in logs]}


def main() -> None:
    """Write the halves below the given folder."""
    street, target = Path(sys.argv[1]), Path(sys.argv[2])
    cases = [
        {**json.loads(line), "folder": source}
        for source in SOURCES
        for line in (street / source / "index.jsonl").read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    for name, part in halves(cases).items():
        for source in SOURCES:
            folder = target / name / source
            shutil.copytree(street / source, folder, ignore=shutil.ignore_patterns("index.jsonl"), dirs_exist_ok=True)
            lines = [json.dumps(case) for case in part if case["folder"] == source]
            (folder / "index.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            print(f"{name}/{source}: {len(lines)} cases")


main()
