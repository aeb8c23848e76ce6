"""Folders of frames: names, numbers and damaged files."""

import io
import struct
import zlib
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from enteron.errors import StudyError
from enteron.study import open_study
from enteron.study.picture import UnreadablePictureError, decode_picture, encode_png
from tests.making import picture, write_frames


def png(image: np.ndarray) -> bytes:
    return cv2.imencode(".png", image)[1].tobytes()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(size: int) -> bytes:
    """A PNG of a few bytes that claims size x size pixels."""
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


def test_natural_order_gaps_and_any_digit_count(tmp_path):
    for number, name in [(2, "a_2.png"), (10, "a_10.PNG"), (9, "a_0009.jpg"), (100, "A_100.JPEG")]:
        write_frames(tmp_path, [number], name)
    (tmp_path / "._a_2.png").write_bytes(b"macOS litter")
    (tmp_path / "notes.txt").write_text("not a frame")
    study = open_study(tmp_path)
    assert study.numbers.tolist() == [2, 9, 10, 100]
    assert [frame.time for frame in study] == [None] * 4
    assert study.times() is None


def test_the_number_is_the_last_one_in_the_name(tmp_path):
    write_frames(tmp_path, [28955, 28957], "131368cc17e44240_{}.jpg")
    assert open_study(tmp_path).numbers.tolist() == [28955, 28957]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "holds no PNG, JPEG, TIFF or BMP frames"),
        (["cover.png", "f_1.png"], "'cover.png' .* does not end in a frame number"),
        (["f_1.png", "f_01.png"], "'f_01.png' and 'f_1.png' .* are both frame 1"),
        (["f_1.png", "f_1.jpg"], "are both frame 1"),
        (["f_1.png", "g_2.png"], "mixes files named 'f_…' and 'g_…'"),
        (["f_20260101123000123.png"], "does not end in a frame number"),
    ],
)
def test_names_that_make_no_study(tmp_path, names, said):
    for name in names:
        (tmp_path / name).write_bytes(png(picture(1)))
    with pytest.raises(StudyError, match=said):
        open_study(tmp_path)


def test_what_is_no_study_at_all(tmp_path):
    with pytest.raises(StudyError, match="there is no 'x'"):
        open_study(tmp_path / "x")
    (tmp_path / "x.pdf").write_bytes(b"%PDF")
    with pytest.raises(StudyError, match="neither a folder of frames nor a video"):
        open_study(tmp_path / "x.pdf")


