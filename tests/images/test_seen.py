"""Every kind of image reaches a judge's eyes as the same picture in plain RGB does, on both families' paths."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_rows
from originals import write_llava15, write_onevision
from PIL import Image, ImageCms

from vjudge.data import CollectionError
from vjudge.images import fingerprint, open_image
from vjudge.judge import Judge, load_judge
from vjudge.prompts import TEMPLATES

SIZE = (70, 52)  # neither family's own
AS_ORIGINAL = ("RGB", "JPEG", "L", "1", "P", "CMYK", "YCbCr", "LAB", "GIF", "APNG", "WEBP")


@pytest.fixture(scope="module")
def judges(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judge]:
    root = tmp_path_factory.mktemp("seen")
    folders = {"llava15": write_llava15(root / "a" / "judge"), "onevision": write_onevision(root / "b" / "judge")}
    return {name: load_judge(folder, device="cpu", template="prometheus-vision") for name, folder in folders.items()}


def photo() -> Image.Image:
    """A picture with edges, slopes and noise, in colour."""
    across, down = np.meshgrid(np.linspace(0, 255, SIZE[0]), np.linspace(0, 255, SIZE[1]))
    noise = np.random.default_rng(0).normal(0, 12, (*across.shape, 3))
    channels = np.stack([across, down, 255 * ((across > 90) & (down > 60))], axis=-1)
    return Image.fromarray((channels + noise).clip(0, 255).astype(np.uint8))


def encode(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def png16(levels: np.ndarray) -> bytes:
    """A 16-bit RGB PNG, which Pillow reads but does not write."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width = levels.shape[:2]
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in levels)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def recoloured(image: Image.Image, to: str) -> Image.Image:
    """An image in another colour space, sRGB or LAB, by colour management."""
    spaces = {"RGB": ImageCms.createProfile("sRGB"), "LAB": ImageCms.createProfile("LAB")}
    made = ImageCms.profileToProfile(image, spaces[image.mode], spaces[to], outputMode=to)
    assert made is not None
    return made


def kinds() -> dict[str, tuple[Any, Image.Image]]:
    """Name -> a file or picture, and the same in RGB."""
    rgb = photo()
    gray, few = rgb.convert("L"), rgb.quantize(32)
    clear = rgb.copy()
    clear.putalpha(Image.fromarray(np.where(np.arange(SIZE[0])[None] < 30, 0, 255).repeat(SIZE[1], 0).astype(np.uint8)))
    on_white = Image.new("RGB", SIZE, "white")
    on_white.paste(rgb.crop((30, 0, *SIZE)), (30, 0))
    holed = few.copy()
    index = int(np.bincount(np.asarray(few).ravel()).argmax())
    seen = np.asarray(few.convert("RGB")).copy()
    seen[np.asarray(few) == index] = 255
    exif = Image.Exif()
    exif[274] = 6  # a viewer turns it a quarter to the right
    lying = rgb.transpose(Image.Transpose.ROTATE_90)
    wide = np.asarray(gray).astype(np.uint16) * 257
    jpeg = encode(rgb, "JPEG", quality=95)
    frames = {"save_all": True, "append_images": [Image.new("RGB", SIZE, "lime")]}
    ycbcr, lab = rgb.convert("YCbCr"), recoloured(rgb, "LAB")  # in eight bits each loses a little of the picture
    return {
        "RGB": (encode(rgb), rgb),
        "JPEG": (jpeg, Image.open(io.BytesIO(jpeg)).convert("RGB")),
        "L": (encode(gray), gray.convert("RGB")),
        "LA": (encode(gray.convert("LA")), gray.convert("RGB")),
        "La": (gray.convert("LA").convert("La"), gray.convert("RGB")),
        "1": (encode(gray.convert("1")), gray.convert("1").convert("RGB")),
        "P": (encode(few), few.convert("RGB")),
        "P with a clear colour": (encode(holed, transparency=index), Image.fromarray(seen)),
        "RGBA opaque": (encode(rgb.convert("RGBA")), rgb),
        "RGBA": (encode(clear), on_white),
        "RGBa": (clear.convert("RGBa"), on_white),
        "I;16": (encode(Image.fromarray(wide)), gray.convert("RGB")),
        "I": (Image.fromarray(wide.astype(np.int32)), gray.convert("RGB")),
        "F": (Image.fromarray(np.asarray(gray).astype(np.float32) / 255), gray.convert("RGB")),
        "16-bit RGB": (png16(np.asarray(rgb).astype(np.uint16) * 257), rgb),
        "16-bit TIFF": (encode(Image.fromarray(wide), "TIFF"), gray.convert("RGB")),
        "CMYK": (encode(rgb.convert("CMYK"), "TIFF"), rgb),
        "YCbCr": (encode(ycbcr, "TIFF"), ycbcr.convert("RGB")),
        "LAB": (encode(lab, "TIFF"), recoloured(lab, "RGB")),
        "EXIF": (encode(lying, exif=exif), rgb),
        "GIF": (encode(few, "GIF", **frames), few.convert("RGB")),
        "APNG": (encode(rgb, **frames), rgb),
        "WEBP": (encode(rgb, "WEBP", lossless=True, **frames), rgb),
    }


