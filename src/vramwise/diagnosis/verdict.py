"""Turn facts into the diagnosis: one sentence, ranked causes, advice, and what is unknown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vramwise.diagnosis.advice import advise
from vramwise.diagnosis.case import Case, snapshot_symptom
from vramwise.diagnosis.causes.ranking import ON_CARD, OUT_OF_MEMORY, failure_of, ghost_lines, rank_causes
from vramwise.diagnosis.causes.told import told_lines
from vramwise.diagnosis.evidence import Cause, Diagnosis, Frame, LogFacts, Symptom
from vramwise.diagnosis.read.factor import other_vocabulary
from vramwise.diagnosis.read.phases import stages
from vramwise.diagnosis.read.snapshot import SnapshotFacts
from vramwise.diagnosis.witness import Ghost
from vramwise.facts.gpus import find_gpus
from vramwise.opening.options import Options
from vramwise.trainers.registry import DEFAULT, EMBEDDED, TRAINER_NAMES
from vramwise.types.actions import action
from vramwise.units import readable

# Below this confidence the diagnosis says that the cause is unclear.
_A_GUESS = 0.4
# Lines that record a memory snapshot.
RECORD_LINES = (
    "import torch",
    "torch.cuda.memory._record_memory_history(max_entries=200_000)",
    'torch._C._cuda_attach_out_of_memory_observer(lambda *_: torch.cuda.memory._dump_snapshot("snapshot.pickle"))',
)
_HOST_FACTS = (
    "what the kernel wrote (run `dmesg -T | grep -iE 'killed process|oom-kill'` and paste it); how host memory rose "
    "(run `free -m -s 5` beside it and paste the last lines)"
)
_ALL_OUTPUT = "keep the full output of every rank: `… 2>&1 | tee train.log`"
_OTHER_FAILURES = {
    "nccl-timeout": (
        "find the rank that was late: look for the first error in the output of every rank and node",
        "run again with TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1: torch then records what "
        "each rank was waiting for",
    ),
    "exception": ("read the traceback above it: its message does not speak of memory",),
}


def symptom_of(log: LogFacts, snapshot: SnapshotFacts | None, frames: tuple[Frame, ...] = ()) -> Symptom | None:
    """Return the failure to explain: the log's, otherwise the snapshot's; None if there is none."""
    found = failure_of(log.symptoms)
    if snapshot is not None and snapshot.failed and (found is None or found.kind == "aftermath"):
        return snapshot_symptom(snapshot, frames)
    return found


def conclude(
    log: LogFacts,
    symptom: Symptom | None,
    ghost: Ghost | None = None,
    snapshot: SnapshotFacts | None = None,
    told: Ghost | None = None,
    options: Options | None = None,
) -> Diagnosis:
    """Return the diagnosis of one log. `options`: what the caller says about the trainer and the cards."""
    config = ghost.document.path if ghost else None
    if symptom is None:
        return _no_failure(log, config, snapshot)
    case = Case(
        symptom=symptom,
        log=log,
        ghost=ghost,
        told=told,
        snapshot=snapshot,
        said_trainer=options.trainer if options else None,
        said_card=find_gpus(options.gpu) if options and options.gpu else None,
    )
    causes = advise(case, rank_causes(case))
    explained = bool(causes) and causes[0].confidence >= _A_GUESS
    guess = ". A guess at the cause" if explained and causes[0].is_guess else ""
    sentence = f"{_where(symptom)}{guess}: {causes[0].sentence}." if explained else _unexplained(symptom)
    sure = explained and causes[0].confidence >= 0.7 and symptom.kind != "nccl-timeout" and not _surpassed(case)
    steps = () if sure else _next_steps(case)
    return Diagnosis(
        verdict="diagnosed" if explained else "unexplained",
        sentence=sentence,
        symptom=symptom,
        causes=tuple(causes),
        log=log,
        config=config,
        trainer=case.speaker.trainer.name if case.speaker.known else None,
        snapshot=snapshot,
        ghost=ghost_lines(case) or told_lines(case),
        notes=(*_notes(case), *_whose_words(case, causes)),
        next_steps=steps,
    )


def _next_steps(case: Case) -> tuple[str, ...]:
    """Return what to collect next. A snapshot helps only with torch's out-of-memory on a GPU it can record."""
    if case.symptom.kind.startswith("host-"):
        return (f"two facts would settle it: {_HOST_FACTS}",)
    if case.symptom.kind not in OUT_OF_MEMORY:
        return other_steps(case.symptom.kind)
    recordable = case.memory.wording != "mps" and "mlx" not in case.log.setup.named
    steps = next_steps(
        has_config=case.ghost is not None, has_snapshot=case.snapshot is not None or not recordable, failed=True
    )
    missing = list(_missing(case))[:2]
    return (f"two facts would settle it: {'; '.join(missing)}", *steps) if len(missing) == 2 else steps


