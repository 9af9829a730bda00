"""Images: every mode comes out as a viewer would see it, and nothing hostile gets through."""

from __future__ import annotations

import base64
import io
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vjudge.images import ImageError, Picture, data_uri, fingerprint, open_image, thumbnail

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def two_pixels(left: tuple[int, ...] = RED, right: tuple[int, ...] = BLUE, mode: str = "RGB") -> Image.Image:
    image = Image.new(mode, (2, 1), left)
    image.putpixel((1, 0), right)
    return image


def encode(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def pixels(image: Image.Image) -> list[tuple[int, ...]]:
    assert image.mode == "RGB"
    return [tuple(row) for row in np.asarray(image).reshape(-1, 3).tolist()]


def test_every_kind_of_source_gives_the_same_picture(tmp_path: Path) -> None:
    image = two_pixels()
    raw = encode(image)
    path = tmp_path / "two.png"
    path.write_bytes(raw)
    sources = [
        image,
        raw,
        path,
        str(path),
        "data:image/png;base64," + base64.b64encode(raw).decode(),
        {"bytes": raw, "path": None},
        {"bytes": raw, "path": "gone.png"},
        {"bytes": None, "path": str(path)},
        np.asarray(image),
        Image.open(path),
    ]
    assert {fingerprint(open_image(source)) for source in sources} == {fingerprint(image)}
    assert {Picture(source).size for source in sources} == {(2, 1)}


def test_the_result_is_independent_of_its_source(tmp_path: Path) -> None:
    image = two_pixels()
    opened = open_image(image)
    image.putpixel((0, 0), GREEN)
    assert pixels(opened) == [RED, BLUE]
    (tmp_path / "two.png").write_bytes(encode(two_pixels()))
    own = Image.open(tmp_path / "two.png")
    Picture(own)
    open_image(own)
    assert own.getpixel((1, 0)) == BLUE


# The stored picture is red left of blue; EXIF tag 274 says how a viewer must turn it.
@pytest.mark.parametrize(
    ("orientation", "size", "expected"),
    [
        (1, (2, 1), [RED, BLUE]),
        (2, (2, 1), [BLUE, RED]),
        (3, (2, 1), [BLUE, RED]),
        (6, (1, 2), [RED, BLUE]),
        (8, (1, 2), [BLUE, RED]),
    ],
)
def test_exif_orientation_is_applied(orientation: int, size: tuple[int, int], expected: list[tuple[int, ...]]) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    opened = open_image(encode(two_pixels(), exif=exif))
    assert opened.size == size
    assert pixels(opened) == expected


def test_modes_convert_as_a_viewer_shows_them() -> None:
    grey16 = Image.fromarray(np.array([[0, 65535, 32896]], np.uint16))
    palette = two_pixels().convert("P")
    cases = {
        "L": (Image.fromarray(np.array([[0, 128]], np.uint8)), [(0, 0, 0), (128, 128, 128)]),
        "1": (Image.fromarray(np.array([[0, 255]], np.uint8)).convert("1"), [(0, 0, 0), WHITE]),
        "16-bit": (grey16, [(0, 0, 0), WHITE, (128, 128, 128)]),
        "P": (palette, [RED, BLUE]),
        "RGBA": (two_pixels((255, 0, 0, 255), (0, 0, 0, 0), "RGBA"), [RED, WHITE]),
        "half": (two_pixels((255, 0, 0, 128), (0, 0, 0, 255), "RGBA"), [(255, 127, 127), (0, 0, 0)]),
        "LA": (two_pixels((0, 0), (0, 255), "LA"), [WHITE, (0, 0, 0)]),
        "float": (Image.fromarray(np.array([[0.0, 0.5, 1.0]], np.float32)), [(0, 0, 0), (128, 128, 128), WHITE]),
    }
    for name, (image, expected) in cases.items():
        source = image if name == "float" else encode(image)
        assert pixels(open_image(source)) == expected, name


def test_cmyk_jpeg_and_transparent_palette_and_first_frame() -> None:
    cmyk = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    red, green, blue = pixels(open_image(encode(cmyk, "JPEG", quality=95)))[0]
    assert red > 240 and green < 15 and blue < 15
    transparent = encode(two_pixels().convert("P", palette=Image.Palette.ADAPTIVE), transparency=0)
    assert WHITE in pixels(open_image(transparent))
    frames = [Image.new("RGB", (3, 3), colour) for colour in (RED, GREEN)]
    gif = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert pixels(open_image(gif)) == [RED] * 9


def test_numpy_arrays_scale_only_where_the_scale_is_certain() -> None:
    assert pixels(open_image(np.array([[True, False]]))) == [WHITE, (0, 0, 0)]
    assert pixels(open_image(np.array([[0.0, 1.0]]))) == [(0, 0, 0), WHITE]
    assert pixels(open_image(np.full((1, 1, 1), 7, np.uint8))) == [(7, 7, 7)]
    for array in (np.array([[0.0, 2.0]]), np.array([[0.0, np.nan]]), np.array([[3, 4]]), np.zeros(3, np.uint8)):
        with pytest.raises(ImageError):
            open_image(array)


def test_bad_images_say_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    jpeg = encode(Image.effect_noise((64, 64), 50), "JPEG")
    (tmp_path / "text.png").write_text("no image")
    cases = [
        (tmp_path / "absent.png", "does not exist"),
        (tmp_path, "not a file"),
        (tmp_path / "text.png", "not an image of a known format"),
        (b"", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "not an image of a known format"),
        (jpeg[: len(jpeg) // 2], "cannot be decoded"),
        ("https://example.org/a.png", "is a URL"),
        ("data:image/png;base64,***", "not a base64 data URI"),
        ({"bytes": None, "path": None}, "neither bytes nor a path"),
        (3, "cannot be a int"),
        (None, "cannot be a NoneType"),
    ]
    for source, message in cases:
        with pytest.raises(ImageError, match=message):
            open_image(source)


def test_the_pixel_limit_holds_before_decoding() -> None:
    # A header that claims 72 megapixels over almost no data: decoding it would fail another way.
    header = bytearray(encode(Image.new("RGB", (1, 1))))
    header[16:24] = (12_000).to_bytes(4, "big") + (6_000).to_bytes(4, "big")
    header[29:33] = zlib.crc32(header[12:29]).to_bytes(4, "big")
    for look in (open_image, Picture):
        with pytest.raises(ImageError, match="12000 x 6000 pixels, more than the limit of 67,108,864"):
            look(bytes(header))
    with pytest.raises(ImageError, match="limit of 1"):
        open_image(two_pixels(), max_pixels=1)


def test_a_look_sees_a_broken_checksum_without_decoding() -> None:
    raw = bytearray(encode(Image.effect_noise((32, 32), 50)))
    raw[60] ^= 255
    with pytest.raises(ImageError, match="damaged"):
        Picture(bytes(raw))


def test_thumbnail_and_data_uri() -> None:
    image = Image.linear_gradient("L").convert("RGB").resize((400, 200))
    assert thumbnail(image, size=100).size == (100, 50)
    assert thumbnail(image, size=1000).size == (400, 200)
    assert image.size == (400, 200)
    assert fingerprint(open_image(data_uri(image))) == fingerprint(image)
    small = data_uri(image, format="jpeg", size=64)
    assert small.startswith("data:image/jpeg;base64,") and open_image(small).size == (64, 32)
    with pytest.raises(ValueError, match='use "png" or "jpeg"'):
        data_uri(image, format="gif")


def test_fingerprint_tells_pictures_apart() -> None:
    wide, tall = Image.new("RGB", (2, 1)), Image.new("RGB", (1, 2))
    assert len({fingerprint(image) for image in (wide, tall, two_pixels(), Image.new("L", (6, 1)))}) == 4
