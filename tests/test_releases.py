"""Other people's releases: what is known of them, and how a new one is taken from a registry on the loopback."""

import hashlib
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from packaging.version import Version

import registry
import releases
import stacks
from histories import TRAINERS, Known, facts_at, history_of
from known_packages import PACKAGES, constants
from vramwise.trainers import arguments, llamafactory, trl, unsloth
from vramwise.trainers.releases import installs, known_versions, spans, versioned_facts

FOLDERS = {"arguments": arguments, "trl": trl, "llamafactory": llamafactory, "unsloth": unsloth}
TRL = next(package for package in PACKAGES if package.name == "trl")


@pytest.mark.parametrize(
    ("beside", "path", "first", "last", "gone"),
    [
        (trl, ("sft", "max_seq_length"), "0.9.2", "0.19.1", "0.20.0"),
        (trl, ("constructors", "SFTTrainer", "max_seq_length"), "0.4.2", "0.12.2", "0.13.0"),
        (trl, ("constructors", "DPOTrainer", "beta"), "0.5.0", "0.12.2", "0.13.0"),
        (trl, ("sft", "router_aux_loss_coef"), "1.7.0", "", ""),
        (arguments, ("keys", "evaluation_strategy"), "4.31.0", "4.50.3", "4.51.0"),
        (arguments, ("keys", "eval_strategy"), "4.41.0", "", ""),
        (arguments, ("keys", "warmup_ratio"), "4.31.0", "5.14.1", "5.15.0"),
        (arguments, ("keys", "activation_checkpointing"), "5.23.0", "", ""),
        (arguments, ("constructors", "Trainer", "tokenizer"), "4.31.0", "4.57.6", "5.0.0"),
        (llamafactory, ("keys", "cutoff_len"), "0.6.0", "", ""),
    ],
)
def test_a_key_has_the_releases_that_its_source_says(beside, path, first, last, gone):
    found = spans(beside.__file__, *path)
    last = last or known_versions(beside.__file__)[-1]  # still there
    assert (found[0].first, found[-1].last, found[-1].gone) == (first, last, gone)


def test_what_no_release_has_has_no_span():
    assert spans(trl.__file__, "sft", "invented") == ()
    assert spans(trl.__file__, "invented", "inner") == ()
    assert spans(trl.__file__, "sft", "max_length", "inner") == ()


