"""The house rules that a machine can keep: import order, pure rooms, no torch outside training/, trainers' names."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

from source_trees import SOURCE, modules, nodes, trees_for_one_file
from vramwise.trainers.rulebook import all_rules

__all__ = ["trees_for_one_file"]

# What each room may import of ours. Rooms of one storey may not import one another unless it is said here.
BASE = {"types", "timeline", "units", "errors", "growth", "collecting", "displayed", "budget"}
GROUND = BASE | {"documents", "facts", "families", "allocator"}
INSIDE = GROUND | {"ghost", "rules", "trainers", "variants"}
OPENING = {"options", "sidecar", "project", "files", "stacks", "targets"}
VERBS_OVER_SUBJECTS = {"subject", "verbs"}
MAY_IMPORT = {
    **{name: set() for name in ("types", "timeline", "errors", "growth", "collecting")},
    "units": {"errors"},
    "budget": {"errors", "units"},
    "displayed": {"notebook"},  # the one door that something inside names, when a notebook asks
    "documents": BASE,
    "facts": BASE | {"families", "files"},  # the hub's answers are kept
    "families": BASE,
    "allocator": BASE,
    "ghost": GROUND,
    "recordings": BASE | {"allocator"},
    "rules": GROUND | {"variants"},
    "trainers": GROUND | {"rules", "variants"},
    "variants": GROUND | {"ghost"},
    # What is read before a Subject is opened: files, options, versions, the machine.
    "options": set(),
    "sidecar": BASE | {"documents"},
    "project": BASE,
    "files": BASE | {"documents"},
    "stacks": BASE | {"facts"},
    "targets": BASE | {"facts", "allocator"},
    # The Subject, and the verbs over it, each above the one it asks.
    # Lengths of samples, from data files.
    "dataset": BASE | {"trainers", "variants"},
    "subject": INSIDE | OPENING | {"dataset"},
    # `new` asks for the format of data before there is a Subject.
    "verbs": INSIDE | OPENING | {"subject", "dataset"},
    # What is known about keys, and the search over it and the rules.
    "keys": INSIDE | {"stacks"},
    "practice": INSIDE | {"keys"},
    # A function over a Subject, like training: it stands above the others.
    "diagnosis": GROUND | {"recordings", "variants", "trainers", "subject", "options", "verbs"},
    # Doors: they ask the verbs; training is the one that starts processes.
    "training": INSIDE | OPENING | VERBS_OVER_SUBJECTS | {"recordings", "integrations", "render", "api"},
    "render": INSIDE
    | OPENING
    | VERBS_OVER_SUBJECTS
    | {"recordings", "diagnosis", "training", "keys", "practice", "__version__"},
}
# `vramwise.rules` is a room and, called, a verb: there alone it asks the API.
VERBS = {"rules/__init__.py": {"api"}}
INNER = set(MAY_IMPORT)
OUTER = {"render", "cli", "page", "mcp", "notebook", "training", "integrations", "__main__"}
# Rooms that read and write nothing: no files, network, clock, chance or other processes.
PURE = ("documents", "families", "allocator", "ghost", "rules", "trainers", "variants")
IMPURE_MODULES = {
    "os",
    "socket",
    "subprocess",
    "urllib",
    "requests",
    "time",
    "random",
    "tempfile",
    "shutil",
}
IMPURE_CALLS = {
    "now",
    "today",
    "utcnow",
    "open",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "mkdir",
    "unlink",
    "glob",
    "iterdir",
    "stat",
}
HEAVY = {"torch", "transformers", "peft", "accelerate", "datasets"}


@cache
def imports(path: Path) -> set[str]:
    names = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def our_rooms(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("vramwise.")}


def test_every_room_is_in_the_order():
    rooms = {room(path) for path in modules()}
    assert (
        rooms - set(MAY_IMPORT) - {"cli", "mcp", "page", "notebook", "integrations", "api", "__init__", "__main__"}
        == set()
    )


def test_rooms_import_in_one_direction():
    wrong = []
    for path in modules():
        allowed = MAY_IMPORT.get(room(path))
        if allowed is not None:
            own = allowed | {room(path)} | VERBS.get(str(path.relative_to(SOURCE)), set())
            wrong += [f"{path.relative_to(SOURCE)} imports {name}" for name in our_rooms(path) - own]
    assert wrong == []


def test_nothing_but_the_outer_rooms_renders():
    inner = [path for path in modules() if room(path) not in OUTER]
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}" for path in inner for name in our_rooms(path) & {"render", "cli"}
    ]
    assert wrong == []


def test_no_room_but_training_imports_torch():
    users = [
        str(path.relative_to(SOURCE))
        for path in modules()
        if room(path) != "training" and {name.split(".")[0] for name in imports(path)} & HEAVY
    ]
    assert users == []


def test_the_parent_of_training_imports_no_torch():
    parents = [path for path in modules() if path.parent.name == "parent"]
    assert parents
    assert [path.name for path in parents if {name.split(".")[0] for name in imports(path)} & HEAVY] == []


def test_pure_rooms_touch_no_files_network_or_clock():
    wrong = []
    for path in modules():
        if room(path) in PURE:
            used = {name.split(".")[0] for name in imports(path)} & IMPURE_MODULES
            wrong += [f"{path.relative_to(SOURCE)}: {name}" for name in sorted(used | impure_calls(path))]
    assert wrong == []


def impure_calls(path: Path) -> set[str]:
    calls = [node.func for node in nodes(path) if isinstance(node, ast.Call)]
    names = {call.id if isinstance(call, ast.Name) else getattr(call, "attr", "") for call in calls}
    return names & IMPURE_CALLS


# Where a trainer may be named all the same: words that others read (a JSON key, plugin paths inside examples of
# configs), the list of trainers, and the engine that runs another trainer's files.
CONTRACT_WORDS = ("beyond_axolotl", "axolotl.integrations.")
NAMING = {"trainers/registry.py", "trainers/transformers/trainer.py"}


def names_a_trainer(line: str) -> bool:
    for word in CONTRACT_WORDS:
        line = line.replace(word, "")
    return "axolotl" in line


def test_a_trainer_is_named_in_its_room_alone():
    """What differs between trainers is a field of RunSpec, so nobody else needs to know their names."""
    wrong = []
    for path in modules():
        at_home = path.relative_to(SOURCE).parts[:2] == ("trainers", "axolotl") or room(path) in (
            "training",
            "integrations",
        )
        if not at_home and str(path.relative_to(SOURCE)) not in NAMING:
            lines = path.read_text(encoding="utf-8").lower().splitlines()
            wrong += [
                f"{path.relative_to(SOURCE)}:{number}" for number, line in enumerate(lines, 1) if names_a_trainer(line)
            ]
    assert wrong == []


# Ids of rules that may be written outside rule files, by file.
_SYMPTOM = "names of symptoms and causes, which are in the JSON of `diagnose`"
RULE_IDS_ELSEWHERE = {
    "diagnosis/advice.py": (_SYMPTOM, {"bf16-unsupported", "optimizer-unhandled"}),
    "diagnosis/causes/known.py": (_SYMPTOM, {"bf16-unsupported", "optimizer-unhandled", "does-not-fit"}),
    "diagnosis/read/dtype_texts.py": (_SYMPTOM, {"bf16-unsupported", "optimizer-unhandled"}),
    "diagnosis/read/oom_texts.py": (_SYMPTOM, {"does-not-fit"}),
    "training/guard/watch.py": (
        "the guard runs inside the training process, which loads no rules",
        {"allocator-not-expandable", "eval-batch-differs", "unpadded-sequences"},
    ),
}


def test_rule_ids_are_written_in_rule_files_alone():
    """What others need to know of a rule is an attribute of it: `figured`, `explains`, `misfit` …"""
    ids = {rule.id for rule in all_rules()}
    found: dict[str, set[str]] = {}
    for path in modules():
        if "rules" not in path.relative_to(SOURCE).parts[:-1]:
            written = {node.value for node in nodes(path) if isinstance(node, ast.Constant)} & ids
            if written:
                found[path.relative_to(SOURCE).as_posix()] = written
    assert found == {name: allowed for name, (_, allowed) in RULE_IDS_ELSEWHERE.items()}


def test_rules_for_every_trainer_read_fields_alone():
    """What was written is the trainer's business: a rule names a field, and a change mends it."""
    wrong = []
    for path in modules():
        if room(path) != "rules" or path.parent.name == "rules":
            continue
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and node.attr == "config":
                wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} reads the config")
            elif isinstance(node, ast.keyword) and node.arg in ("key", "fix"):
                wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno} names a trainer's {node.arg}")
    assert wrong == []


