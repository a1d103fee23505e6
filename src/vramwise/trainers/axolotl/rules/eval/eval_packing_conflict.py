"""eval-packing-conflict"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.rules.base import Hit, insert_key, rule, unsafe
from vramwise.timeline import MemoryReport
from vramwise.types import Fix, RunSpec, Severity

_KEY = "eval_sample_packing"
_METRICS = ("chrf", "comet", "perplexity", "sacrebleu", "ter")


@rule(
    id="eval-packing-conflict",
    severity=Severity.ERROR,
    topic="eval",
    bad="sample_packing: true\nval_set_size: 0.05\neval_steps: 50\neval_table_size: 5\n",
    good="sample_packing: true\neval_sample_packing: false\nval_set_size: 0.05\neval_steps: 50\neval_table_size: 5\n",
)
def check(run: RunSpec, memory: MemoryReport | None) -> Iterator[Hit]:
    """Evaluation is packed, but what it should report needs single samples.

    With `sample_packing` evaluation is packed too unless `eval_sample_packing: false` is written. `eval_table_size` and
    `do_causal_lm_eval` take evaluation rows apart into prompt and answer, which packed rows do not allow; Axolotl
    refuses them. Metrics for `do_causal_lm_eval` must be among chrf, comet, perplexity, sacrebleu and ter.

    Unpacked evaluation uses `eval_batch_size` rows of their own shapes, and Axolotl then drops the last incomplete
    training batch of an epoch: that is why the fix counts as unsafe.
    """
    if run.shapes.sample_packing and run.config.get("eval_table_size") and run.config.get(_KEY) is not False:
        yield _packed(run, f"eval_table_size {run.config.get('eval_table_size')}")
    if run.config.get("do_causal_lm_eval") and _packs(run):
        yield _packed(run, "do_causal_lm_eval")
    unknown = sorted({str(name) for name in run.config.get("eval_causal_lm_metrics", ())} - set(_METRICS))
    if unknown:
        yield Hit(
            key="eval_causal_lm_metrics",
            message=f"eval_causal_lm_metrics {', '.join(unknown)}: Axolotl refuses all but {', '.join(_METRICS)}",
        )


def _packs(run: RunSpec) -> bool:
    return run.evaluation.eval_sample_packing or bool(run.config.get(_KEY))


def _packed(run: RunSpec, feature: str) -> Hit:
    return Hit(
        key=feature.split()[0],
        message=f"{feature} needs unpacked eval rows, but eval_sample_packing {_why(run)}: Axolotl refuses this",
        fix=_fix(run),
    )


def _why(run: RunSpec) -> str:
    return "is true" if run.config.get(_KEY) else "follows sample_packing"


def _fix(run: RunSpec) -> Fix:
    beside = "sample_packing" if "sample_packing" in run.config else "do_causal_lm_eval"
    return unsafe("Do not pack evaluation", insert_key(_KEY, False, beside=beside))
