"""Build the site: the API reference (pdoc), the notebooks and the pages, as one folder of static files.

`make docs` writes it to `site/`; `index.html` is the front page. Nothing is loaded from a network.
"""

from __future__ import annotations

import argparse
import html
import re
import shutil
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import nbformat
import pdoc
from markdown_it import MarkdownIt
from nbconvert import HTMLExporter

import vjudge

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.html",
    "notebooks/README.md": "notebooks/index.html",
    "figures/README.md": "figures/index.html",
    "vjudge/README.md": "package.html",
    "tests/README.md": "verified.html",
    "CONTRIBUTING.md": "contributing.html",
}
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>
body {{ font: 16px/1.55 system-ui, sans-serif; color: #222; max-width: 980px; margin: 0 auto; padding: 0 24px 48px }}
nav {{ padding: 14px 0; border-bottom: 1px solid #ddd; margin-bottom: 20px }} nav a {{ margin-right: 18px }}
table {{ border-collapse: collapse }} td, th {{ border-bottom: 1px solid #e4e4e4; padding: 4px 12px 4px 0; text-align: left;
vertical-align: top }} pre {{ background: #f6f6f6; padding: 10px; overflow-x: auto }} img {{ max-width: 100% }}
</style></head><body><nav>{links}</nav>{body}</body></html>
"""
LINKS = {
    "index.html": "vjudge",
    "notebooks/index.html": "Notebooks, How do I ...?",
    "figures/index.html": "Gallery",
    "api/vjudge.html": "Reference",
    "package.html": "The package",
    "verified.html": "What was verified",
}


def write_page(source: str, target: str, site: Path) -> None:
    """A Markdown page of the repository as a page of the site, its links turned to the site's."""
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    body = markdown.render((ROOT / source).read_text(encoding="utf-8"))
    body = re.sub(
        r"<h([1-6])>(.*?)</h\1>",
        lambda match: f'<h{match[1]} id="{slug(match[2])}">{match[2]}</h{match[1]}>',
        body,
    )
    folder = (ROOT / source).parent

    def turned(match: re.Match[str]) -> str:
        link, _, anchor = match[2].partition("#")
        if not link or "://" in link:
            return match[0]
        path = (folder / link).resolve().relative_to(ROOT).as_posix()
        path = PAGES.get(path, path.replace(".ipynb", ".html"))
        if not (site / path).exists() and path not in PAGES.values():
            copy(path, site)
        up = "../" * target.count("/")
        return f'{match[1]}="{up}{path}{"#" + anchor if anchor else ""}"'

    body = re.sub(r'(href|src)="([^"]+)"', turned, body)
    up = "../" * target.count("/")
    links = "".join(f'<a href="{up}{path}">{name}</a>' for path, name in LINKS.items())
    page = site / target
    page.parent.mkdir(parents=True, exist_ok=True)
    title = html.escape(f"vjudge: {source}")
    page.write_text(PAGE.format(title=title, links=links, body=body), encoding="utf-8")


def slug(title: str) -> str:
    """A heading's anchor, as GitHub names it."""
    text = re.sub(r"<[^>]+>", "", title).lower()
    return re.sub(r"[^\w\- ]", "", html.unescape(text)).replace(" ", "-")


def copy(path: str, site: Path) -> None:
    """A file or folder of the repository that a page links to."""
    source = ROOT / path
    target = site / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_file():
        shutil.copy(source, target)
    elif source.is_dir():
        listing = "".join(f"<li>{html.escape(file.name)}</li>" for file in sorted(source.iterdir()))
        target.mkdir(parents=True, exist_ok=True)
        (target / "index.html").write_text(f"<ul>{listing}</ul>", encoding="utf-8")


def write_notebook(path: Path, site: Path) -> None:
    """A stored notebook with its outputs."""
    exporter = HTMLExporter(template_name="basic")
    body, _ = exporter.from_notebook_node(nbformat.read(path, as_version=4))
    body = re.sub(r'href="(\w+)\.ipynb', r'href="\1.html', body)
    links = "".join(f'<a href="../{target}">{name}</a>' for target, name in LINKS.items())
    page = PAGE.format(title=html.escape(path.stem), links=links, body=body)
    (site / "notebooks" / f"{path.stem}.html").write_text(page, encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "site")
    site = parser.parse_args(arguments).out.resolve()
    shutil.rmtree(site, ignore_errors=True)
    for folder in ("notebooks", "figures"):
        (site / folder).mkdir(parents=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        write_notebook(path, site)
    pdoc.render.configure(docformat="google", search=False, show_source=False)
    rooms = ["vjudge", *(f"vjudge.{room.name}" for room in iter_modules(vjudge.__path__))]
    for room in map(
        import_module, rooms
    ):  # names are brought when first used, which pdoc does not do
        for name in getattr(room, "__all__", ()):
            with suppress(ImportError):
                vars(room)[name] = getattr(room, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of annotations that need an optional library
        pdoc.pdoc(*rooms, output_directory=site / "api")
    for source, target in PAGES.items():
        write_page(source, target, site)
    print(f"{len(list(site.rglob('*.html')))} pages: {site / 'index.html'}")


if __name__ == "__main__":
    main()
