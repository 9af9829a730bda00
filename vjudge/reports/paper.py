"""The folder for a paper: figures at the venue's width, tables, a methods paragraph, references, and a main.tex.

main.tex             compiles by itself; a paper takes the parts over with \\input
methods.tex          what was done, from the run's manifest and what each table says of itself
references.bib       the judge's paper, the data's, and those of the statistics
tables/, figures/    LaTeX and CSV; PDF, SVG, PNG, caption and data of each
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from vjudge import plots
from vjudge.metrics._tables import format_p
from vjudge.plots.save import latex
from vjudge.plots.style import clean
from vjudge.reports.card import Card, interval_text, ways

READINGS = {"moves, as it must": "moves", "moves, though it must stay": "moves (must stay)",
            "stays, though it must move": "stays (must move)", "described": ""}  # fmt: skip

MAIN = r"""%% It compiles by itself (pdflatex, bibtex, pdflatex twice); a paper takes over its parts with \input.
\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[textwidth=%(width).2fin,textheight=9in]{geometry}
\usepackage{booktabs,graphicx}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
%(letters)s
%% A table wider than the page is made smaller; a narrower one stays as it is.
\newsavebox{\wide}
\let\plain\tabular\let\endplain\endtabular
\renewenvironment{tabular}[2][c]{\begin{lrbox}{\wide}\plain[#1]{#2}}{\endplain\end{lrbox}%%
  \ifdim\wd\wide>\linewidth\resizebox{\linewidth}{!}{\usebox{\wide}}\else\usebox{\wide}\fi}
\begin{document}
\section*{%(title)s}
\input{methods}

%(body)s
\bibliographystyle{plain}
\bibliography{references}
\end{document}
"""
FIGURE = r"""\begin{figure}[p]
\centering
\includegraphics{figures/%(name)s}
\caption{%(caption)s}
\label{fig:%(name)s}
\end{figure}
"""
# For pdflatex, which has no such letters; \u8: is how LaTeX looks one up.
LETTER = (
    r"\ifdefined\DeclareUnicodeCharacter\ifcsname u8:\detokenize{%s}\endcsname\else"
    r"\DeclareUnicodeCharacter{%04X}{%s}\fi\fi"
)
LETTERS = {"−": r"\ensuremath{-}", "ρ": r"\ensuremath{\rho}", "τ": r"\ensuremath{\tau}", "≤": r"\ensuremath{\le}"}


def write_paper(card: Card, folder: Path) -> None:
    """Write the folder for a paper."""
    folder.mkdir(parents=True, exist_ok=True)
    body = [r"\begingroup\scriptsize\setlength{\tabcolsep}{3pt}"]
    if "agreement" in card.tables:
        table = card.tables["agreement"]
        caption = plots.caption(f"Correlation with {card.truth}, the best of a column in bold", *ways(table))
        plots.save_correlations(
            table, "agreement", caption=caption, intervals=True, folder=folder / "tables", precision=2
        )
        body.append(r"\input{tables/agreement}")
    parts = {f"card{place or ''}": frame for place, frame in enumerate(_pages(card))}
    for name, frame in parts.items():
        caption = f"Report card of {card.judge} on {card.collection}" + ("" if name == "card" else ", continued")
        plots.save_table(frame, name, caption=caption + ". p: after Holm's correction.", folder=folder / "tables")
        body.append(rf"\input{{tables/{name}}}")
    body.append(r"\endgroup")
    for picture in card.pictures:
        files: dict[str, Any] = dict(caption=picture.caption, data=picture.data, folder=folder / "figures")
        paths = plots.save_figure(picture.figure, picture.name, **files)
        caption = paths["txt"].read_text(encoding="utf-8").strip()
        body.append(FIGURE % {"name": picture.name, "caption": latex(caption)})
    if card.absent:
        lines = [rf"\item {latex(what)}: {latex(why)}" for what, why in card.absent]
        body += [r"\paragraph{Not measured}\begin{itemize}", *lines, r"\end{itemize}"]
    sentences = [
        latex(text) + (rf"~\cite{{{','.join(keys)}}}" if keys else "") + "." for text, keys in card.methods if text
    ]
    (folder / "methods.tex").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    (folder / "references.bib").write_text("\n".join(card.sources.values()), encoding="utf-8")
    everything = "".join(
        path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.tex")) if path.name != "main.tex"
    )
    everything += "\n".join([*body, *card.sources.values(), card.judge])
    letters = [LETTER % (letter, ord(letter), LETTERS.get(letter, f"[U+{ord(letter):04X}]"))
               for letter in sorted(set(everything)) if ord(letter) > 0x7F]  # fmt: skip
    fields = {"width": plots.width(card.venue, "full"), "title": latex(f"Report card: {card.judge}"),
              "body": "\n".join(body), "letters": "\n".join(letters)}  # fmt: skip
    (folder / "main.tex").write_text(MAIN % fields, encoding="utf-8")


def _pages(card: Card, most: int = 34) -> list[pd.DataFrame]:
    """The card's numbers as tables of a page each."""
    lines = [
        {
            "measure": clean(row["measure"]),
            "estimate": interval_text(row),
            "unit": row["unit"].removeprefix("score "),
            "n": row["n"],
            "p": "" if pd.isna(row["p_holm"]) else format_p(row["p_holm"]).removeprefix("= "),
            "reading": READINGS.get(row["reading"], row["reading"].split(";")[0]),
        }
        for _, row in card.table.iterrows()
    ]
    frame = pd.DataFrame(lines)
    frame = frame.loc[:, (frame != "").any()]
    return [frame[start : start + most].reset_index(drop=True) for start in range(0, len(lines), most)]