def test_check_imports_nothing_heavy():
    config = SOURCE.parent.parent / "examples" / "qlora.yml"
    command = [sys.executable, "-X", "importtime", "-m", "vramwise", "check", str(config), "--gpu", "rtx-4090"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    names = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "yaml" in names
    assert not names & {"torch", "transformers", "huggingface_hub", "numpy", "rich", "mcp", "pydantic"}


def test_there_is_one_way_out():
    """What commands write passes through cli/writing.py, which neutralises it; colours come from render/outward.py.

    `train` still hands click.echo on to the training rooms.
    """
    writing = {"echo", "secho", "print", "style", "print_exc", "write"}
    exempt = {"writing.py", "outward.py", "train.py"}
    wrong = []
    for path in modules():
        if room(path) not in ("cli", "render") or path.name in exempt:
            continue
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and node.attr in writing:
                wrong.append(f"{path.name}:{node.lineno} {node.attr}")
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                wrong.append(f"{path.name}:{node.lineno} print")
        wrong += [f"{path.name} imports {name}" for name in imports(path) if name in ("click.style", "click.echo")]
    assert wrong == []


# Calls that take in a file or a text from elsewhere, and the modules that may make them. All others go through budget/.
READING_CALLS = {
    *("json.load", "json.loads", "yaml.load", "yaml.safe_load", "tomllib.load", "tomllib.loads", "csv.reader"),
    *("csv.DictReader", "pickle.load", "pickle.loads", "gzip.open", "zlib.decompress", "zlib.decompressobj"),
    *("open", "io.open", "os.fdopen", ".open", ".read_text", ".read_bytes", "_NoNames"),
}
OWN = "our own files, or what we wrote a moment ago"
READERS = {
    "budget/child.py": "the kernel's word on our memory",
    "budget/files.py": "the budget",
    "budget/json_values.py": "the budget",
    "dataset/csv_rows.py": "charges a Budget line by line",
    "dataset/rows.py": "charges a Budget line by line",
    "dataset/tokens_child.py": "what its parent gives, in a confined process",
    "diagnosis/reading.py": "a log is streamed in pieces of a mebibyte",
    "facts/bundled.py": OWN,
    "facts/hub_request.py": "an answer, read up to a bound",
    "files.py": "configs up to CONFIG_BYTES; what is to be written",
    "mcp/clients.py": "a list of servers of the user's own, read with read_file",
    "page/answers.py": "what the page itself asks",
    "page/failures.py": OWN,
    "page/views.py": OWN,
    "mcp/arguments.py": OWN,
    "mcp/worker.py": "calls that the server itself wrote",
    "mcp/worker_process.py": "answers of our own worker process",
    "practice/entries.py": OWN,
    "project.py": "up to a million characters of TOML, and keys of 100 parts",
    "recordings/unpickle.py": "a pickle whose memory was counted",
    "training/guard/memory_log.py": "charges a Budget line by line",
    "training/marker.py": "digests, in pieces",
    "training/parent/extras.py": OWN,
    "training/parent/foreign.py": "the header of a checkpoint, up to a bound",
    "training/parent/folder_lock.py": OWN,
    "training/parent/journal.py": OWN,
    "training/worker/longest.py": OWN,
    "training/worker/rows.py": "train reads all of its data",
}


def reading_calls(path: Path) -> set[str]:
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            found |= {called, f".{called.rpartition('.')[2]}"} & READING_CALLS
    return found


def test_whoever_reads_is_known_and_bounded():
    """A new reader of files goes through budget/, or is listed here with the bound that it has."""
    readers = {path.relative_to(SOURCE).as_posix() for path in modules() if reading_calls(path)}
    assert readers == set(READERS)