def _missing(case: Case) -> Iterator[str]:
    """Yield the facts that the text lacks, those that tell most first."""
    if not case.symptom.frames:
        yield "the whole traceback (paste it from its first line to its last), which says what asked for the memory"
    if case.memory.allocated_bytes is None:
        yield "the figures of the message: how much was allocated, reserved and free (paste the whole line)"
    if case.symptom.step is None and not case.symptom.stage:
        yield "the lines before it (loading, a step, an evaluation or a checkpoint), which say when it happened"
    if case.memory.processes == () and case.memory.this_process_bytes is None:
        yield "what else used the card: run with `nvidia-smi -l 5` beside it and paste the last table"


def _no_failure(log: LogFacts, config: str | None, snapshot: SnapshotFacts | None) -> Diagnosis:
    recovered = failure_of(log.recovered)
    if recovered is not None:
        steps = "" if log.steps_done is None else f" (step {log.steps_done} was reached)"
        sentence = f"No failure that ended the run: {_where(recovered).lower()}, and training went on{steps}."
    elif _shows_a_good_run(log, snapshot):
        sentence = f"No failure found{_looked_at(log, snapshot)}."
    else:
        sentence = f"Nothing{_looked_at(log, snapshot)} says what failed: neither an error nor a run that went well."
    return Diagnosis(
        verdict="no-failure" if recovered is None else "recovered",
        sentence=sentence,
        symptom=recovered,
        causes=(),
        log=log,
        config=config,
        snapshot=snapshot,
        next_steps=()
        if recovered
        else next_steps(has_config=True, has_snapshot=snapshot is not None, failed=False)[:1],
    )


def _shows_a_good_run(log: LogFacts, snapshot: SnapshotFacts | None) -> bool:
    """Whether the text shows training that went on; an empty text and a snapshot without a failure count, too."""
    return bool(
        log.finished or log.steps_done is not None or log.training_loop or log.memory or snapshot or not log.size_bytes
    )


def _looked_at(log: LogFacts, snapshot: SnapshotFacts | None) -> str:
    if not log.name and snapshot is not None:
        return " in the snapshot: no request failed"
    if not log.size_bytes:
        return ": the log is empty"
    return f" in {log.lines:,} line{'' if log.lines == 1 else 's'}"


def _where(symptom: Symptom) -> str:
    what = "Failed"
    if symptom.cut:
        what = "Probably out of memory (the message is cut off)"
    elif symptom.kind in OUT_OF_MEMORY:
        what = "Out of memory"
    elif symptom.kind == "growth":
        what = "Memory grows"
    elif symptom.kind.startswith("host-"):
        what = "Not the GPU's memory"
    rank = f"on rank {symptom.rank}" if symptom.rank is not None else ""
    on_card = symptom.told and symptom.kind.startswith("host-") and symptom.phase in ON_CARD
    stage = stages()[symptom.stage].words if symptom.stage and not on_card else ""
    return " ".join(filter(None, (what, stage, _step(symptom), rank)))