@pytest.mark.parametrize("family", ["llava15", "onevision"])
@pytest.mark.parametrize("kind", kinds())
def test_every_kind_is_seen_as_the_same_picture_in_rgb(judges: dict[str, Judge], family: str, kind: str) -> None:
    source, plain = kinds()[kind]
    for mode in (None, "pad"):
        found, wanted = (judges[family].forward("is it?", [each], image_mode=mode) for each in (source, plain))
        assert found.pixel_values is not None and wanted.logits is not None
        assert torch.equal(found.pixel_values, wanted.pixel_values) and torch.equal(found.logits, wanted.logits)


@pytest.mark.parametrize("kind", kinds())
def test_where_the_original_would_see_the_same_and_where_not(kind: str) -> None:
    source, plain = kinds()[kind]
    if isinstance(source, Image.Image):
        pytest.skip("no file")
    original = Image.open(io.BytesIO(source)).convert("RGB")  # as llava/eval/model_vqa.py opens an image
    same = fingerprint(open_image(source)) == fingerprint(original)
    hidden = kind in ("P with a clear colour", "RGBA", "EXIF", "I;16", "16-bit TIFF")
    assert same != hidden
    if kind in AS_ORIGINAL:
        assert same
    if kind == "YCbCr":
        assert np.abs(np.asarray(original).astype(int) - np.asarray(photo()).astype(int)).max() <= 3
    if kind in ("I;16", "16-bit TIFF"):  # clipped: hardly anything but white is left
        assert np.asarray(original).mean() > 240 and np.asarray(plain).mean() < 200


def test_a_32_bit_image_of_8_bit_values_has_no_certain_scale() -> None:
    with pytest.raises(ValueError, match="8-bit or 16-bit ones; convert it to L"):
        open_image(photo().convert("L").convert("I"))
    assert not np.asarray(open_image(Image.new("I", (2, 2)))).any()  # black is black on any scale


@pytest.mark.parametrize("family", ["llava15", "onevision"])
def test_several_images_of_any_kind_from_rows_to_verdicts(judges: dict[str, Judge], family: str) -> None:
    judge, pictures = judges[family], kinds()
    judge.engine.model.tokenizer.model_max_length = 2048  # type: ignore[union-attr]
    chosen = [pictures[kind] for kind in ("RGBA", "I;16", "EXIF")]
    sources, plain = [each[0] for each in chosen], [each[1] for each in chosen]
    found = judge.forward("<image>\n<image>\nAre they?", sources[:2])
    alone = [judge.forward("is it?", [each], image_mode="pad" if family == "onevision" else None) for each in plain[:2]]
    # Two images are a square each: padded in OneVision, as the original trains, and not cut into tiles.
    assert found.tiles_per_image == (1, 1) and found.input_ids.tolist().count(-200) == 2  # type: ignore[union-attr]
    assert torch.equal(found.pixel_values, torch.cat([each.pixel_values for each in alone]))  # type: ignore[misc]
    torch.testing.assert_close(found.image_features, torch.cat([each.image_features for each in alone]))  # type: ignore[misc]
    runs = []
    for given in (sources, plain):
        rows = make_rows(3)
        for number, row in enumerate(rows):
            row["images"] = given[: number + 1]
        runs.append(judge.grade(rows, max_new_tokens=5, progress=False))
    assert runs[0]["raw"].tolist() == runs[1]["raw"].tolist()
    assert runs[0]["n_prompt_tokens"].tolist() == runs[1]["n_prompt_tokens"].tolist()
    assert judge.grade(rows, mode="score", progress=False)["expected_score"].between(1, 5).all()


def test_llava_critic_grades_and_compares_rows_without_a_rubric(judges: dict[str, Judge]) -> None:
    shown = judges["onevision"]
    judge = Judge(
        "critic", template=TEMPLATES["llava-critic"], pairs=TEMPLATES["llava-critic-pair"], engine=shown.engine
    )
    shown.engine.model.tokenizer.model_max_length = 2048  # type: ignore[attr-defined]
    asked = {"images": [kinds()["LA"][0]], "instruction": "What is it?"}
    rows = [asked | {"id": str(n), "response": "A slope." * (n + 1), "gold": 10 * n} for n in range(3)]
    run = judge.grade(rows, max_new_tokens=4, progress=False)
    assert run.attrs["scale"] == (0, 100) and run["gold"].tolist() == [0, 10, 20] and run["raw"].notna().all()
    pairs = [asked | {"id": str(n), "response_a": "A slope.", "response_b": "A cat.", "preference": "a"} for n in "ab"]
    compared = judge.compare(pairs, max_new_tokens=4, progress=False)
    assert compared["preference"].tolist() == ["a", "a"] and compared["n_new_tokens"].tolist() == [8, 8]
    with pytest.raises(CollectionError, match="descriptions: is missing, and the judge's wording shows it"):
        shown.grade(rows, max_new_tokens=4, progress=False)  # Prometheus' wording asks for one as before
