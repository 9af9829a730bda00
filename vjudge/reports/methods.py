"""How a card was made, in sentences for a paper, and what they cite."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import vjudge
from vjudge import plots
from vjudge.plots.save import latex
from vjudge.prompts import families
from vjudge.reports.card import Card, the, ways
from vjudge.reports.evidence import Evidence

ARXIV = re.compile(r"(?P<author>[^,;]+?)(?: (?P<year>\d{4}))?,(?: (?P<title>.+?),)? arXiv (?P<id>\d{4}\.\d{4,5})$")
STATISTICS = {
    "bootstrap": "Efron, B. and Tibshirani, R. J.|An Introduction to the Bootstrap|Chapman and Hall|1993",
    "wilson": "Wilson, E. B.|Probable Inference, the Law of Succession, and Statistical Inference|Journal of the"
    " American Statistical Association 22, 209--212|1927",
    "jackknife": "MacKinnon, J. G. and Nielsen, M. \\O. and Webb, M. D.|Cluster-robust inference: A guide to empirical"
    " practice|Journal of Econometrics 232|2023",
    "holm": "Holm, S.|A Simple Sequentially Rejective Multiple Test Procedure|Scandinavian Journal of Statistics 6,"
    " 65--70|1979",
    "schuirmann": "Schuirmann, D. J.|A comparison of the two one-sided tests procedure and the power approach for"
    " assessing the equivalence of average bioavailability|Journal of Pharmacokinetics and Biopharmaceutics 15|1987",
    "calderon": "Calderon, N. and Reichart, R. and Dror, R.|The Alternative Annotator Test for LLM-as-a-Judge|arXiv"
    " 2501.10970|2025",
    "isotonic": "Barlow, R. E. and Bartholomew, D. J. and Bremner, J. M. and Brunk, H. D.|Statistical Inference under"
    " Order Restrictions|Wiley|1972",
    "cards": "Mitchell, M. and others|Model Cards for Model Reporting|Conference on Fairness, Accountability, and"
    " Transparency|2019",
}  # fmt: skip
"""Key -> authors, title, where and year, as they stand in LaTeX."""


def cite(card: Card, e: Evidence, options: Mapping[str, Any]) -> None:
    """Write a card's methods, each sentence with what it cites."""
    facts, sources, methods = e.facts, card.sources, card.methods
    family = families.find(e.judge.lower().replace("_", "-"))
    paper = _sources(sources, family.paper) if family is not None and family.paper else ()
    wording = facts.get("template", {}).get("name") or (family.template.name if family is not None else "")
    what = "responses" if e.scores is not None else "pairs of responses"
    of = f"{card.counts['items']:,} {what} in {card.counts['groups']:,} groups of {card.collection}"
    methods.append((f"This is the report card of {e.judge} as a judge of {of}", ("cards",)))
    if family is not None:
        methods.append((f"It belongs to the {family.name} family"
                        + (f" and was asked in the wording {wording}" if facts else ""), paper))  # fmt: skip
    if citation := str(e.attrs.get("citation") or ""):
        where = f", read from {e.attrs['source']}" if e.attrs.get("source") else ""
        methods.append((f"Its verdicts and people's ratings are public{where}", _sources(sources, citation)))
    methods += [(text, ()) for text in _decoding(facts)]
    if e.scores is not None:
        methods.append((f"Scores are held against {the(e.truth)}", ()))
    failed = next((part.sentence for part in card.parts if part.name == "failures"), "")
    methods.append((failed.rstrip("."), ()))
    for name, key in (("agreement", "bootstrap"), ("preferences", "wilson")):
        if name in card.tables:
            methods.append((plots.caption("Agreement", *ways(card.tables[name])).rstrip("."), (key,)))
    if any("ceiling" in measure for part in card.parts for measure in part.table["measure"]):
        methods.append(("The human ceiling is the mean over raters of each one's correlation with the mean of the"
                        " others, and the judge is held to the same means", ("calderon",)))  # fmt: skip
    if e.probes is not None and e.probes.attrs["n_tests"]:
        rested = int(e.probes["n"].max())
        methods.append((f"Controls rest on up to {rested:,} items, with {e.probes.attrs['method']}", ("jackknife",)))
        methods.append((f"Holm's method corrects for their {e.probes.attrs['n_tests']} tests", ("holm",)))
        methods.append(("A score stays where its whole interval lies inside a margin stated beforehand",
                        ("schuirmann",)))  # fmt: skip
    if "calibration" in card.tables:
        methods.append((f"Calibration: {card.tables['calibration'].attrs['method']}; the map to the truth's scale is"
                        " isotonic, fitted on the other half of the items", ("isotonic",)))  # fmt: skip
    if any(part.name == "failures" for part in card.parts):
        methods.append(("Shares of failures have Wilson intervals", ("wilson",)))
    methods.append((f"Computed with vjudge {vjudge.__version__}, seed {options['seed']}", ()))
    for _, keys in methods:
        for key in keys:
            if key in STATISTICS:
                author, title, where, year = STATISTICS[key].split("|")
                sources[key] = _entry(key, author, title, where, year)