def _step(symptom: Symptom) -> str:
    """Return the current step in words; evaluations and checkpoints come after a step."""
    if symptom.step is None or symptom.phase in ("load", "resume"):
        return ""
    if symptom.phase in ("eval", "save"):
        return f"after step {symptom.step - 1}" if symptom.step > 1 else "before the first step"
    return f"at step {symptom.step}"


def _unexplained(symptom: Symptom) -> str:
    if symptom.kind in OUT_OF_MEMORY:
        return f"{_where(symptom)}. The cause is unclear: the evidence fits several causes."
    if symptom.kind == "exception":
        name = symptom.details.get("name", "an exception")
        return f"The run ended with {name}, which is not a known memory or dtype failure. The cause is unknown."
    return "The run failed for an unknown reason: the log does not show the first error."


def _notes(case: Case) -> list[str]:
    notes = []
    memory = case.memory
    if case.symptom.told:
        notes.append(
            "the text describes the failure, and no message was read: its figures would make this more certain"
        )
    if case.symptom.cut:
        notes.append(
            "the traceback ends before its message, so that memory ran out is an assumption: paste its last line"
        )
    if memory.allowed_bytes is not None and memory.total_bytes is not None:
        allowed, total = readable(memory.allowed_bytes), readable(memory.total_bytes)
        notes.append(f"the process was limited to {allowed} of the card's {total} (memory fraction)")
    if memory.total_bytes and (memory.allocated_bytes or 0) > memory.total_bytes:
        notes.append("more was allocated than the card has: its driver used host memory (Windows), which is slow")
    if case.ghost is not None and case.symptom.inner in ("loss", "log-probs"):
        other = other_vocabulary(case.requested, memory.tolerance_bytes, case.dimensions)
        if other is not None:
            notes.append(
                f"log and config do not match: {readable(case.requested)} = {other.arithmetic}, and the config's model "
                f"has {case.dimensions.vocab_size}"
            )
    if most := _surpassed(case):
        notes.append(
            f"{readable(memory.allocated_bytes or 0)} were allocated, but this config is predicted to allocate "
            f"{readable(most)} at most: the run used a different config or model, or something else holds memory (a "
            "leak, a second model)"
        )
    ranks = {
        symptom.rank for symptom in case.log.symptoms if symptom.kind == case.symptom.kind and symptom.rank is not None
    }
    if len(ranks) > 1:
        notes.append(f"{len(ranks)} ranks report it: {', '.join(map(str, sorted(ranks)[:16]))}")
    if case.log.recovered:
        notes.append(f"{len(case.log.recovered)} earlier failures were recovered from")
    return notes


def _whose_words(case: Case, causes: Sequence[Cause]) -> Iterator[str]:
    """Yield a note if the shown keys may not be those of the user's trainer."""
    if not case.speaker.known and any(remedy.keys for cause in causes for remedy in cause.remedies):
        mine = case.speaker.trainer
        others = ", ".join(name for name in TRAINER_NAMES if name not in (mine.name, EMBEDDED))
        owner = f"{mine.title}'s" if mine.name == DEFAULT else "TrainingArguments"
        hint = action("say the trainer").format(others)
        yield f"the log does not name its trainer, so {owner} keys are shown; {hint}"


def _surpassed(case: Case) -> int | None:
    return case.ghost.surpassed_by(case.memory) if case.ghost else None


def next_steps(*, has_config: bool, has_snapshot: bool, failed: bool) -> tuple[str, ...]:
    """Return what would tell more about an out-of-memory, cheapest first."""
    steps = []
    if not failed:
        steps.append(_ALL_OUTPUT)
    if not has_config:
        steps.append(action("give the config"))
    if not has_snapshot:
        steps.append(
            "record a snapshot: put these lines before training starts, run again, then "
            f"{action('give the snapshot')}\n    " + "\n    ".join(RECORD_LINES)
        )
    return tuple(steps)


def other_steps(kind: str) -> tuple[str, ...]:
    """Return what would tell more about a failure that is not about memory."""
    return _OTHER_FAILURES.get(kind, (_ALL_OUTPUT,))
