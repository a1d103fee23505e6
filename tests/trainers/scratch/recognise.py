"""Who the made-up trainer is: its files have a `scratch_model`."""

from vramwise.trainers.signs import Identity

IDENTITY = Identity(
    name="scratch",
    title="Scratch",
    package="scratch",
    releases=lambda: {"1.0.0": {"torch": "2.13.0", "transformers": "5.20.1"}},
    recognises=lambda values: "scratch_model" in values,
    might_be=lambda keys: "scratch_model" in keys,
)