def _decoding(facts: Mapping[str, Any]) -> list[str]:
    """What a manifest says of weights, decoding and versions; that there is none is said too."""
    if not facts:
        return ["The run does not record the judge's revision and decoding; its authors' publications may"]
    decoding, versions = dict(facts.get("decoding") or {}), dict(facts.get("versions") or {})
    if not decoding:
        how = "one forward pass that reads the distribution over the scores"
    elif decoding.get("temperature"):
        how = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in decoding.items())
    else:
        how = f"greedy decoding, at most {decoding.get('max_new_tokens')} new tokens"
    lines = [f"Verdicts were drawn in {facts.get('mode')} mode by {how}"]
    names = {"weights": "weights", "model": "model", "dtype": "precision", "quantization": "quantization",
             "engine": "engine", "device": "device"}  # fmt: skip
    parts = [
        f"{words} {str(facts[name])[: 12 if name == 'weights' else 60]}"
        for name, words in names.items()
        if facts.get(name)
    ]
    parts += [f"{name} {version}" for name, version in versions.items() if name != "vjudge"]
    if fingerprint := (facts.get("collection") or {}).get("fingerprint"):
        parts.append(f"collection fingerprint {str(fingerprint)[:12]}")
    return [*lines, f"The run's manifest has {', '.join(parts)}"] if parts else lines


def _sources(sources: dict[str, str], citation: str) -> tuple[str, ...]:
    """Enter the papers that a citation names, and return their keys."""
    keys = []
    for text in citation.split(";"):
        match = ARXIV.match(text.strip())
        number = match["id"] if match else ""
        author = (match["author"] if match else "").removesuffix(" et al.").strip()
        key = re.sub(r"[^a-z]", "", author.lower())[:20] + (number[:2] or "")
        key = key or f"source{len(sources) + 1}"
        others = author + (" and others" if match and "et al" in match["author"] else "")
        if match:
            title = latex(match["title"] or f"arXiv {number}")
            sources[key] = _entry(key, latex(others.replace(" et al", "")), title, f"arXiv:{number}", f"20{number[:2]}")
        else:
            sources[key] = _entry(key, "", latex(text.strip()), "", "")
        keys.append(key)
    return tuple(keys)


def _entry(key: str, author: str, title: str, where: str, year: str) -> str:
    """A BibTeX entry; BibTeX counts braces even behind a backslash."""
    fields = {"author": author, "title": f"{{{title}}}", "howpublished": where, "year": year}
    lines = [f"  {name} = {{{_even(value)}}}" for name, value in fields.items() if value]
    return f"@misc{{{key},\n" + ",\n".join(lines) + "\n}\n"


def _even(value: str) -> str:
    return value.replace(r"\{", "(").replace(r"\}", ")")
