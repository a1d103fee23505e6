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
    """Evaluation is packed, but a requested result needs single samples.

    With `sample_packing`, evaluation is packed too unless `eval_sample_packing: false` is set. `eval_table_size` and
    `do_causal_lm_eval` split evaluation rows into prompt and answer, which is impossible with packed rows, so Axolotl
    refuses them. Metrics for `do_causal_lm_eval` must be chrf, comet, perplexity, sacrebleu or ter.

    The fix is unsafe: unpacked evaluation uses `eval_batch_size` rows with shapes of their own, and Axolotl then drops
    the last incomplete training batch of an epoch.
    """
    if run.shapes.sample_packing and run.config.get("eval_table_size") and run.config.get(_KEY) is not False:
        yield _packed(run, f"eval_table_size {run.config.get('eval_table_size')}")
    if run.config.get("do_causal_lm_eval") and _packs(run):
        yield _packed(run, "do_causal_lm_eval")
    unknown = sorted({str(name) for name in run.config.get("eval_causal_lm_metrics", ())} - set(_METRICS))
    if unknown:
        yield Hit(
            key="eval_causal_lm_metrics",
            message=f"Axolotl refuses eval_causal_lm_metrics {', '.join(unknown)}: supported are {', '.join(_METRICS)}",
        )


def _packs(run: RunSpec) -> bool:
    return run.evaluation.eval_sample_packing or bool(run.config.get(_KEY))


def _packed(run: RunSpec, feature: str) -> Hit:
    return Hit(
        key=feature.split()[0],
        message=f"Axolotl refuses {feature} on packed eval rows, and eval_sample_packing {_why(run)}",
        fix=_fix(run),
    )


def _why(run: RunSpec) -> str:
    return "is true" if run.config.get(_KEY) else "follows sample_packing"


def _fix(run: RunSpec) -> Fix:
    beside = "sample_packing" if "sample_packing" in run.config else "do_causal_lm_eval"
    return unsafe("Do not pack evaluation", insert_key(_KEY, False, beside=beside))
