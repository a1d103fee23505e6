"""The house rules that a machine can keep: import order, pure rooms, no torch outside training/, trainers' names."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from source_trees import SOURCE, modules, nodes, trees_for_one_file
from vramwise.rules.base import TOPICS
from vramwise.trainers.registry import EMBEDDED, TRAINER_NAMES
from vramwise.trainers.rulebook import all_rules

__all__ = ["trees_for_one_file"]

TESTS = Path(__file__).parent

# What each room may import of ours. Rooms of one storey may not import one another unless it is said here.
BASE = {"types", "timeline", "units", "errors", "limits", "bundled", "whole_files"}
GROUND = BASE | {"documents", "facts", "models", "allocator"}
INSIDE = GROUND | {"ghost", "rules", "trainers", "variants"}
MAY_IMPORT = {
    **{name: set() for name in ("types", "timeline", "errors", "bundled")},
    "units": {"errors"},
    "whole_files": {"errors"},
    "limits": {"errors", "units"},
    "documents": BASE,
    "facts": BASE,
    "models": BASE,
    "allocator": BASE,
    "ghost": GROUND,
    "recordings": BASE | {"allocator"},
    "rules": GROUND | {"variants"},
    "trainers": GROUND | {"rules", "variants"},
    "variants": GROUND | {"ghost"},
    # All reading before a verb works: options, files, versions, data. It opens the Subject.
    "opening": INSIDE,
    # Results are displayed by notebooks: the one door that something inside names, when a notebook asks.
    "verbs": INSIDE | {"opening", "notebook"},
    # What is known about keys, and the search over it and the rules.
    "lookup": INSIDE | {"opening"},
    # A function over a Subject, like training: it is above the others.
    "diagnosis": GROUND | {"recordings", "variants", "trainers", "opening", "verbs", "notebook"},
    # Doors: they ask the verbs; training is the one that starts processes.
    "training": INSIDE | {"opening", "verbs", "recordings", "integrations", "render", "api"},
    "render": INSIDE | {"opening", "verbs", "recordings", "diagnosis", "training", "lookup", "__version__"},
}
# `vramwise.rules` is a room and, called, a verb: there alone it asks the API.
VERBS = {"rules/__init__.py": {"api"}}
INNER = set(MAY_IMPORT)
OUTER = {"render", "cli", "page", "mcp", "notebook", "training", "integrations", "api", "__main__"}
# Rooms that read and write nothing: no files, network, clock, chance or other processes.
PURE = ("documents", "models/families", "allocator", "ghost", "rules", "trainers", "variants")
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


# A child process, started by name: with `training` the only code that imports torch.
RECORDER = "models/recorder"


def records(path: Path) -> bool:
    return path.relative_to(SOURCE).as_posix().startswith(f"{RECORDER}/")


def test_nothing_but_training_and_the_recorder_imports_torch():
    users = [
        str(path.relative_to(SOURCE))
        for path in modules()
        if room(path) != "training" and not records(path) and {name.split(".")[0] for name in imports(path)} & HEAVY
    ]
    assert users == []


def test_nobody_imports_the_recorder():
    """It is started by name, in a process of its own: whoever checks a known model loads nothing of it."""
    live = SOURCE / "training/live/tracing.py"  # its model is loaded here already
    importers = [path for path in modules() if not records(path) and path != live]
    assert [path.name for path in importers if any("models.recorder" in name for name in imports(path))] == []


def test_the_recorder_imports_little_of_ours():
    theirs = [name for path in modules() if records(path) for name in imports(path) if name.startswith("vramwise.")]
    assert [name for name in theirs if not re.match(r"vramwise\.(limits|errors|models\.recorder)\b", name)] == []


def test_the_parent_of_training_imports_no_torch():
    parents = [path for path in modules() if path.parent.name == "parent"]
    assert parents
    assert [path.name for path in parents if {name.split(".")[0] for name in imports(path)} & HEAVY] == []


def test_pure_rooms_touch_no_files_network_or_clock():
    wrong = []
    for path in modules():
        if path.relative_to(SOURCE).as_posix().startswith(tuple(f"{name}/" for name in PURE)):
            used = {name.split(".")[0] for name in imports(path)} & IMPURE_MODULES
            wrong += [f"{path.relative_to(SOURCE)}: {name}" for name in sorted(used | impure_calls(path))]
    assert wrong == []


def impure_calls(path: Path) -> set[str]:
    calls = [node.func for node in nodes(path) if isinstance(node, ast.Call)]
    names = {call.id if isinstance(call, ast.Name) else getattr(call, "attr", "") for call in calls}
    return names & IMPURE_CALLS


# How trainers are named in code; docstrings and comments may cite a library as the source of a fact.
TRAINERS = re.compile(r"axolotl|llama[-_]?factory|(?<![a-z])trl(?![a-z])|hf-trainer|hugging_?face|unsloth")
# Words that others read or wrote, and that name no trainer here: a JSON key, plugins, accounts, hosts and folders.
OTHERS_WORDS = re.compile(
    r"beyond_axolotl|axolotl\.integrations\.|trl-lib/|huggingfacetb/|huggingface\.co|huggingface_hub_cache"
)
ROOMS_OF_TRAINERS = ("training", "integrations", *(f"trainers/{name}" for name in ("axolotl", "huggingface")))
ROOMS_OF_TRAINERS += tuple(f"trainers/{name}" for name in ("llamafactory", "transformers", "trl", "unsloth"))
# Rules whose examples are scripts, which import a trainer.
OF_SCRIPTS = "trainers/scripts/rules.py"
NAMING = {
    "trainers/registry.py": "the list of trainers",
    "trainers/launch.py": "programs that launch lines start",
    "trainers/other_tools.py": "the trainer whose keys describe a plain run of another tool",
    "trainers/scripts/calls.py": "the trainers whose classes scripts call",
    "trainers/scripts/reading.py": "the same",
    "trainers/scripts/chain.py": "the same",
    "trainers/scripts/collected.py": "the same",
    "trainers/scripts/loads.py": "the same",
    "trainers/scripts/training.py": "the same",
    "diagnosis/read/speakers.py": "who speaks in a log that names no trainer but shows the library's loop",
    "cli/main.py": "an example of a command",
    "cli/new.py": "the trainers that `new` can write scripts for",
    "mcp/tools.py": "the same",
    "opening/stacks.py": "packages whose versions are looked up",
    "models/known.py": "the folder of the hub's cache",
    "models/catalogue.py": "the owner of copies on the hub",
    "models/names.py": "the owner and the names of copies on the hub",
}


def code_words(path: Path) -> Iterator[tuple[int, str]]:
    """Names and texts of the code with their lines, without docstrings."""
    documented = {id(node.body[0].value) for node in nodes(path) if has_docstring(node)}
    for node in nodes(path):
        for text in (getattr(node, field, None) for field in ("value", "id", "attr", "module", "name", "arg")):
            if isinstance(text, str) and id(node) not in documented:
                yield getattr(node, "lineno", 0), text.lower()


def has_docstring(node: ast.AST) -> bool:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None


def at_home(path: Path) -> bool:
    name = path.relative_to(SOURCE).as_posix()
    return name == OF_SCRIPTS or name.startswith(tuple(f"{room}/" for room in ROOMS_OF_TRAINERS))


def test_a_trainer_is_named_in_its_room_alone():
    """What differs between trainers is a field of RunSpec, so nobody else needs to know their names.

    The ghost run names whose kernels and losses it imitates; it does not ask for a trainer either (see below).
    """
    found: dict[str, set[int]] = {}
    for path in modules():
        imitates = path.is_relative_to(SOURCE / "ghost")
        for line, text in code_words(path) if not (imitates or at_home(path)) else ():
            if TRAINERS.search(OTHERS_WORDS.sub("", text)):
                found.setdefault(path.relative_to(SOURCE).as_posix(), set()).add(line)
    assert {name: lines for name, lines in found.items() if name not in NAMING} == {}
    assert set(NAMING) == set(found), "a name of the list is no longer needed"


def test_every_trainer_is_known_to_the_test_of_names():
    rooms = {path.parent.name for path in modules() if path.name == "trainer.py"} - {"arguments"}
    assert rooms == {name.rpartition("/")[2] for name in ROOMS_OF_TRAINERS} - {"training", "integrations"}
    assert [name for name in TRAINER_NAMES if name != EMBEDDED and not TRAINERS.fullmatch(name)] == []


def test_nobody_asks_for_a_trainer_by_its_name():
    """`transformers` is a library too: of its name only comparisons are told from the trainer's."""
    wrong = []
    for path in modules():
        for node in nodes(path) if not at_home(path) else ():
            if isinstance(node, ast.Compare):
                sides = {side.value for side in (node.left, *node.comparators) if isinstance(side, ast.Constant)}
                wrong += [f"{path.relative_to(SOURCE)}:{node.lineno}"] if sides & set(TRAINER_NAMES) else []
    assert wrong == []


