"""The picture of the front page: a blind review in JupyterLab, as Chromium shows it, beside two stored figures.

`make picture` writes figures/front.png; it needs Debian's package chromium.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops, ImageOps

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import lab  # noqa: E402

FIGURES = [ROOT / f"figures/{name}.png" for name in ("correlation_raters", "correlation_judges")]
TARGET = ROOT / "figures/front.png"
WIDTH = 1800  # pixels of the picture
REVIEW_WIDTH = 900  # of its left part
GAP = 50  # between the parts
CELL = """
import vjudge as vj
from vjudge import probes
from vjudge.review import Review, Reviewer

items = vj.load_collection("scenes", split="test", limit=30)
judge = vj.load_judge("tiny")
runs = {"tiny": judge.grade(items, progress=False), "tiny, blanked": judge.grade(probes.blanked(items), progress=False)}
review = Review(items, runs, out="votes", annotator="me", blind=True)
Reviewer(review, image_size=260)
"""


def photograph() -> Image.Image:
    """The review after one vote."""
    with tempfile.TemporaryDirectory() as folder, lab.jupyterlab(Path(folder)) as address:
        lab.write_notebook(Path(folder, "review.ipynb"), CELL)
        with lab.chromium(width=1250, height=1500, scale=1.5) as page:
            notebook = lab.Notebook(page, address, "review.ipynb")
            notebook.run_all()
            tool = page.locator(".vj-reviewer")
            tool.locator("button:text-is('1')").click()
            tool.get_by_text("Your vote: score 1").first.wait_for()
            return Image.open(io.BytesIO(tool.screenshot())).convert("RGB")


def trimmed(picture: Image.Image) -> Image.Image:
    """Without the white around it."""
    return picture.crop(
        ImageChops.difference(picture, Image.new("RGB", picture.size, "white")).getbbox()
    )


def scaled(picture: Image.Image, width: int) -> Image.Image:
    return picture.resize(
        (width, round(picture.height * width / picture.width)), Image.Resampling.LANCZOS
    )


def main() -> None:
    review = scaled(trimmed(photograph()), REVIEW_WIDTH)
    figures = []
    for path in FIGURES:
        figure = trimmed(Image.open(path).convert("RGB"))
        figures.append(scaled(figure, WIDTH - REVIEW_WIDTH - GAP))
    height = sum(figure.height for figure in figures) + GAP
    both = Image.new("RGB", (WIDTH, max(review.height, height)), "white")
    both.paste(review, (0, (both.height - review.height) // 2))
    top = (both.height - height) // 2
    for figure in figures:
        both.paste(figure, (REVIEW_WIDTH + GAP, top))
        top += figure.height + GAP
    both = ImageOps.expand(both, 16, "white")
    both = both.quantize(256, dither=Image.Dither.FLOYDSTEINBERG)  # a third of the bytes
    both.save(TARGET, optimize=True)
    print(
        f"{TARGET.relative_to(ROOT)}: {both.width} x {both.height}, {TARGET.stat().st_size / 1000:.0f} kB"
    )


if __name__ == "__main__":
    main()
