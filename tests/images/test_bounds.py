"""One picture of a call: looked at once, opened when it is needed, within stated bounds of time and memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from test_open import encode

from vjudge import images
from vjudge.data import fingerprint
from vjudge.images import ImageError, Picture, Pictures, open_image, pad_to_square, picture


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "a.png").write_bytes(encode(Image.effect_noise((9, 7), 90).convert("RGB")))
    return tmp_path / "a.png"


def test_a_picture_is_its_content_whatever_its_source(file: Path) -> None:
    pictures = Pictures()
    data = file.read_bytes()
    made = [pictures(source) for source in (file, str(file), data, {"bytes": None, "path": str(file)}, {"bytes": data})]
    assert len({each.key for each in made}) == 1 and {each.size for each in made} == {(9, 7)}
    inside = [pictures(source) for source in (open_image(file), np.asarray(open_image(file)))]
    assert len({each.key for each in inside}) == 1 and inside[0].key != made[0].key
    assert len({images.fingerprint(each.open()) for each in made + inside}) == 1
    assert picture(made[0]) is made[0] and pictures(made[0]) is made[0]
    assert not any(look.source for look in pictures._looked.values() if isinstance(look, Picture)), "bytes are not held"


def test_a_file_that_fits_is_read_once_and_another_read_again_must_be_the_same(file: Path) -> None:
    kept, unkept = Pictures()(file), Pictures(keep_bytes=0)(file)
    before = unkept.open().tobytes()
    file.write_bytes(encode(Image.new("RGB", (9, 7))))
    assert kept.open().tobytes() == before
    with pytest.raises(ImageError, match=r"a.png' has changed since it was first read; start again"):
        unkept.open()
    file.unlink()
    with pytest.raises(ImageError, match="does not exist"):
        unkept.open()


def test_a_broken_file_is_looked_at_once_and_told_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    pictures = Pictures()
    for _ in range(3):
        with pytest.raises(ImageError, match=r"bad.png' is not an image of a known format"):
            pictures(tmp_path / "bad.png")
        monkeypatch.setattr(images, "_content", lambda source: pytest.fail("read again"))


@given(arrays.arrays(st.sampled_from([np.uint8, np.uint16, np.bool_]), st.tuples(st.integers(1, 9), st.integers(1, 9))))
@settings(max_examples=60, deadline=None)
def test_any_array_is_the_same_picture_as_its_file(array: np.ndarray) -> None:
    shown = open_image(array)
    assert shown.mode == "RGB" and shown.size == array.shape[::-1] == Picture(array).size
    if array.dtype != np.bool_:
        assert open_image(encode(Image.fromarray(array))).tobytes() == shown.tobytes()


def test_a_file_of_three_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.png"
    path.touch()
    os.truncate(path, 3 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for call in (open_image, Picture, Pictures()):
        with pytest.raises(ImageError, match="has 3,221,225,472 bytes, more than the limit of 268,435,456; shrink it"):
            call(str(path))
    row = {"id": "a", "instruction": "x", "response": "y", "images": [str(path)]}
    assert fingerprint([row]) != fingerprint([row | {"images": []}])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 19  # KiB
    path.unlink()


READ = """
import resource, sys
from vjudge.images import open_image
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
size = open_image(sys.argv[1]).size
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (size[0] * size[1]))
"""


@pytest.mark.parametrize(("kind", "most"), [("I;16", 10), ("RGBA", 10), ("RGB", 10), ("LA", 14)])
def test_decoding_takes_three_pictures_of_memory_at_most(kind: str, most: int, tmp_path: Path) -> None:
    level = Image.linear_gradient("L").resize((4096, 4096))
    wide = Image.fromarray(np.asarray(level).astype(np.uint16) * 257)
    (wide if kind == "I;16" else level.convert(kind)).save(tmp_path / "a.png", compress_level=1)
    command = [sys.executable, "-c", READ, str(tmp_path / "a.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert float(done.stdout) < most  # bytes a pixel: copies of four, and what the file takes


def test_a_sliver_is_padded_within_the_limit_of_pixels() -> None:
    for size in ((20_000, 1), (1, 60_000), (9_000, 100)):
        square = pad_to_square(Image.new("RGB", size, "red"), (0, 0, 0))
        assert square.width == square.height and square.width**2 <= images.MAX_PIXELS
        assert square.getextrema()[0] == (0, 255)
    plain = Image.effect_noise((30, 20), 90).convert("RGB")
    square = pad_to_square(plain, (1, 2, 3))
    assert square.size == (30, 30) and square.crop((0, 5, 30, 25)).tobytes() == plain.tobytes()
    assert square.getpixel((0, 0)) == (1, 2, 3) and pad_to_square(square, (0, 0, 0)) is square
