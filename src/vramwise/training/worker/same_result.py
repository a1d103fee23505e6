"""A Trainer whose result depends neither on how an effective batch is divided nor on where it was interrupted.

Differences from transformers' own: the order of rows (batches.py), the evaluation loss (a mean over tokens, not over
batches), and checkpoints that are complete or absent (checkpoints.py). transformers already divides the training loss
by the targets of the whole effective batch for models that accept that number; for others it is done here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch.nn.functional import cross_entropy
from transformers import TrainerCallback

from vramwise.training import checkpoints
from vramwise.training.checkpoints import saving
from vramwise.training.worker.batches import EpochOrder, Rows
from vramwise.training.worker.payloads import resuming
from vramwise.training.worker.progress import Progress
from vramwise.training.worker.prompts import IGNORED
from vramwise.training.worker.unfinished import FinishingTrainer


class SameResultTrainer(FinishingTrainer):
    """A Trainer with deterministic row order and complete checkpoints; see the module."""

    def __init__(
        self,
        *arguments: Any,
        progress: Progress,
        shuffle: bool = True,
        group_by_length: bool = False,
        order_seed: int | None = None,
        effective_batch: int = 1,
        keep: int | None = None,
        run: str = "",
        settings: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*arguments, **more)
        # Not `save_total_limit`: transformers would also count and delete the checkpoints of other runs.
        self._keep = keep
        self._run = run
        self._settings = settings
        self._saving_to: str | None = None
        self._progress = progress
        self._shuffle = shuffle
        self._group_by_length = group_by_length
        self._order_seed = order_seed  # the seed of transformers' own order; None: our order, from the run's seed
        self._effective_batch = effective_batch
        self._evaluated = torch.zeros(2, dtype=torch.float64)
        if not self.model_accepts_loss_kwargs:
            self.compute_loss_func = mean_over_targets

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochOrder:
        order = self._train_order(self.train_dataset if train_dataset is None else train_dataset)
        self.add_callback(_SetEpoch(order))
        return order

    def _train_order(self, rows: Rows) -> EpochOrder:
        return EpochOrder(
            len(rows),
            multiple=self.args.per_device_train_batch_size * self.args.world_size,
            seed=self.args.seed if self._order_seed is None else self._order_seed,
            shuffle=self._shuffle,
            by_torch=self._order_seed is not None,
            lengths=rows.lengths() if self._group_by_length else None,
            effective_batch=self._effective_batch,
        )

    def _get_eval_sampler(self, eval_dataset: Any) -> EpochOrder:
        multiple = self.args.per_device_eval_batch_size * self.args.world_size
        return EpochOrder(len(eval_dataset), multiple=multiple, seed=0, shuffle=False)

    def batch_lengths(self) -> tuple[list[int], list[int]]:
        """Return the tokens of this rank's rows in the first epoch, and in an evaluation; blank rows have one."""
        args, rows = self.args, self.train_dataset
        train = _share(self._train_order(rows), rows, args.per_device_train_batch_size, args)
        held = self.eval_dataset
        if held is None:
            return train, []
        return train, _share(self._get_eval_sampler(held), held, args.per_device_eval_batch_size, args)

    def steps_of_run(self) -> int:
        """Return the optimizer steps of the whole run."""
        if self.args.max_steps > 0:
            return int(self.args.max_steps)
        steps = math.ceil(len(self.train_dataset) / self._effective_batch)
        return max(1, math.ceil(steps * float(self.args.num_train_epochs)))

    def prediction_step(
        self, model: Any, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: Sequence[str] | None = None
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Evaluate one batch: its loss is accumulated as a sum over targets."""
        inputs = self._prepare_inputs(inputs)
        targets = int(inputs["labels"][..., 1:].ne(IGNORED).sum())
        with torch.no_grad(), self.compute_loss_context_manager():
            loss = model(**inputs).loss.mean().detach()
        if not targets:  # a blank batch, run because other ranks run one too; its mean is NaN
            loss = torch.zeros_like(loss)
        self._evaluated += torch.tensor([float(loss) * targets, targets], dtype=torch.float64)
        return loss, None, None

    def evaluation_loop(self, *arguments: Any, **more: Any) -> Any:
        """Evaluate with a loss that is the mean over all targets, however they were batched."""
        before, self._progress.phase = self._progress.phase, "eval"
        self._evaluated.zero_()
        output = super().evaluation_loop(*arguments, **more)
        total = self.accelerator.reduce(self._evaluated.to(self.args.device, torch.float32), reduction="sum")
        prefix = more.get("metric_key_prefix", "eval")
        output.metrics[f"{prefix}_loss"] = float(total[0] / total[1].clamp(min=1))
        self._progress.phase = before
        return output

    def _run_epoch(self, *arguments: Any, **more: Any) -> None:
        # transformers checks max_steps only after a step: a finished run that is resumed would train one more step
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        super()._run_epoch(*arguments, **more)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with resuming(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with resuming(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_scaler(self, checkpoint: str | None) -> None:
        with resuming(checkpoint):
            super()._load_scaler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with resuming(checkpoint):
            super()._load_rng_state(checkpoint)

    def _get_output_dir(self, trial: Any) -> str:
        return self._saving_to or str(super()._get_output_dir(trial))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        before, self._progress.phase = self._progress.phase, "save"
        output_dir, step = self.args.output_dir, self.state.global_step
        try:
            with saving(output_dir, f"checkpoint-{step}"):
                self._save_aside(model, trial, step)
                if self.args.should_save:
                    checkpoints.finish(output_dir, step, run=self._run, settings=self._settings)
        except Exception:
            if self.args.should_save:
                checkpoints.give_up(output_dir)
            raise
        if self.args.should_save:
            checkpoints.rotate(output_dir, keep=self._keep, run=self._run, always=[self.state.best_model_checkpoint])
        # no rank continues or loads the best checkpoint before it has its final name
        self.accelerator.wait_for_everyone()
        self._progress.phase = before

    def _agreed(self, path: str) -> str:
        """Return the first rank's path: ranks that were started one by one know nothing about each other's runs."""
        words = [path]
        if self.args.world_size > 1:
            broadcast_object_list(words)
        return words[0]

    def _save_aside(self, model: Any, trial: Any, step: int) -> None:
        """Save with transformers into the temporary folder; paths in its state are those after the renaming."""
        output_dir = self.args.output_dir
        final = self._agreed(str(checkpoints.final_path(output_dir, step, run=self._run)))
        aside = Path(output_dir) / checkpoints.ASIDE
        if self.args.should_save:
            checkpoints.begin(output_dir, step)
        self.accelerator.wait_for_everyone()
        self._saving_to = str(aside)
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self._saving_to = None
        best = self.state.best_model_checkpoint
        if best is not None and Path(best) == aside / f"checkpoint-{step}":
            self.state.best_model_checkpoint = final
            if self.args.should_save:
                self.state.save_to_json(str(aside / f"checkpoint-{step}" / "trainer_state.json"))
        self.accelerator.wait_for_everyone()


def _share(order: EpochOrder, rows: Rows, batch: int, args: Any) -> list[int]:
    """Return the lengths of every batch for this rank: batches are distributed in turn."""
    lengths = [*rows.lengths(), 1]  # the number after the last is the blank row
    numbers = list(order)
    batches = [numbers[start : start + batch] for start in range(0, len(numbers), batch)]
    return [lengths[number] for one in batches[args.process_index :: args.world_size] for number in one]


class _SetEpoch(TrainerCallback):
    """Tells the order which epoch it is, even after a resume in the middle of one."""

    def __init__(self, order: EpochOrder) -> None:
        self._order = order

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Set the number of completed epochs."""
        self._order.set_epoch(int(state.epoch or 0))


def mean_over_targets(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Return the cross entropy summed over a micro-batch, divided by the targets of the whole effective batch."""
    logits = outputs["logits"][..., :-1, :].float()
    targets = labels[..., 1:].to(logits.device)
    total = cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="sum")
    count = targets.ne(IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
    loss: torch.Tensor = total / count
    return loss
