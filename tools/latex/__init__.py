"""Articles of a one-column and a two-column venue around saved figures and tables, compiled."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Literal, NamedTuple

from pandas import DataFrame

from vjudge.plots.style import VENUES

ARTICLES = {"neurips": "", "acl": "twocolumn"}  # venue -> options of its document class
INSTALL = "texlive-latex-recommended texlive-latex-extra texlive-fonts-recommended"
MISSING = (
    "there is no pdflatex here: install TeX Live, on Debian and Ubuntu by "
    f"`apt-get install --no-install-recommends {INSTALL}`"
)
GAP = 0.24  # inches between two columns
MOST_OVER = 2.0  # points that a box may stick out: less is not seen
# name of a fault -> its line in pdflatex's log
FAULTS = {
    "overfull": re.compile(r"^Overfull \\[hv]box \(([\d.]+)pt too (?:wide|high)\).*", re.M),
    "error": re.compile(r"^!.*(?:\n(?!!).*){0,4}", re.M),
    "missing": re.compile(r"^LaTeX Warning: (?:File|Reference) `[^']*'.*", re.M),
    "too large": re.compile(r"^LaTeX Warning: Float too large.*", re.M),
    "label": re.compile(r"^LaTeX Warning: Label `[^']*' multiply defined.*", re.M),
    "character": re.compile(r"^Missing character:.*", re.M),
}


class Fault(NamedTuple):
    """What is wrong with one file in one article."""

    article: str
    file: str
    kind: Literal["overfull", "error", "missing", "too large", "label", "character"]
    message: str


def has_pdflatex() -> bool:
    """Whether pages can be compiled on this machine."""
    return shutil.which("pdflatex") is not None


def article(venue: str, folder: Path) -> str:
    """The source of an article as wide as a venue's page, which shows every `.tex` of a folder.

    Each file stands on pages of its own, so that no float waits for another one.
    """
    size = VENUES[venue]
    files = sorted(path for path in folder.glob("*.tex"))
    lines = [
        rf"\documentclass[10pt,{ARTICLES[venue]}]{{article}}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage{mathptmx}",
        rf"\usepackage[letterpaper,textwidth={size.full}in,textheight={size.height}in]{{geometry}}",
        rf"\setlength{{\columnsep}}{{{GAP}in}}",
        r"\usepackage{graphicx,booktabs,adjustbox}",
        r"\usepackage[breakable]{tcolorbox}",
        rf"\graphicspath{{{{{folder.resolve().as_posix()}/}}}}",
        r"\begin{document}",
    ]
    for path in files:
        lines += [
            rf"\typeout{{vjudge-file {path.name}}}",
            rf"\noindent{{\footnotesize\detokenize{{{path.name}}}}}\par",
            rf"\input{{{path.resolve().as_posix()}}}",
            r"\clearpage",
        ]
    return "\n".join([*lines, r"\end{document}", ""])


def compile_folder(folder: Path, out: Path) -> DataFrame:
    """Compile a folder's `.tex` files in each article; the PDFs stand in `out`.

    Returns:
        One row a fault: article, file, kind, message. No row means that all can be pasted.

    Raises:
        FileNotFoundError: no pdflatex (the message says what to install), or no `.tex` file.
    """
    if not has_pdflatex():
        raise FileNotFoundError(MISSING)
    if not list(folder.glob("*.tex")):
        raise FileNotFoundError(f"{folder} has no .tex file: save results into it")
    out.mkdir(parents=True, exist_ok=True)
    faults: list[Fault] = []
    for venue in ARTICLES:
        (out / f"{venue}.tex").write_text(article(venue, folder), encoding="utf-8")
        command = ["pdflatex", "-no-shell-escape", "-interaction=nonstopmode", f"{venue}.tex"]
        environment = {"max_print_line": "1000"}  # a message stays on one line of the log
        for _ in range(2):  # the second run has the labels of the first
            done = subprocess.run(
                ["env", *(f"{k}={v}" for k, v in environment.items()), *command],
                cwd=out,
                capture_output=True,
                timeout=600,
                check=False,
            )
        log = (out / f"{venue}.log").read_text(encoding="utf-8", errors="replace")
        faults += faults_in(log, venue)
        if done.returncode and not any(fault.article == venue for fault in faults):
            faults.append(Fault(venue, "", "error", f"pdflatex ended with {done.returncode}"))
    return DataFrame(faults, columns=Fault._fields)


def faults_in(log: str, venue: str) -> list[Fault]:
    """What pdflatex's log says of each file; a box that sticks out by at most 2 pt is none.

    >>> log = "vjudge-file a.tex\\nOverfull \\\\hbox (16.5pt too wide) in paragraph at lines 1--2"
    >>> [(fault.file, fault.kind) for fault in faults_in(log, "acl")]
    [('a.tex', 'overfull')]
    """
    faults = []
    parts = re.split(r"^vjudge-file (\S+)$", log, flags=re.M)
    names = ["", *parts[1::2]]
    for name, text in zip(names, parts[::2], strict=True):
        for kind, pattern in FAULTS.items():
            for match in pattern.finditer(text):
                if kind == "overfull" and float(match[1]) <= MOST_OVER:
                    continue
                faults.append(Fault(venue, name, kind, " ".join(match[0].split())))  # type: ignore[arg-type]
    return faults
