"""`available`: the names of judges, prompt templates, benchmarks, data sets, probes and venues."""

from __future__ import annotations

from pandas import DataFrame

from vjudge import benchmarks, plots, probes, prompts
from vjudge.data import verdicts
from vjudge.data.adapters import ADAPTERS
from vjudge.prompts import families


def available(kind: str | None = None) -> DataFrame:
    """List everything that functions of this package take by name.

    Args:
        kind: "judge", "wording" (a prompt template), "benchmark", "collection", "verdicts", "probe"
            or "venue"; None lists all.

    Returns:
        Columns kind, name, and about: the model ids of a judge, the source of a prompt template or
        benchmark, the first line of a probe's documentation.

    Raises:
        ValueError: there is no such kind.

    >>> available("verdicts")["name"].tolist()
    ['genai-bench', 'mllm-judge', 'tifa160', 'viescore', 'wildvision']
    """
    rows = [
        ("judge", "tiny", "the embedded judge"),
        ("collection", "scenes", "generated drawings"),
        ("collection", "drawings", "instructions, whose responses are generated drawings"),
        ("collection", "photos", "photographs with hand-written answers"),
    ]
    for name, family in families.FAMILIES.items():
        rows.append(("judge", name, ", ".join(family.ids)))
    for name, template in prompts.TEMPLATES.items():
        rows.append(("wording", name, template.source))
    for name, protocol in benchmarks.PROTOCOLS.items():
        rows.append(("benchmark", name, protocol.source))
    for adapter in ADAPTERS:
        rows.append(("collection", adapter.name, ", ".join(adapter.ids or adapter.files)))
    for name, description in verdicts.verdict_sets().items():
        rows.append(("verdicts", name, description))
    for name, probe in probes.PROBES.items():
        rows.append(("probe", name, str(probe.__doc__).partition("\n")[0]))
    for name, venue in plots.VENUES.items():
        rows.append(("venue", name, f"columns of {venue.half} and {venue.full} inches"))
    table = DataFrame(rows, columns=["kind", "name", "about"])
    # Kinds in the order of their first row; "judge" and "collection" have rows in two places
    order = table["kind"].unique().tolist()
    table = table.sort_values("kind", kind="stable", key=lambda kinds: kinds.map(order.index))
    if kind is None:
        return table.reset_index(drop=True)
    if kind not in order:
        raise ValueError(f"kind is one of {', '.join(order)}, not {kind!r}")
    return table[table["kind"] == kind].reset_index(drop=True)
