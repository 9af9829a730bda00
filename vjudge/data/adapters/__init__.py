"""Published data sets, each as one `Adapter`: what its rows look like and how one becomes canonical.

    adapter.py       Adapter, and what its functions share
    prometheus.py    Perception-Collection and -Bench, Feedback-Collection and -Bench, Preference-Collection
    critic.py        LLaVA-Critic-113k
    benchmarks.py    VL-RewardBench, Multimodal RewardBench, MLLM-as-a-Judge, LLaVA-Bench, VisIT-Bench
    rankings.py      HHH Alignment, MT-Bench human judgements: pairs about texts alone

To add a data set: write an `Adapter` with a function that reads one row, in one of these files or a new one, and add it
to `ADAPTERS`. `load_collection` then knows it by its hub ids, and local files by its columns.
"""

from __future__ import annotations

from collections.abc import Iterable

from vjudge.data.adapters import benchmarks, critic, prometheus, rankings
from vjudge.data.adapters.adapter import Adapter
from vjudge.data.schema import BadRow

__all__ = ["ADAPTERS", "Adapter", "BadRow", "by_columns", "by_id", "hub_ids"]

ADAPTERS: tuple[Adapter, ...] = (
    prometheus.PERCEPTION_COLLECTION,
    prometheus.PERCEPTION_BENCH,
    prometheus.FEEDBACK_COLLECTION,
    prometheus.FEEDBACK_BENCH,
    prometheus.PREFERENCE_COLLECTION,
    prometheus.EVALUATION_ROWS,
    prometheus.TRAINING_ROWS,
    critic.LLAVA_CRITIC_113K,
    benchmarks.VL_REWARDBENCH,
    benchmarks.MULTIMODAL_REWARDBENCH,
    benchmarks.MLLM_JUDGE_SCORE,
    benchmarks.MLLM_JUDGE_PAIR,
    benchmarks.MLLM_JUDGE_BATCH,
    benchmarks.LLAVA_BENCH_WILD,
    benchmarks.LLAVA_BENCH_WILD_TABLE,
    benchmarks.LLAVA_BENCH_COCO,
    benchmarks.LLAVA_BENCH_COCO_FOLDER,
    benchmarks.VISIT_BENCH,
    rankings.HHH,
    rankings.MT_BENCH,
)


def by_id(name: str) -> Adapter | None:
    """The adapter of a hub id or of a data set's own name, in any case of letters."""
    for adapter in ADAPTERS:
        if name.lower() in (known.lower() for known in (*adapter.ids, adapter.name)):
            return adapter
    return None


def by_columns(columns: Iterable[str]) -> Adapter | None:
    """The adapter whose signature these columns have; of several, the one that asks for most, then the first."""
    fitting = [adapter for adapter in ADAPTERS if adapter.fits(columns)]
    return max(fitting, key=lambda adapter: len(adapter.signature or adapter.columns), default=None)


def hub_ids() -> tuple[str, ...]:
    """Every hub id that is known."""
    return tuple(id for adapter in ADAPTERS for id in adapter.ids)
