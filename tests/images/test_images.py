"""Images: every mode comes out as a viewer would see it, each is looked at once, and nothing hostile gets through."""

import base64
import io
import os
import pickle
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from originals import noise
from vjudge import images
from vjudge.images import (
    ImageError,
    Picture,
    Pictures,
    open_image,
    pad_to_square,
    picture,
    pixel_digest,
)

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)
SIZE = (70, 52)


def two_pixels():
    image = Image.new("RGB", (2, 1), RED)
    image.putpixel((1, 0), BLUE)
    return image


def encode(image, format="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def pixels(image):
    assert image.mode == "RGB"
    return [tuple(row) for row in np.asarray(image).reshape(-1, 3).tolist()]


def kinds():
    """Name -> a file or picture, and the same in RGB as a viewer shows it."""
    rgb = noise(*SIZE)
    few = rgb.quantize(32)
    holed = np.array(few.convert("RGB"))
    holed[np.asarray(few) == 7] = 255
    clear = rgb.copy()
    clear.putalpha(Image.linear_gradient("L").resize(SIZE).point(lambda level: 255 * (level > 99)))
    on_white = Image.composite(rgb, Image.new("RGB", SIZE, "white"), clear.getchannel("A"))
    gray = rgb.convert("L")
    wide = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
    exif = Image.Exif()
    exif[274] = 6  # a viewer turns it a quarter to the right
    turned = rgb.transpose(Image.Transpose.ROTATE_90)
    return {
        "RGB": (encode(rgb), rgb),
        "P with a clear colour": (encode(few, transparency=7), Image.fromarray(holed)),
        "RGBA": (encode(clear), on_white),
        "I;16": (encode(wide), gray.convert("RGB")),
        "EXIF": (encode(turned, exif=exif), rgb),
    }


def test_every_kind_is_seen_as_the_same_picture_in_rgb():
    for kind, (source, plain) in kinds().items():
        assert pixel_digest(open_image(source)) == pixel_digest(plain), kind
        assert Picture(source).size == SIZE, kind


@pytest.mark.parametrize("tag", [*range(12), 255, 65535])
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_size_is_that_of_the_picture_as_opened(tag, format):
    """Above 8 the sides were swapped, so that OneVision read other tokens in silence."""
    exif = Image.Exif()
    exif[274] = tag
    file = encode(noise(*SIZE), format, exif=exif)
    assert Picture(file).size == open_image(file).size
    assert Picture(file).size == (SIZE[::-1] if tag in range(5, 9) else SIZE)
    sent = Picture(file).encoded()
    assert open_image(sent.data).tobytes() == open_image(file).tobytes()
    assert (sent.data == file) is (format != "TIFF" and tag not in range(2, 9))


def test_no_file_that_is_too_large_is_made_twice(monkeypatch):
    """A PNG has no quality: the same one was made for each."""
    made = []
    file = images._file
    monkeypatch.setattr(images, "_file", lambda *how: made.append(file(*how)) or made[-1])
    sent = Picture(noise(60, 40)).encoded("png", 3_000)
    assert sent.change == "re-encoded as png and reduced" and sent.data == made[-1]
    assert len(set(made)) == len(made) > 1


def test_values_without_a_certain_scale_are_refused():
    gray = np.array([[0, 65535, 32896]], np.uint16)
    assert pixels(open_image(gray)) == [(0, 0, 0), WHITE, (128, 128, 128)]
    for array in ([[0.0, 2.0]], [[0.0, np.nan]], [[3, 4]], [0, 0]):
        with pytest.raises(ImageError, match="has no certain scale|is not an image"):
            open_image(np.array(array))


def test_a_picture_is_its_content_whatever_its_source(tmp_path):
    image = two_pixels()
    path = tmp_path / "two.png"
    raw = encode(image)
    path.write_bytes(raw)
    uri = "data:image/png;base64," + base64.b64encode(raw).decode()
    pictures = Pictures()
    dicts = [{"bytes": raw, "path": "gone.png"}, {"bytes": None, "path": str(path)}]
    files = [pictures(source) for source in (raw, path, str(path), uri, *dicts)]
    arrays = [pictures(source) for source in (image, np.asarray(image), Image.open(path))]
    keys = [each.key for each in files + arrays]
    assert keys == [keys[0]] * len(files) + [keys[-1]] * len(arrays) and keys[0] != keys[-1]
    for each in files + arrays:
        assert pixel_digest(each.open()) == pixel_digest(image)
    assert picture(files[0]) is files[0] and pictures(path) is pictures(str(path))


def test_a_file_that_is_read_again_must_be_the_same(tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(encode(two_pixels()))
    known = Pictures()(file)
    held = pickle.loads(pickle.dumps(known))
    file.write_bytes(encode(Image.new("RGB", (2, 1))))
    assert pixels(held.open()) == [RED, BLUE]
    with pytest.raises(ImageError, match="a.png' has changed since it was first read; start again"):
        known.open()


def test_bad_images_say_what_is_wrong_and_what_to_do(tmp_path):
    gray = Image.effect_noise((64, 64), 50)
    jpeg = encode(gray, "JPEG")
    broken = bytearray(encode(gray))
    broken[60] ^= 255  # a wrong checksum
    (tmp_path / "text.png").write_text("no image")
    for source, message in [
        (tmp_path / "absent.png", "does not exist"),
        (tmp_path / "text.png", "not an image of a known format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "not an image of a known format"),
        (jpeg[: len(jpeg) // 2], "cannot be decoded"),
        (Image.new("RGB", (0, 0)), "0 x 0 pixels"),
        ("https://example.org/a.png", "is a URL"),
        ("data:image/png;base64,***", "not a base64 data URI"),
        ({"bytes": None, "path": None}, "cannot be a NoneType"),
    ]:
        with pytest.raises(ImageError, match=message):
            open_image(source)
    with pytest.raises(ImageError, match="cannot be decoded"):
        Picture(bytes(broken))


@pytest.mark.parametrize(
    ("width", "height", "message"),
    [(12_000, 6_000, "12000 x 6000 pixels"), (20_000, 20_000, "has too many pixels .*400000000")],
)  # Pillow's own limit is between
def test_the_pixel_limit_holds_before_decoding(width, height, message):
    # A header that claims many pixels over almost no data: decoding it would fail another way.
    header = bytearray(encode(Image.new("RGB", (1, 1))))
    header[16:24] = struct.pack(">II", width, height)
    header[29:33] = struct.pack(">I", zlib.crc32(header[12:29]))
    for look in (open_image, Picture):
        with pytest.raises(ImageError, match=f"{message}.*shrink it"):
            look(bytes(header))


def test_a_file_of_three_gigabytes_is_refused_unread(tmp_path):
    path = tmp_path / "huge.png"
    path.touch()
    os.truncate(path, 3 << 30)
    message = "has 3,221,225,472 bytes, more than the limit of 268,435,456; shrink it"
    for call in (open_image, Picture, Pictures()):
        with pytest.raises(ImageError, match=message):
            call(str(path))
    path.unlink()


def test_a_sliver_is_padded_within_the_limit_of_pixels():
    square = pad_to_square(Image.new("RGB", (1, 60_000), "red"), (0, 0, 0))
    assert square.width == square.height and square.width**2 <= images.MAX_PIXELS
    assert pixels(pad_to_square(two_pixels(), BLUE)) == [RED, BLUE, BLUE, BLUE]


@pytest.mark.parametrize("tags, level", [({}, 8), ({281: 4095}, 128)])
def test_twelve_bits_in_sixteen_are_scaled_by_the_files_own_word_or_said(tags, level):
    """2056 of 4095 is half of white; without the tag a viewer shows 2056 of 65535, which is 8 of 255."""
    wide = Image.fromarray(np.array([[0, 2056, 4095]], np.uint16))
    file = encode(wide, "TIFF", tiffinfo=tags)
    if tags:
        assert pixels(open_image(file)) == [(0,) * 3, (level,) * 3, WHITE]
        return
    for source in (file, encode(wide), np.asarray(wide)):
        with pytest.warns(UserWarning, match="no value from 4,096 on.*multiply its values by 16"):
            assert pixels(open_image(source))[1] == (level,) * 3
