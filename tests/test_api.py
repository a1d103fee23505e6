"""The verbs as functions of the package: what they give, what they refuse, and what they do not import."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import vramwise
from installed import PATIENCE
from vramwise import as_json

DATA = Path(__file__).parent / "data"
VERBS = ("check", "fix", "predict", "fit", "replay", "train", "diagnose", "explain", "rules")
CONFIG = (
    "base_model: meta-llama/Llama-3.2-1B\nmicro_batch_size: 1\neval_batch_size: 2\nval_set_size: 0.1\n"
    "evals_per_epoch: 1\nsequence_len: 128\n"
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 23.64 GiB of "
    "which 1.12 GiB is free. Of the allocated memory 21.00 GiB is allocated by PyTorch, and 0.30 GiB is reserved by "
    "PyTorch but unallocated.\n"
)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yml"
    path.write_text(CONFIG)
    return path


def test_the_package_has_what_it_lists():
    assert set(VERBS) <= set(vramwise.__all__) <= set(dir(vramwise))
    for name in vramwise.__all__:
        assert getattr(vramwise, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'fly'"):
        _ = vramwise.fly


def test_the_verbs_need_no_import_of_their_rooms_and_bring_no_torch():
    code = f"import sys, vramwise\nassert all(callable(getattr(vramwise, verb)) for verb in {VERBS})\n"
    code += "assert not {'torch', 'transformers', 'click'} & set(sys.modules)\n"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


def test_check_takes_one_path_or_several(config, tmp_path):
    for paths in (config, str(config), [config], [str(config)], (str(tmp_path),)):
        (report,) = vramwise.check(paths, gpu="t4")
        assert report.path == str(config)
        assert "eval-batch-differs" in {found.rule for found in report.findings}


def test_fix_mends_at_once(config):
    vramwise.fix(config, select=["eval-batch-differs"])
    assert config.read_text() == CONFIG.replace("eval_batch_size: 2", "eval_batch_size: 1")


def test_fix_leaves_the_yaml_of_others_alone(config, tmp_path):
    foreign = tmp_path / "docker-compose.yml"
    foreign.write_text("services:\n  web:\n    image: nginx\n")
    mended = {Path(report.path).name: report.changed for report in vramwise.fix(tmp_path, unsafe=True)}
    assert mended == {"config.yml": True, "docker-compose.yml": False}
    assert foreign.read_text() == "services:\n  web:\n    image: nginx\n"


def test_predict_and_a_change(config):
    small = vramwise.predict(config, gpu="rtx-4090")
    large = vramwise.predict(config, gpu="rtx-4090", changes=["micro_batch_size=8"])
    assert small.fits
    assert small.needs.peak_reserved_bytes < large.needs.peak_reserved_bytes


def test_a_model_alone_is_predicted_with_defaults():
    full = vramwise.predict(model="meta-llama/Llama-3.2-1B", gpu="h100")
    assert full.fits
    adapted = vramwise.predict(model="meta-llama/Llama-3.2-1B", gpu="h100", run={"adapter": "lora"})
    assert adapted.needs.peak_reserved_bytes < full.needs.peak_reserved_bytes
    with pytest.raises(vramwise.VramwiseError, match="nothing to predict"):
        vramwise.predict()


COMMANDS = {
    "check": (lambda config: [vramwise.check(config, gpu="rtx-4090")], ["--gpu", "rtx-4090"]),
    "predict": (lambda config: [vramwise.predict(config, gpu="t4")], ["--gpu", "t4"]),
    "fit": (
        lambda config: [vramwise.fit(config, gpu="t4", keep=["optimizer"])],
        ["--gpu", "t4", "--keep", "optimizer"],
    ),
}


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_json_of_a_function_is_that_of_its_command(verb, config, vramwise, short_searches):
    asked, words = COMMANDS[verb]
    told = json.loads(vramwise(verb, config, *words, "--format", "json").stdout)
    (result,) = asked(config)
    document = json.loads(json.dumps(as_json(result)))
    for one in (told, document):
        one.pop("command", None)  # the command line that was given
    assert document == told


def test_what_has_no_json_is_refused():
    with pytest.raises(TypeError, match="int has no JSON"):
        as_json(3)


def test_option_objects_are_accepted_with_a_warning(config):
    with pytest.warns(DeprecationWarning, match="'options' goes with the next release"):
        (report,) = vramwise.check(config, vramwise.Options(gpu="t4"))
    with pytest.warns(DeprecationWarning, match="'ask' goes"):
        old = vramwise.predict(config, gpu="rtx-4090", ask=vramwise.PredictOptions(steps=1))
    assert report.run.target.gpu.name == "T4"
    assert old.needs == vramwise.predict(config, gpu="rtx-4090", steps=1).needs


def test_fit_gives_the_config_that_fits(config):
    found = vramwise.fit(config, gpu="rtx-4090", keep=["micro_batch_size"])
    assert found.best.fits
    assert "micro_batch_size: 1\n" in found.best.document.text
    assert config.read_text() == CONFIG


def test_replay_under_its_own_and_other_settings():
    trace = DATA / "traces" / "full_gc_default.json.gz"
    assert vramwise.replay(trace).mismatches == 0
    other = vramwise.replay(str(trace), settings="expandable_segments:True")
    assert other.peak_reserved_bytes < other.recorded_peak_reserved_bytes


def test_diagnose(tmp_path, config):
    log = tmp_path / "train.log"
    log.write_text(OOM)
    assert vramwise.diagnose(log).failed
    assert vramwise.diagnose(str(log), config=config).failed


def test_rules_and_explain():
    assert vramwise.explain("batch-size-set") in vramwise.rules()


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: vramwise.predict("no.yml"),
        lambda: vramwise.fit("no.yml"),
        lambda: vramwise.replay("no.pickle"),
        lambda: vramwise.train("no.yml"),
        lambda: vramwise.diagnose("no.log"),
        lambda: vramwise.diagnose(),
        lambda: vramwise.explain("no-rule"),
        lambda: vramwise.check("no.yml", gpu="no-card"),
        lambda: vramwise.predict("no.yml", engine="no-engine"),
    ],
)
def test_a_mistake_raises_an_error_of_ours(mistake):
    with pytest.raises(vramwise.VramwiseError, match=r"no[.-]|nothing to diagnose"):
        mistake()


def test_a_file_that_cannot_be_read_is_reported_with_the_others(config):
    missing, good = vramwise.check(["no.yml", config])
    assert isinstance(missing.error, vramwise.ConfigError)
    assert good.error is None
