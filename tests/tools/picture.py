"""The picture of the front page: a blind review in JupyterLab, as Chromium shows it, beside a stored figure.

`make picture` writes figures/front.png; it needs Debian's package chromium.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import lab  # noqa: E402

FIGURE = ROOT / "figures/length_battery_effects.png"
TARGET = ROOT / "figures/front.png"
WIDTH, GAP = 1800, 60  # pixels: of the picture, and between its halves
REVIEW = """
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
        lab.write_notebook(Path(folder, "review.ipynb"), REVIEW)
        with lab.chromium(width=1250, height=1500, scale=1.5) as page:
            notebook = lab.Notebook(page, address, "review.ipynb")
            notebook.run_all()
            tool = page.locator(".vj-reviewer")
            tool.locator("button:text-is('1')").click()
            tool.get_by_text("Your vote: score 1").first.wait_for()
            return Image.open(io.BytesIO(tool.screenshot())).convert("RGB")


def trimmed(picture: Image.Image) -> Image.Image:
    """Without the white around it."""
    return picture.crop(ImageChops.difference(picture, Image.new("RGB", picture.size, "white")).getbbox())


def main() -> None:
    review, figure = trimmed(photograph()), trimmed(Image.open(FIGURE).convert("RGB"))
    figure = figure.resize(
        (round(figure.width * review.height / figure.height), review.height), Image.Resampling.LANCZOS
    )
    both = Image.new("RGB", (review.width + GAP + figure.width, review.height), "white")
    both.paste(review, (0, 0))
    both.paste(figure, (review.width + GAP, 0))
    both = both.resize((WIDTH, round(both.height * WIDTH / both.width)), Image.Resampling.LANCZOS)
    both.quantize(128).save(TARGET, optimize=True)
    print(f"{TARGET.relative_to(ROOT)}: {both.width} x {both.height}, {TARGET.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
