"""The embedded engine: builds data, model and Trainer from a plan, trains and saves in this process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback, TrainerState, set_seed

from vramwise.training.checkpoints import saving
from vramwise.training.parent.resuming import DATA, check_same_data
from vramwise.training.plan import TrainPlan
from vramwise.training.worker.arguments import training_arguments
from vramwise.training.worker.batches import Collator, Rows
from vramwise.training.worker.data import digest_of, load_data
from vramwise.training.worker.model import load_model, load_tokenizer, pad_id
from vramwise.training.worker.packing import check_isolation, pack
from vramwise.training.worker.payloads import refuse_payloads, resuming
from vramwise.training.worker.progress import Progress, say
from vramwise.training.worker.prompts import Sample
from vramwise.training.worker.same_result import SameResultTrainer
from vramwise.types import RunSpec


def train(
    run: RunSpec,
    plan: TrainPlan,
    *,
    progress: Progress,
    stopped: Callable[[], bool] = lambda: False,
    callbacks: Sequence[TrainerCallback] = (),
    watch: Callable[[SameResultTrainer], Sequence[TrainerCallback]] = lambda trainer: (),
) -> SameResultTrainer:
    """Train to the end and save into output_dir; a stopped run leaves only its checkpoint.

    `watch`: further callbacks, created when everything is loaded (they may need the rows).
    """
    refuse_payloads(plan.resume_from)
    _refuse_state(plan.resume_from)
    trainer = make_trainer(run, plan, progress=progress, callbacks=callbacks)
    for callback in watch(trainer):
        trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint=plan.resume_from)
    if stopped():
        return trainer
    progress.phase = "save"
    if trainer.is_fsdp_enabled:  # the finished model is saved whole, whatever its checkpoints were
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    with saving(plan.output_dir, "the trained model"):
        trainer.save_model(plan.output_dir)
        trainer.save_state()
    if trainer.is_world_process_zero():
        say(f"trained: {trainer.state.global_step} steps, saved in {plan.output_dir}")
    return trainer


def _refuse_state(checkpoint: str | None) -> None:
    """Raise an error for a checkpoint whose trainer_state.json is invalid."""
    if checkpoint is None:
        return
    with resuming(checkpoint):
        state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
        if not isinstance(state.global_step, int) or not isinstance(state.log_history, list):
            raise TypeError("trainer_state.json holds no state of a training")


def make_trainer(
    run: RunSpec, plan: TrainPlan, *, progress: Progress, callbacks: Sequence[TrainerCallback] = ()
) -> SameResultTrainer:
    """Return the Trainer with everything loaded and nothing trained yet."""
    Path(plan.output_dir).mkdir(parents=True, exist_ok=True)
    arguments = training_arguments(run, plan)
    with arguments.main_process_first(desc="data"):  # rank 0 fills the caches of tokenizer and datasets
        tokenizer = load_tokenizer(run, plan)
        data = load_data(run, tokenizer, seed=plan.seed)
    digest = digest_of(data)
    check_same_data(plan.resume_from, digest, force=plan.force)
    if arguments.process_index == 0:
        for note in (*data.notes, _counts(data.train, data.evaluation)):
            say(note)
    set_seed(plan.seed)
    model = load_model(run, plan, tokenizer)
    filler = pad_id(tokenizer)
    collator = Collator(pad_id=filler, pad_multiple=run.shapes.pad_multiple, packing=run.shapes.packing_rows)
    set_seed(plan.seed)
    trainer = SameResultTrainer(
        model=model,
        args=arguments,
        train_dataset=Rows(rows_of(data.train, run, packed=run.shapes.sample_packing), pad_id=filler),
        eval_dataset=Rows(rows_of(data.evaluation, run, packed=run.evaluation.eval_sample_packing), pad_id=filler)
        if run.evaluation.evaluates
        else None,
        data_collator=collator,
        processing_class=tokenizer,
        callbacks=[progress, *_early_stopping(run), *callbacks],
        progress=progress,
        shuffle=not _in_order(run),
        order_seed=run.config.get("order_seed"),
        group_by_length=run.shapes.group_by_length and not run.shapes.sample_packing,
        effective_batch=plan.effective_batch_size,
        keep=_keep(run),
        run=plan.run,
        settings={**plan.settings, DATA: digest},
    )
    trainer.remove_callback(PrinterCallback)
    if run.shapes.sample_packing and run.sharding.kind in ("none", "ddp"):
        with trainer.accelerator.autocast():  # some kernels support only half precision
            check_isolation(trainer.model, run.kernels.attn_implementation)
    _forget_loading()
    return trainer


def _forget_loading() -> None:
    """Release what loading left in the allocator's cache, so that training starts with a clean one."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def rows_of(samples: Sequence[Sample], run: RunSpec, *, packed: bool) -> list[Sequence[Sample]]:
    """Return one sample per row, or packed rows of sequence_len tokens."""
    if not packed:
        return [(sample,) for sample in samples]
    bins = pack([len(sample) for sample in samples], run.shapes.sequence_len)
    return [[samples[number] for number in numbers] for numbers in bins]


def _in_order(run: RunSpec) -> bool:
    """Return whether rows come in the order of the file."""
    get = run.config.get
    return bool(get("sample_packing_sequentially") or get("curriculum_sampling"))


def _keep(run: RunSpec) -> int | None:
    limit = run.config.get("save_total_limit")
    return int(limit) if limit else None


def _early_stopping(run: RunSpec) -> list[Any]:
    patience = run.config.get("early_stopping_patience")
    return [EarlyStoppingCallback(early_stopping_patience=int(patience))] if patience else []


def _counts(train: Sequence[Sample], evaluation: Sequence[Sample]) -> str:
    tokens = sum(map(len, train))
    held = f", {len(evaluation)} for evaluation" if evaluation else ""
    return f"{len(train)} training samples, {tokens} tokens{held}"