def test_unreadable_frames_are_counted_kept_and_never_black(tmp_path):
    write_frames(tmp_path, range(9), "f{}.png")
    intact = (tmp_path / "f1.png").read_bytes()
    damaged = {
        1: (intact[: len(intact) // 2], "the PNG is cut off"),
        3: (b"", "the file is empty"),
        5: (b"just text", "the file is not a PNG, JPEG, TIFF or BMP picture"),
        7: (bomb(60_000), "the file claims to hold 60000 x 60000 pixels"),
    }
    for number, (data, _) in damaged.items():
        (tmp_path / f"f{number}.png").write_bytes(data)
    study = open_study(tmp_path)
    frames = list(study)
    assert [frame.number for frame in frames] == list(range(9))
    for frame in frames:
        if frame.number in damaged:
            assert frame.image is None
            assert frame.problem == damaged[frame.number][1]
        else:
            assert frame.image is not None
    assert study.unreadable == {number: said for number, (_, said) in damaged.items()}
    assert study.frame(3).image is None


def test_more_than_half_unreadable_refuses_the_study(tmp_path):
    write_frames(tmp_path, range(10), "f{}.png")
    for number in (0, 2, 4, 6, 8):
        (tmp_path / f"f{number}.png").write_bytes(b"")
    study = open_study(tmp_path)
    assert len(list(study)) == 10  # exactly half still passes
    (tmp_path / "f9.png").write_bytes(b"")
    study = open_study(tmp_path)
    with pytest.raises(StudyError, match=r"6 of 10 frames, the first is 0 \(the file is empty\)"):
        list(study)


@pytest.mark.parametrize("kind", ["gray", "rgba", "16 bit", "gray 16 bit"])
def test_every_pixel_format_becomes_rgb(kind):
    rgb = picture(21)
    bgr = rgb[:, :, ::-1]
    data = {
        "gray": png(rgb[:, :, 0]),
        "rgba": png(np.dstack([bgr, np.full(bgr.shape[:2], 255, np.uint8)])),
        "16 bit": png(bgr.astype(np.uint16) * 257),
        "gray 16 bit": png(rgb[:, :, 0].astype(np.uint16) * 257),
    }[kind]
    expected = np.repeat(rgb[:, :, :1], 3, axis=2) if kind.startswith("gray") else rgb
    np.testing.assert_array_equal(decode_picture(data), expected)


@given(st.integers(0, 2**16 - 1), st.sampled_from([16, 64, 336]))
def test_what_is_encoded_is_decoded(number, size):
    image = picture(number, size)
    np.testing.assert_array_equal(decode_picture(encode_png(image)), image)


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_png_is_refused_or_unharmed(data):
    intact = png(picture(1234))
    reference = decode_picture(intact)
    at = data.draw(st.integers(0, len(intact) - 1))
    mask = data.draw(st.integers(1, 255))
    damaged = bytearray(intact)
    damaged[at] ^= mask
    try:
        image = decode_picture(bytes(damaged))
    except UnreadablePictureError:
        return
    np.testing.assert_array_equal(image, reference)


@given(st.integers(0, 2000))
def test_a_truncated_file_is_refused(length):
    for kind in (".png", ".jpg"):
        intact = cv2.imencode(kind, picture(77, 128))[1].tobytes()
        with pytest.raises(UnreadablePictureError):
            decode_picture(intact[: min(length, len(intact) - 3)])


@given(st.binary(max_size=200))
def test_no_bytes_make_the_decoder_raise_anything_else(data):
    for start in (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"):
        try:
            decode_picture(start + data)
        except UnreadablePictureError:
            continue


def test_a_file_that_may_not_be_read_is_unreadable(tmp_path):
    write_frames(tmp_path, range(3), "f{}.png")
    (tmp_path / "f1.png").unlink()
    (tmp_path / "f1.png").mkdir()  # root may read anything, but nobody can read a folder
    study = open_study(tmp_path)
    assert [frame.image is None for frame in study] == [False, True, False]
    assert "cannot be read" in study.unreadable[1]


def test_orientation_tags_do_not_turn_pictures(tmp_path):
    from PIL import Image

    image = Image.fromarray(picture(5, 64)[:, :32].copy())
    exif = image.getexif()
    exif[0x0112] = 6
    path = tmp_path / "f1.jpg"
    image.save(path, exif=exif)
    frame = open_study(tmp_path).frame(1)
    assert frame.image is not None
    assert frame.image.shape == (64, 32, 3)


def test_mixed_sizes_are_handed_out_as_they_are(tmp_path):
    write_frames(tmp_path, [1], "f{}.png", size=64)
    write_frames(tmp_path, [2], "f{}.png", size=128)
    assert [f.image.shape for f in open_study(tmp_path) if f.image is not None] == [
        (64, 64, 3),
        (128, 128, 3),
    ]


def test_memory_stays_flat_while_streaming(tmp_path):
    """A hundred frames of 48 KB each: what is alive at any moment is about one of them."""
    import tracemalloc

    write_frames(tmp_path, range(100), "f{}.png", size=128)
    study = open_study(tmp_path)
    tracemalloc.start()
    for _ in study:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 128 * 128 * 3


def test_a_large_folder_opens_without_touching_its_files(tmp_path):
    for number in range(3000):
        (tmp_path / f"f{number}.png").symlink_to("nowhere")  # opening any of these would fail
    assert len(open_study(tmp_path)) == 3000


# ---- damaged pictures


def jpeg(image: np.ndarray, *options: int) -> bytes:
    return cv2.imencode(".jpg", image, options)[1].tobytes()


def textured(seed: int, side: int = 224) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(110, 50, (side // 4, side // 4, 3))
    return np.clip(cv2.resize(noise, (side, side)), 0, 255).astype(np.uint8)


JPEG_KINDS = {
    "baseline": (),
    "progressive": (cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "restart": (cv2.IMWRITE_JPEG_RST_INTERVAL, 8),
    "optimised": (cv2.IMWRITE_JPEG_OPTIMIZE, 1),
    "4:2:0": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420),
}


@pytest.mark.parametrize("kind", JPEG_KINDS)
def test_whole_jpeg_files_decode_to_the_pixels_of_opencv(kind):
    """Embeddings depend on every pixel, and stored ones were made with OpenCV's decoder."""
    black = np.zeros((224, 224, 3), np.uint8)  # in optimised files: hundreds of zero bytes
    for image in (textured(1), black, textured(2)[..., 0]):
        data = jpeg(image, *JPEG_KINDS[kind])
        flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
        expected = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
        np.testing.assert_array_equal(decode_picture(data), expected)


@pytest.mark.parametrize("kind", ["baseline", "restart", "4:2:0"])
@pytest.mark.parametrize("span", [4096, 512, 64])
def test_zeroed_parts_of_a_jpeg_are_noticed(kind, span):
    """Libjpeg warns of most of them and shows a wrong picture; OpenCV swallows the warnings."""
    rng = np.random.default_rng(span)
    for seed in range(8):
        data = jpeg(textured(seed), cv2.IMWRITE_JPEG_QUALITY, 90, *JPEG_KINDS[kind])
        first = data.index(b"\xff\xda") + 14
        start = int(rng.integers(first, len(data) - 2 - span))
        with pytest.raises(UnreadablePictureError, match="the JPEG is damaged"):
            decode_picture(data[:start] + bytes(span) + data[start + span :])


def test_a_jpeg_of_four_channels_is_refused():
    content = io.BytesIO()
    Image.fromarray(textured(1)).convert("CMYK").save(content, "JPEG")
    with pytest.raises(UnreadablePictureError, match="CMYK"):
        decode_picture(content.getvalue())


def pillow(mode: str, kind: str, **options: Any) -> bytes:
    content = io.BytesIO()
    Image.fromarray(textured(1)).convert(mode).save(content, kind, **options)
    return content.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        pillow("RGB", "TIFF"),
        pillow("RGB", "TIFF", compression="tiff_lzw"),
        pillow("RGB", "TIFF", compression="tiff_adobe_deflate"),
        cv2.imencode(".tif", textured(1)[..., ::-1].astype(np.uint16) * 257)[1].tobytes(),
        pillow("RGB", "BMP"),
        pillow("RGBA", "BMP"),
    ],
    ids=["tiff", "tiff lzw", "tiff deflate", "tiff 16 bit", "bmp", "bmp 32 bit"],
)
def test_tiff_and_bmp_keep_their_pixels(data):
    np.testing.assert_array_equal(decode_picture(data), textured(1))
    for length in (40, len(data) // 2):
        with pytest.raises(UnreadablePictureError, match=r"cut off|does not say"):
            decode_picture(data[:length])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pillow("RGB", "TIFF", save_all=True, append_images=[Image.new("RGB", (9, 9))]), "pages"),
        (pillow("CMYK", "TIFF"), "neither grey, RGB nor palette"),
        (pillow("1", "TIFF"), "neither 8 nor 16 bits"),
        (pillow("F", "TIFF"), "neither 8 nor 16 bits"),
        (pillow("RGB", "TIFF", compression="jpeg"), "compression that is not read"),
        (pillow("1", "BMP"), "not of 8, 24 or 32 bits"),
    ],
)
def test_tiff_and_bmp_of_other_kinds_are_refused_with_the_reason(data, said):
    with pytest.raises(UnreadablePictureError, match=said):
        decode_picture(data)


def test_palettes_and_grey_are_read():
    for kind in ("TIFF", "BMP"):
        for mode in ("P", "L"):
            shown = Image.open(io.BytesIO(pillow(mode, kind))).convert("RGB")
            np.testing.assert_array_equal(decode_picture(pillow(mode, kind)), np.asarray(shown))


def test_tiff_and_bmp_bombs_are_refused_by_their_headers():
    bmp = bytearray(pillow("RGB", "BMP"))
    struct.pack_into("<ii", bmp, 18, 60_000, 60_000)
    tiff = bytearray(pillow("RGB", "TIFF"))
    directory = struct.unpack_from("<I", tiff, 4)[0]
    for entry in range(2):  # width and height come first; they are stored as longs here
        struct.pack_into("<HHII", tiff, directory + 2 + 12 * entry, 256 + entry, 4, 1, 60_000)
    for data in (bmp, tiff):
        with pytest.raises(UnreadablePictureError, match="claims to hold 60000 x 60000 pixels"):
            decode_picture(bytes(data))


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate"])
def test_damage_in_a_compressed_tiff_is_noticed(compression):
    data = pillow("RGB", "TIFF", compression=compression)
    for start in range(2000, len(data) - 2000, len(data) // 7):
        with pytest.raises(UnreadablePictureError, match="the TIFF is damaged"):
            decode_picture(data[:start] + bytes(512) + data[start + 512 :])