# Ids of rules that may be written outside rule files, by file.
RULE_IDS_ELSEWHERE = {
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
        if "rules" not in path.relative_to(SOURCE).with_suffix("").parts:
            written = {node.value for node in nodes(path) if isinstance(node, ast.Constant)} & ids
            if written:
                found[path.relative_to(SOURCE).as_posix()] = written
    assert found == {name: allowed for name, (_, allowed) in RULE_IDS_ELSEWHERE.items()}


def test_a_module_in_rules_is_its_rules_topic():
    """A module there is named after a topic, or after that and a subject (`config_keys`); no rule repeats it."""
    inside = [path for path in modules() if path.parent.name == "rules" and path.stem.partition("_")[0] in TOPICS]
    assert [
        f"{path.relative_to(SOURCE)}:{node.value.lineno}"
        for path in inside
        for node in nodes(path)
        if isinstance(node, ast.keyword) and node.arg == "topic"
    ] == []
    assert {rule.topic for rule in all_rules()} == set(TOPICS)


def test_rules_for_every_trainer_read_fields_alone():
    """What was written is the trainer's business: a rule names a field, and a change mends it."""
    wrong = []
    for path in modules():
        if room(path) != "rules" or path.stem not in TOPICS:
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


# Calls that take in a file or a text from elsewhere, and the modules that may make them. All others go through limits/.
READING_CALLS = {
    *("json.load", "json.loads", "yaml.load", "yaml.safe_load", "tomllib.load", "tomllib.loads", "csv.reader"),
    *("csv.DictReader", "pickle.load", "pickle.loads", "gzip.open", "zlib.decompress", "zlib.decompressobj"),
    *("open", "io.open", "os.fdopen", ".open", ".read_text", ".read_bytes", "_NoNames"),
}
OWN = "our own files, or what we wrote a moment ago"
READERS = {
    "limits/child.py": "the kernel's word on our memory",
    "limits/reading.py": "the budget",
    "limits/json_values.py": "the budget",
    "limits/meter.py": "the kernel's word on our memory",
    "opening/data/rows.py": "charges a Budget line by line",
    "opening/data/tokens_child.py": "what its parent gives, in a confined process",
    "diagnosis/reading.py": "a log is streamed in pieces of a mebibyte",
    "bundled.py": OWN,
    "models/hub_request.py": "an answer, read up to a bound",
    "models/catalogue.py": OWN,
    "models/compiled.py": OWN,
    "models/templates.py": OWN,
    "opening/files.py": "configs up to CONFIG_BYTES",
    "whole_files.py": "what is written, compared with what is there",
    "page/answers.py": "what the page itself asks",
    "page/failures.py": OWN,
    "page/folder.py": OWN,
    "page/views.py": OWN,
    "mcp/arguments.py": OWN,
    "mcp/worker.py": "calls that the server itself wrote",
    "mcp/worker_process.py": "answers of our own worker process",
    "lookup/search.py": OWN,
    "opening/project.py": "up to a million characters of TOML, and keys of 100 parts",
    "recordings/unpickle.py": "a pickle whose memory was counted",
    "models/recorder/sandbox.py": "the kernel's words on the process itself, and one byte of each other, to see that none can be read",
    "models/recorder/worker.py": "what its parent gives, in a confined process",
    "cli/serve.py": "opens a browser at its own address",
    "training/guard/memory_log.py": "charges a Budget line by line",
    "training/checkpoints.py": "digests, in pieces",
    "training/live/model.py": "the config of a model that this process has loaded",
    "training/live/tracing.py": "the config of a model that this process has loaded",
    "training/parent/engine_script.py": "the one line in which a Python says where its packages are",
    "training/parent/extras.py": OWN,
    "training/parent/foreign.py": "the header of a checkpoint, up to a bound",
    "training/parent/folder_lock.py": OWN,
    "training/parent/supervise.py": OWN,
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
    """A new reader of files goes through limits/, or is listed here with the bound that it has."""
    readers = {path.relative_to(SOURCE).as_posix() for path in modules() if reading_calls(path)}
    assert readers == set(READERS)


# What happens because of a version is a field of the run, decided in resolve. These look at versions all the same.
TORCH = "torch and the card decide the allocator's rules, workspaces and attention kernels: facts about the target"
VERSIONS_LOOKED_AT = {
    "ghost/loops/sft.py": TORCH,
    "models/compiled.py": TORCH,
    "variants/prediction.py": TORCH,
    "variants/capacity.py": TORCH,
    "variants/assumptions.py": "the answer names the versions it is for",
    "variants/simulate.py": TORCH,
    "variants/speed/timed_step.py": TORCH,
    "variants/features.py": "recorded runs are compared by the trainer's release; no byte depends on it",
    "rules/allocator.py": "allocator-not-expandable is about the variable that the target's torch reads",
    "rules/config.py": "card-without-kernels is about the target's torch, unknown-version about all versions",
    "rules/judge.py": "what a trainer's rules say is uncertain with an unknown release",
    "variants/versions.py": "what is unknown of a release has a margin; no byte depends on it",
    "rules/attention.py": "attention-torch-too-old is about the target's torch",
    "rules/precision.py": "fp8-torchao-nan is about the target's torch and torchao",
    "rules/optimizer.py": "optimizer-torch-too-old is about the target's torch",
}


def looks_at_versions(path: Path) -> bool:
    for node in nodes(path):
        if isinstance(node, ast.Attribute):
            if node.attr in ("stack", "releases"):
                return True
            if node.attr == "torch" and ast.unparse(node.value).rpartition(".")[2] == "target":
                return True
    return False


def test_versions_end_at_resolve():
    """A version that decides something is read by a trainer's resolve (`trainers/installed.py`), or listed here."""
    rooms = ("ghost", "variants", "rules", "models")
    found = {
        path.relative_to(SOURCE).as_posix() for path in modules() if room(path) in rooms and looks_at_versions(path)
    }
    assert found == set(VERSIONS_LOOKED_AT)


def test_no_test_imports_another_test_module():
    """What tests share is in tests/helpers, or in a module beside them that holds no tests."""
    found = [
        f"{path.relative_to(TESTS)} imports {name}"
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in _imported(node)
        if name.rpartition(".")[2].startswith("test_")
    ]
    assert found == []


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def test_the_names_of_helpers_are_their_own():
    """Tests find helpers, scripts and readers of measured runs by name, wherever these are."""
    root = TESTS.parent
    folders = (TESTS / "helpers", TESTS / "measured", root / "scripts", root / "bench", root / "bench" / "card")
    names = [path.name for folder in folders for path in folder.glob("*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