def test_a_value_counts_from_the_release_that_takes_it():
    (sampling,) = [
        one for one in spans(arguments.__file__, "keys", "train_sampling_strategy") if "batch_" in one.value[0]
    ]
    assert (sampling.first, sampling.gone) == ("5.17.0", "")


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_release_is_read_as_it_is_written(folder):
    beside, known = FOLDERS[folder].__file__, Known(TRAINERS / folder / "schema")
    assert known_versions(beside) == tuple(sorted(known.releases, key=Version))
    for version in known_versions(beside)[:: max(1, len(known.facts) // 12)]:
        assert versioned_facts(version, beside) == known.facts[version]
    assert {version: one["with"] for version, one in known.releases.items()} == installs(beside)


def test_a_release_is_read_with_what_it_came_out_with():
    with_it = installs(trl.__file__)
    assert with_it["0.12.2"]["transformers"] == "4.46.3"
    assert with_it["0.7.4"]["transformers"] == "4.35.0"
    newest = known_versions(trl.__file__)[-1]
    assert with_it[newest]["transformers"] == known_versions(arguments.__file__)[-1]


@pytest.mark.parametrize(
    "facts",
    [
        {"1.0": {"a": {"x": 1}}, "1.1": {"a": {"x": True}}, "1.2": {"a": {"y": [1]}}},
        {"1.0": {"a": {"x": 1}, "b": [2]}, "1.1": {"b": [2]}, "1.2": {"a": {"x": 1}, "b": [3]}},
        {"1.0": {"a": {}}, "1.1": {"a": {"x": 1}}, "1.2": {"a": [1]}},
    ],
)
def test_facts_come_back_from_their_history(facts):
    order = {version: place for place, version in enumerate(facts)}
    history = history_of(facts)
    for version, held in facts.items():
        assert json.dumps(facts_at(history, order[version], order), sort_keys=True) == json.dumps(held, sort_keys=True)


CONFIG = """
from dataclasses import dataclass, field
@dataclass
class SFTConfig(TrainingArguments):
    packing: bool = field(default=False)
    max_length: int | None = field(default={length})
{more}
"""
TRAINER = """
class SFTTrainer:
    def __init__(self, model, args: SFTConfig | None = None, packing: bool = {packing}):
        pass
"""
LAUNCH = "parser.add_argument('--num_processes', type=int)\nparser.add_argument('--cpu', action='store_true')\n"


class Index:
    """A registry on the loopback: wheels that are made here, listed as HTML or JSON."""

    def __init__(self, folder):
        self.folder, self.files, self.listed = folder, {}, "text/html"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.strip("/").rpartition("/")[2]
                body = outer.files[name][0] if name in outer.files else outer.page(name).encode()
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "application/zip" if name in outer.files else outer.listed)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=lambda: self.server.serve_forever(0.01), daemon=True).start()

    def page(self, package):
        of = {name: file for name, file in self.files.items() if name.split("-")[0] == package.replace("-", "_")}
        if "json" in self.listed:
            rows = [
                {"filename": name, "url": f"/{name}", "hashes": {"sha256": digest}, "upload-time": f"{day}T10:00:00Z"}
                for name, (_, digest, day) in of.items()
            ]
            return json.dumps({"files": rows}) if of else ""
        rows = [
            f'<a href="/{name}#sha256={digest}" data-upload-time="{day}T10:00:00Z" data-requires-python="&gt;=3.8">{name}</a>'
            for name, (_, digest, day) in of.items()
        ]
        return f"<html>{' '.join(rows)}</html>" if rows else ""

    def wheel(self, package, version, sources, day, requires=()):
        """Publish a release."""
        path = self.folder / f"{package}-{version}-py3-none-any.whl"
        needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
        with zipfile.ZipFile(path, "w") as packed:
            for name, text in sources.items():
                packed.writestr(name, text)
            info = f"{package}-{version}.dist-info"
            packed.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n{needs}")
            packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            packed.writestr(f"{info}/RECORD", "")
        data = path.read_bytes()
        self.files[path.name] = (data, hashlib.sha256(data).hexdigest(), day)
        return path

    def trl(self, version, day, *, length=1024, packing=False, more=""):
        """Publish a release of TRL."""
        sources = {
            "trl/trainer/sft_config.py": CONFIG.format(length=length, more=more),
            "trl/trainer/sft_trainer.py": TRAINER.format(packing=packing),
        }
        return self.wheel("trl", version, sources, day, ["transformers>=5"])


@pytest.fixture
def index(tmp_path, monkeypatch):
    registry.files.cache_clear()
    monkeypatch.setattr(stacks, "by_pip", lambda *_: {})
    monkeypatch.setattr(releases, "by_pip", lambda *_: {})
    folder = tmp_path / "published"
    folder.mkdir()
    found = Index(folder)
    found.wheel("accelerate", "1.14.0", {"accelerate/commands/launch.py": LAUNCH}, "2026-01-01")
    for version, day in (("4.57.6", "2025-12-01"), ("5.21.0", "2026-02-01"), ("5.22.0", "2026-11-01")):
        found.wheel("transformers", version, {}, day)
    found.trl("1.15.0", "2026-03-01")
    found.trl("1.16.0", "2026-04-01")
    yield found
    found.server.shutdown()
    found.server.server_close()
    registry.files.cache_clear()


@pytest.fixture
def schema(tmp_path):
    """A folder as below trainers/, with a table of keys that no resolver reads."""
    table = {
        "parts": {"trl": ["trl"]},
        "trl": {"named": {"z": {"effect": "said", "why": "x"}}, "harmless": {"w": ["log_*"]}},
    }
    text = json.dumps(table, indent=2)
    (tmp_path / "trainers/trl/schema").mkdir(parents=True)
    (tmp_path / "trainers/unread.json").write_text(text + "\n")
    return tmp_path / "trainers/trl/schema"


def update(index, schema, tmp_path, *given):
    fetched = tmp_path / "fetched"
    fetched.mkdir(exist_ok=True)
    registry.files.cache_clear()
    return "\n".join(releases.update(TRL, releases.Work([index.url], fetched, given), schema))


