"""The stored tables are the published ones."""

from __future__ import annotations

import pytest

from vjudge import published


def test_spot_checks_against_the_papers():
    table = published.results("prometheus-vision", table="instruction following")
    cells = table.set_index(["evaluator", "benchmark", "statistic"])["value"]
    assert len(cells) == 13 * 3 * 3
    assert cells["Prometheus-Vision 13B", "Perception-Bench", "pearson"] == 0.832
    assert cells["Fuyu 8B", "Perception-Bench", "spearman"] == 4.29e-06
    assert cells["LLaVA-1.5 13B", "LLaVA-Bench", "pearson"] == -0.005
    humans = published.results("prometheus-vision", table="human evaluators").set_index(["evaluator", "benchmark"])[
        "value"
    ]
    assert humans["Prometheus-Vision 13B", "total"] == 0.674
    critics = published.results("llava-critic", table="pointwise").set_index(["evaluator", "benchmark"])["value"]
    assert critics["LLaVA-Critic 72B", "average"] == 0.754
    assert (
        published.results("llava-critic", table="pairwise", statistic="kendall").set_index("evaluator")["value"][
            "GPT-4o"
        ]
        == 0.819
    )


def test_every_number_names_its_source_and_stands_once():
    for paper in ("prometheus-vision", "llava-critic"):
        table = published.results(paper)
        assert table["source"].str.contains("arXiv").all()
        assert not table.duplicated(["table", "evaluator", "benchmark", "statistic"]).any()
        assert table["value"].between(-1, 1).all()


def test_an_unknown_name_lists_what_is_stored():
    with pytest.raises(ValueError, match="'prometheus'.*llava-critic.*prometheus-vision"):
        published.results("prometheus")
