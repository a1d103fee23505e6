"""Predictions of one run with its data: each question is answered once.

The Subject asks here. This module is loaded with the first question, because it loads the ghost run and the allocator.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.errors import VramwiseError
from vramwise.types import ModelSpec, RunSpec, Schedule
from vramwise.variants.batches import train_shapes
from vramwise.variants.duration import Duration, duration
from vramwise.variants.effort import SAMPLE
from vramwise.variants.lengths import Data, Lengths
from vramwise.variants.prediction import Prediction, predict_run
from vramwise.variants.simulations import Simulations
from vramwise.variants.speed import Speed, speed_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What may be asked about one run. `made`: predictions by question; `simulations`: shared with its variants."""

    run: RunSpec
    model: ModelSpec
    data: Data
    simulations: Simulations
    made: dict[tuple[object, ...], tuple[Prediction, object]]

    def prediction(
        self,
        *,
        lengths: Lengths | None = None,
        eval_lengths: Lengths | None = None,
        steps: int | None = None,
        limit_bytes: int | None = None,
        on_card: bool = True,
    ) -> Prediction:
        """What the run will need; the lengths of its data count where no others are given."""
        lengths = self.data.train if lengths is None else lengths
        eval_lengths = self.data.evaluation if eval_lengths is None else eval_lengths
        key = (id(lengths), id(eval_lengths), steps, limit_bytes, on_card)
        if key not in self.made:
            self.simulations.effort.spend(SAMPLE * self.data.samples)
            prediction = predict_run(
                self.run,
                self.model,
                lengths=lengths,
                eval_lengths=eval_lengths,
                steps=steps,
                limit_bytes=limit_bytes,
                simulations=self.simulations,
                on_card=on_card,
            )
            # The lengths are kept, so that their ids stay theirs.
            self.made[key] = (prediction.assuming(*self.data.notes), (lengths, eval_lengths))
        return self.made[key][0]

    def speed(self) -> Speed | None:
        """How fast it trains, with the batches of its data; None where that is not known, or a step is too large."""
        lengths = self.data.train
        shapes = train_shapes(self.run, lengths) if lengths else ()
        self.simulations.effort.spend(SAMPLE * self.data.samples)
        try:
            return speed_of(self.run, self.model, shapes, effort=self.simulations.effort)
        except VramwiseError:
            return None

    def duration(self, schedule: Schedule, speed: Speed) -> Duration | None:
        """How long all of the training takes; None where neither the steps nor the data are known."""
        return duration(self.run, schedule, self.data.train, speed)
