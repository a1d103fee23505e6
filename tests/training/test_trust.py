"""`trust_remote_code` in a config is a wish; the user's own word is an option."""

import pytest

from installed import need
from tiny_runs import make_folder, prepared, write_config
from vramwise.errors import ConfigError
from vramwise.training.parent.refusing import trusted


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path, samples=4)


@pytest.mark.usefixtures("everything_installed")
def test_a_config_alone_is_not_trusted(folder):
    config = write_config(folder, trust_remote_code=True)
    with pytest.raises(
        ConfigError, match=r"config\.yml:\d+:\d+: trust_remote_code: true would run .*--trust-remote-code"
    ):
        prepared(config)
    assert prepared(config, trust_remote_code=True).plan.trust_remote_code


@pytest.mark.usefixtures("everything_installed")
def test_the_option_alone_trusts_nothing(folder):
    assert not prepared(write_config(folder), trust_remote_code=True).plan.trust_remote_code
    assert not prepared(write_config(folder, trust_remote_code=False), trust_remote_code=True).plan.trust_remote_code


@pytest.mark.parametrize(
    "changes",
    [
        {"trust_remote_code": True},
        {"datasets": [{"path": "samples.jsonl", "type": "completion", "trust_remote_code": True}]},
        {"overrides_of_model_config": {"trust_remote_code": True}},
    ],
)
@pytest.mark.usefixtures("everything_installed")
def test_wherever_it_is_written(folder, changes):
    run = prepared(write_config(folder)).run
    config = type(run.config)(run.config.document, {**run.config.values, **changes}, {})
    with pytest.raises(ConfigError, match="--trust-remote-code"):
        trusted(config, by_user=False)


def test_the_code_of_a_model_does_not_run(folder, vramwise):
    """A model folder with code of its own, named by a config that asks for it: refused by the command, never imported."""
    import json

    model = json.loads((folder / "model" / "config.json").read_text())
    model |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.Mine"}}
    (folder / "model" / "config.json").write_text(json.dumps(model))
    (folder / "model" / "mine.py").write_text(f"open({str(folder / 'it-ran')!r}, 'w')\n")
    done = vramwise("train", write_config(folder, trust_remote_code=True), "--random-weights")
    assert done.exit_code == 2
    assert not (folder / "it-ran").exists()


def test_deepspeed_resumes_only_on_the_users_word(folder):
    """It unpickles its checkpoints."""
    need("torch")
    from vramwise.errors import VramwiseError
    from vramwise.training.parent.prepare import TrainOptions, _wanted

    settings = {"deepspeed": "zero2.json", "auto_resume_from_checkpoints": True}
    (folder / "zero2.json").write_text('{"zero_optimization": {"stage": 2}}')
    from vramwise.opening.options import Options
    from vramwise.opening.subject import open_subject

    run = open_subject(write_config(folder, **settings), Options(gpus=2, torch="2.13"), engine="transformers").run
    assert run.sharding.kind == "zero2"
    with pytest.raises(VramwiseError, match="--resume-from"):
        _wanted(run, TrainOptions(target=Options()))
    assert _wanted(run, TrainOptions(resume=True)).last
