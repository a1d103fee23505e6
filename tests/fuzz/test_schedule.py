"""The walk of the fuzzers: it reaches every key with every kind of value, and the keys are really in its inputs."""

import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _importable():
    sys.path.insert(0, str(ROOT))
    yield
    sys.path.remove(str(ROOT))


@pytest.fixture(scope="module")
def walk():
    from tests.fuzz.schedule import walk

    return walk()


def _found(values, parts):
    """Whether a path of names leads to something in plain containers."""
    for name in parts:
        values = values.get(name.removesuffix("[]"), KeyError) if isinstance(values, dict) else KeyError
        if name.endswith("[]"):
            values = values[0] if isinstance(values, list) and values else KeyError
        if values is KeyError:
            return False
    return True


def test_the_walk_knows_every_key_of_every_trainer(walk):
    from vramwise.trainers.registry import all_trainers
    from vramwise.trainers.vocabulary import key_facts_of

    walked = {(key.trainer, key.path) for key in walk.keys}
    # the embedded engine reads the files of others and lists Axolotl's keys
    for trainer in (one for one in all_trainers() if one.name != "transformers"):
        for version in trainer.releases():
            known = {*key_facts_of(trainer, version), *trainer.closed_blocks(version)}
            assert {(trainer.name, path) for path in known} <= walked, (trainer.name, version)


def test_it_reaches_every_key_first_and_every_kind_of_value_in_the_end(walk):
    places = {id(key): place for place, key in enumerate(walk.keys)}
    assert len({places[id(walk.pair(number)[0])] for number in range(len(walk.keys))}) == len(walk.keys)
    pairs = ((places[id(key)], kind) for key, kind in map(walk.pair, range(len(walk))))
    assert len(set(pairs)) == len(walk.keys) * len(walk.kinds) == len(walk)
    assert walk.reached(len(walk)) == (len(walk.keys), len(walk))


def test_executions_of_a_target_go_through_the_walk_under_every_check(walk):
    from tests.fuzz.schedule import check_of
    from tests.fuzz.targets import load

    for target in [one for one in load().values() if one.walk is not None]:
        walked = target.walk()
        needed = next(count for count in range(0, 2 * len(walked), 100) if target.walked(count) >= len(walked))
        assert needed < 1.5 * len(walked) + 100, target.name
        rounds = {check_of(walked, 7 + turn * len(walked), list(target.checks)) for turn in range(len(target.checks))}
        assert rounds == set(target.checks), target.name
        first = [target.case(1, index) for index in range(8)]
        texts = [walked.text(number).encode() for number in range(6)]
        assert [data for data, _ in first[:3] + first[4:7]] == texts, target.name


def test_an_input_has_its_key_where_the_trainer_reads_it(walk):
    from tests.fuzz.schedule import config_with

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    missing = [
        f"{key.trainer}: {key.path}"
        for key in walk.keys
        if not _found(yaml.load(config_with([(key, "eight")]), loader), key.parts)
    ]
    assert missing == []


def test_configs_of_the_walk_are_recognised_and_predicted(tmp_path, monkeypatch):
    from tests.fuzz.keys import BASES
    from tests.fuzz.schedule import text_of
    from tests.fuzz.targets.making_configs import TINY_MODEL

    from vramwise import api

    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(TINY_MODEL)
    for name, base in BASES.items():
        Path("config.yml").write_text(text_of(base))
        [report] = api.check("config.yml", gpu="24GB")
        # where nothing limits the rows, their lengths decide
        fits = None if report.prediction.rows_unlimited else True
        assert (report.run.trainer, report.prediction.fits) == (name, fits)


def test_changes_of_keys_with_a_dot_are_held_against_the_fix_that_names_them():
    """`e.able_liger_kernel` is one key, and no block `e`."""
    from tests.fuzz.targets.fixes import covers, differing

    [path] = differing({"e.able": True, "e": {"f": 1}}, {"e": {"f": 1}}, ())
    assert covers("e\\.able", path)
    assert not covers("e.able", path)
    [path] = differing({"a": {"b.c": 1}}, {"a": {"b.c": 2}}, ())
    assert covers("a", path)
    assert covers("a.b\\.c", path)
    assert not covers("a.b", path)


def test_typed_values_are_of_their_type(walk):
    from tests.fuzz.kinds import written

    from vramwise.trainers.value_types import accepts

    for key in walk.keys:
        for version, fact in key.facts:
            value = yaml.safe_load(written("typed", fact))
            assert accepts(fact.type, value), (key.trainer, version, key.path, fact.type, value)


@pytest.mark.parametrize(
    ("sizes", "grows"),
    [
        pytest.param([50, 90, 170, 330], True, id="what is kept for every input"),
        pytest.param([50, 90, 92, 92], False, id="a cache that fills up"),
        pytest.param([50, 50, 400, 400, 400], False, id="one large input"),
        pytest.param([50, 51, 53, 57], False, id="a little"),
    ],
)
def test_steady_growth_is_told_from_caches_and_large_inputs(sizes, grows):
    from tests.fuzz.growth import FIRST, Growth

    left = iter(sizes)
    growth = Growth(measure=lambda: next(left) * 2**20)
    for executions in range(1, FIRST * 2 ** (len(sizes) - 1) + 1):
        growth.after(executions)
    assert growth.sizes == [size * 2**20 for size in sizes]
    assert (growth.failure("x", 0) is not None) == grows
