"""Write into the notebooks where Colab gets vjudge from: a badge that opens them there, and a line that installs it.

`make repository URL=https://github.com/YOU/REPOSITORY` takes that repository, `make repository` the checkout's own
`origin`, and `make repository URL=` none: the badges go, and the first code cell says what to run in Colab.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path
from typing import Any

import nbformat

BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
HTTPS = re.compile(
    r"https://([a-z0-9-]+(?:\.[a-z0-9-]+)+)((?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)+)/?", re.ASCII
)
SSH = re.compile(r"(?:ssh://git@([^/:]+)/|git@([^/:]+):)(.+)", re.ASCII | re.DOTALL)

INSTALL = '%pip install -q "vjudge{extras} @ git+{url}"'
EXPLAIN = '# On Colab, first: %pip install -q "vjudge{extras} @ git+URL_OF_YOUR_REPOSITORY"'
SET_UP = re.compile(r'(?:# On Colab, first: )?%pip install -q "vjudge(\[[a-z,]+\])? @ git\+\S+"')


def read_url(text: str) -> str | None:
    """The https address of a repository, without ".git", also of an ssh one; None where the text is empty.

    It goes into a shell line and into Markdown, so nothing but letters, digits, "-", "_", "." and "/" may stand in it.
    Errors do not repeat an address: it may hold a password.
    """
    if not text:
        return None
    ssh = SSH.fullmatch(text)
    match = HTTPS.fullmatch(f"https://{ssh[1] or ssh[2]}/{ssh[3]}" if ssh else text)
    if match is None:
        raise ValueError(
            "not a repository's public address such as https://github.com/OWNER/NAME, without name or password"
        )
    return f"https://{match[1]}{match[2]}".removesuffix(".git")


def badge(url: str | None, name: str) -> str:
    """The line that opens the notebook in Colab, which reads GitHub alone; "" for another host."""
    github = re.fullmatch(r"https://github\.com(/[^/]+/[^/]+)", url or "")
    if not github:
        return ""
    return f"{BADGE}(https://colab.research.google.com/github{github[1]}/blob/main/notebooks/{name}.ipynb)"


def set_up(url: str | None, extras: str) -> str:
    """The set-up cell; `extras` as pip writes them, such as "[gpu,train]" or ""."""
    return (INSTALL if url else EXPLAIN).format(url=url, extras=extras)


def write(notebook: Any, name: str, url: str | None) -> None:
    """Set the badge and the set-up cell of a notebook, and nothing else; the set-up cell keeps its extras."""
    opening, setup = (
        notebook.cells[0],
        next(cell for cell in notebook.cells if cell.cell_type == "code"),
    )
    match = SET_UP.fullmatch(setup.source)
    if match is None or opening.cell_type != "markdown":
        raise ValueError(
            f"{name}: the first cell must be Markdown, and the first code cell must only install vjudge"
        )
    title = opening.source
    while title.startswith(BADGE):
        title = title.partition("\n")[2].lstrip("\n")
    opening.source = "\n\n".join(filter(None, [badge(url, name), title]))
    setup.source = set_up(url, match[1] or "")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--url", help="the repository; '' for none; without it, the checkout's own origin"
    )
    parser.add_argument("notebooks", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    if options.url is not None:
        try:
            url = read_url(options.url)
        except ValueError as error:
            parser.error(f"URL is {error}")
    else:
        url = origin(options.notebooks[0].resolve().parent)
    notebooks = {path: nbformat.read(path, as_version=4) for path in options.notebooks}
    for path, notebook in notebooks.items():
        write(notebook, path.stem, url)
    for path, notebook in notebooks.items():
        nbformat.write(notebook, path)
    badges = "badges" if badge(url, "") else "no badges"  # Colab opens GitHub alone
    print(
        f"{len(notebooks)} notebooks: {badges}, {f'install lines of {url}' if url else 'no install lines'}"
    )


def origin(folder: Path) -> str | None:
    """The checkout's own `origin`; None where it has none that others can install from."""
    git = subprocess.run(
        ["git", "remote", "get-url", "origin"], cwd=folder, capture_output=True, text=True
    )
    try:
        return read_url(git.stdout.strip())
    except ValueError as error:
        print(f"origin is {error}: it is not used.")
        return None


if __name__ == "__main__":
    main()
