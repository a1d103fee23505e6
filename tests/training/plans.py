"""A small plan for tests of what surrounds the training."""

from vramwise.training.plan import TrainPlan


def make_plan(output_dir, **changes):
    values = {
        "config_path": str(output_dir / "config.yml"),
        "config_text": "",
        "output_dir": str(output_dir),
        "micro_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "eval_batch_size": 4,
        "effective_batch_size": 4,
        "sequence_len": 16,
        "pad_multiple": 1,
        "constant_shapes": True,
        "precision": "fp32",
        "weights_dtype": "fp32",
    }
    return TrainPlan(**(values | changes))