@pytest.mark.parametrize("listed", ["text/html", "application/vnd.pypi.simple.v1+json"])
def test_a_new_release_is_taken_with_one_command(index, schema, tmp_path, listed):
    index.listed = listed
    update(index, schema, tmp_path)
    before = (schema / "history.json").read_text().splitlines()
    index.trl(
        "1.17.0", "2026-05-01", length=2048, packing=True, more="    invented: int = 4\n    log_more: bool = False\n"
    )
    index.trl("1.18.0rc1", "2026-05-02", length=1)
    said = update(index, schema, tmp_path)
    known = Known(schema)
    assert list(known.releases) == ["1.15.0", "1.16.0", "1.17.0"]
    with_it = {version: known.releases[version]["with"]["transformers"] for version in known.releases}
    assert with_it == {"1.15.0": "5.21.0", "1.16.0": "5.22.0", "1.17.0": "5.22.0"}  # of its day, and of today
    assert known.releases["1.17.0"]["released"] == "2026-05-01"
    assert known.facts["1.17.0"]["sft"]["invented"] == ["int", 4]
    assert known.facts["1.16.0"]["sft"] == {"packing": ["bool", False], "max_length": ["int?", 1024]}
    for line in (
        "## TRL 1.17.0, after 1.16.0",
        "- default of `sft.max_length`: `1024` before, `2048` now",
        "- default of `constructors.SFTTrainer.packing`: `False` before, `True` now",
        "- new: `sft.invented`, int, default `4`",
        "Without a meaning for memory (trl meanings): `invented`, `log_more`",
        "- trl/trainer/sft_config.py: 4",
        "Not counted until a person sorts them (unread.json): `invented`",
    ):
        assert line in said, said
    entry = json.loads((schema.parents[1] / "unread.json").read_text())["trl"]["named"]["invented"]
    assert entry == {"effect": "said", "why": "new in TRL 1.17.0: what it does is not known yet"}
    after = (schema / "history.json").read_text().splitlines()
    assert len(set(after) - set(before)) <= 6  # only what changed is written
    assert update(index, schema, tmp_path) == ""


def test_one_wheel_drops_no_release(index, schema, tmp_path):
    update(index, schema, tmp_path)
    wheel = index.trl("1.17.0", "2026-05-01")
    update(index, schema, tmp_path, wheel)
    assert list(Known(schema).releases) == ["1.15.0", "1.16.0", "1.17.0"]
    again = (schema / "history.json").read_text()
    update(index, schema, tmp_path, wheel)
    assert (schema / "history.json").read_text() == again


def test_without_accelerate_nothing_is_written(index, schema, tmp_path):
    index.files = {name: file for name, file in index.files.items() if not name.startswith("accelerate")}
    with pytest.raises(SystemExit, match=r"trl 1\.15\.0: no wheel of accelerate.*--wheel"):
        update(index, schema, tmp_path)
    assert not (schema / "history.json").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("trl-1.17.0rc1-py3-none-any.whl", "1.17.0rc1 is a pre-release"),
        ("notes.txt", "neither a wheel nor a source archive"),
    ],
)
def test_a_file_that_is_no_release_is_refused(index, schema, tmp_path, name, said):
    with pytest.raises(SystemExit, match=said):
        update(index, schema, tmp_path, tmp_path / name)


def test_a_changed_file_is_refused(index, schema, tmp_path):
    name = "trl-1.16.0-py3-none-any.whl"
    data, _, day = index.files[name]
    index.files[name] = (data, "0" * 64, day)
    with pytest.raises(SystemExit, match="digest differs"):
        update(index, schema, tmp_path)


def test_the_newest_is_resolved_by_pip(index, monkeypatch):
    """With pip's own resolver, which reads what the packages ask for."""
    monkeypatch.undo()
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for package in ("torch", "peft", "bitsandbytes", "liger_kernel"):
        index.wheel(package, "2.0", {}, "2026-01-01")
    index.wheel("accelerate", "1.15.0", {}, "2026-01-01", ["transformers<5.22"])
    found = stacks.by_pip(TRL, "1.16.0", [index.url])
    assert (found["transformers"], found["accelerate"], found["liger-kernel"]) == ("5.21.0", "1.15.0", "2.0")
    assert stacks.by_pip(TRL, "7.0.0", [index.url]) == {}


def test_what_follows_is_current():
    import release_files

    stale = [path.name for path, text in release_files.wanted().items() if path.read_text(encoding="utf-8") != text]
    assert stale == []


def test_the_meanings_are_of_keys_that_there_are():
    for package in PACKAGES:
        known = Known(TRAINERS / package.folder / "schema")
        assert package.meanings.keys() <= known.names()
        assert constants(package, known).get("memory", {}) == dict(package.meanings)
