"""PNG, JPEG, TIFF and BMP files: decoded to RGB, or refused with the reason; PNG files written."""

import io
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np

from enteron.errors import EnteronError
from enteron.files import PICTURE_LIMIT, read_bytes
from enteron.study.study import RGB

# Capsules deliver at most 576 x 576 pixels. A file that claims more than this is damaged or an
# attack on memory, and is refused by its header, before any pixel is decoded.
MAX_PIXELS = 4096 * 4096

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


class UnreadablePictureError(ValueError):
    """Why an image cannot be decoded, in a few words."""


def read_picture(path: Path) -> bytes:
    """The bytes of a picture's file; whatever prevents that makes the picture unreadable."""
    try:
        return read_bytes(path, PICTURE_LIMIT, "", source="the file")
    except EnteronError as error:
        raise UnreadablePictureError(error.problem) from error


def decode_picture(data: bytes) -> RGB:
    """Decode a picture file to RGB (height, width, 3) uint8; also grayscale, alpha and 16 bit.

    The file's structure is checked first. JPEG files are decoded by simplejpeg, where a warning of
    libjpeg is an error: a damaged scan decodes to a wrong picture with nothing but a warning. Its
    pixels are those of OpenCV, which decodes the other formats.
    """
    if not data:
        raise UnreadablePictureError("the file is empty")
    if data.startswith(b"\xff\xd8"):
        width, height = _jpeg_size(data)
        _require_size(width, height)
        image = _decode_jpeg(data)
    else:
        if data.startswith(PNG_SIGNATURE):
            width, height = _png_size(data)
        elif data[:4] in (b"II*\0", b"MM\0*"):
            width, height = _tiff_size(data)
        elif data.startswith(b"BM"):
            width, height = _bmp_size(data)
        else:
            raise UnreadablePictureError("the file is not a PNG, JPEG, TIFF or BMP picture")
        _require_size(width, height)
        image = _decode_with_opencv(data)
    if image.shape != (height, width, 3):
        raise UnreadablePictureError("the pixels cannot be decoded")
    return image


def _require_size(width: int, height: int) -> None:
    if not 0 < width * height <= MAX_PIXELS:
        raise UnreadablePictureError(f"the file claims to hold {width} x {height} pixels")


def _decode_with_opencv(data: bytes) -> RGB:
    # Orientation tags are ignored: training and truth use the pixels as they are stored.
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise UnreadablePictureError("the pixels cannot be decoded") from error
    if image is None:
        raise UnreadablePictureError("the pixels cannot be decoded")
    return image  # pyright: ignore[reportReturnType]


def _decode_jpeg(data: bytes) -> RGB:
    import simplejpeg

    try:
        return simplejpeg.decode_jpeg(data, "RGB", strict=True)
    except ValueError as error:
        raise UnreadablePictureError("the JPEG is damaged") from error


# One filter and run-length encoding: 5 % larger than zlib's fast levels, in 60 % of their time.
_FAST_PNG = (
    *(cv2.IMWRITE_PNG_COMPRESSION, 1),
    *(cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE),
    *(cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_AVG),
)


def encode_png(image: RGB) -> bytes:
    """Encode an RGB image as a PNG file, optimised for speed."""
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".png", bgr, _FAST_PNG)[1].tobytes()


def _png_size(data: bytes) -> tuple[int, int]:
    """Width and height, after every chunk was checked to be complete."""
    offset = len(PNG_SIGNATURE)
    view = memoryview(data)
    while offset + 12 <= len(data):
        length = int.from_bytes(view[offset : offset + 4])
        kind = bytes(view[offset + 4 : offset + 8])
        chunk_end = offset + 12 + length
        if chunk_end > len(data):
            break
        checksum = int.from_bytes(view[chunk_end - 4 : chunk_end])
        if zlib.crc32(view[offset + 4 : chunk_end - 4]) != checksum:
            raise UnreadablePictureError(f"the PNG is damaged at byte {offset}")
        if kind == b"IEND":
            return int.from_bytes(view[16:20]), int.from_bytes(view[20:24])
        offset = chunk_end
    raise UnreadablePictureError("the PNG is cut off")


# Start-of-frame markers, which carry the frame size; the first two are those of baseline files.
_JPEG_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BASELINE = (0xC0, 0xC1)
_JPEG_TABLES, _JPEG_SCAN = 0xC4, 0xDA

_ZEROS = bytes(16)


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height from the frame header, after the end marker was found."""
    end = data.rfind(b"\xff\xd9")
    if end < 0:
        raise UnreadablePictureError("the JPEG is cut off")
    size: tuple[int, int] | None = None
    baseline = False
    zeros_mean_nothing = False  # a run of zero bits can be many empty blocks
    offset = 2
    while offset + 9 <= len(data) and data[offset] == 0xFF:
        marker = data[offset + 1]
        if marker == 0xFF:  # fill byte
            offset += 1
            continue
        length = int.from_bytes(data[offset + 2 : offset + 4])
        if marker in _JPEG_SIZE_MARKERS and size is None:
            baseline = marker in _JPEG_BASELINE
            height = int.from_bytes(data[offset + 5 : offset + 7])
            width = int.from_bytes(data[offset + 7 : offset + 9])
            if data[offset + 9 : offset + 10] == b"\x04":
                raise UnreadablePictureError("the JPEG is CMYK, which no capsule writes")
            size = width, height
        elif marker == _JPEG_TABLES:
            zeros_mean_nothing |= _zeros_end_blocks(data[offset + 4 : offset + 2 + length])
        elif marker == _JPEG_SCAN:
            # Zeroed bytes of a baseline scan decode without any warning, as a pattern of stripes.
            # Real scans have no such run, unless zero bits are the code of an empty block.
            if (
                baseline
                and not zeros_mean_nothing
                and data.find(_ZEROS, offset + 2 + length, end) >= 0
            ):
                raise UnreadablePictureError("the JPEG is damaged: a part of it was zeroed")
            break
        offset += 2 + length
    if size is None:
        raise UnreadablePictureError("the JPEG has no frame header")
    return size


def _zeros_end_blocks(tables: bytes) -> bool:
    """Whether zero bits end a block in the first table of luminance coefficients, if it is here.

    The code of all zeros belongs to a table's first symbol; 0 is the end of a block.
    """
    offset = 0
    while offset + 17 <= len(tables):
        kind, symbols = tables[offset], sum(tables[offset + 1 : offset + 17])
        if kind == 0x10 and symbols:  # AC coefficients, table 0
            return tables[offset + 17 : offset + 18] == b"\0"
        offset += 17 + symbols
    return False


# TIFF: tags of the first directory, and the values that are read.
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_STRIP_OFFSETS, _STRIP_BYTES, _TILE_OFFSETS, _TILE_BYTES = 273, 279, 324, 325
_SAMPLE_FORMAT = 339
_TIFF_TYPES = {1: "B", 3: "H", 4: "I"}  # byte, short, long
_UNCOMPRESSED, _LZW, _DEFLATE = 1, 5, (8, 32946)
_TIFF_COLOURS = {0: "grey", 1: "grey", 2: "RGB", 3: "palette"}
_MOST_STRIPS = 1 << 16


def _tiff_size(data: bytes) -> tuple[int, int]:
    """Width and height of the only page, after its pixels were found to lie in the file."""
    tags = _tiff_tags(data)
    width, height = tags.get(_WIDTH, (0,))[0], tags.get(_HEIGHT, (0,))[0]
    compression = tags.get(_COMPRESSION, (_UNCOMPRESSED,))[0]
    if compression not in (_UNCOMPRESSED, _LZW, *_DEFLATE):
        raise UnreadablePictureError("the TIFF uses a compression that is not read")
    if tags.get(_PHOTOMETRIC, (1,))[0] not in _TIFF_COLOURS:
        raise UnreadablePictureError("the TIFF is neither grey, RGB nor palette")
    if set(tags.get(_BITS, (1,))) not in ({8}, {16}) or set(tags.get(_SAMPLE_FORMAT, (1,))) != {1}:
        raise UnreadablePictureError("the TIFF has neither 8 nor 16 bits per channel")
    offsets = tags.get(_STRIP_OFFSETS) or tags.get(_TILE_OFFSETS) or ()
    sizes = tags.get(_STRIP_BYTES) or tags.get(_TILE_BYTES) or ()
    if not offsets or len(offsets) != len(sizes):
        raise UnreadablePictureError("the TIFF does not say where its pixels are")
    if any(start + size > len(data) for start, size in zip(offsets, sizes, strict=True)):
        raise UnreadablePictureError("the TIFF is cut off")
    _require_size(width, height)
    # OpenCV takes what libtiff could not decompress as it is.
    if compression in _DEFLATE:
        for start, size in zip(offsets, sizes, strict=True):
            _require_deflated(data[start : start + size])
    elif compression == _LZW:
        _require_decodable(data)
    return width, height


def _require_deflated(strip: bytes) -> None:
    """A deflated strip ends with a checksum; its length is limited to that of the largest page."""
    try:
        stream = zlib.decompressobj()
        stream.decompress(strip, 8 * MAX_PIXELS)
    except zlib.error as error:
        raise UnreadablePictureError("the TIFF is damaged") from error
    if not stream.eof:
        raise UnreadablePictureError("the TIFF is damaged")


def _require_decodable(data: bytes) -> None:
    from PIL import Image

    try:
        Image.open(io.BytesIO(data)).load()
    except (OSError, ValueError, SyntaxError) as error:
        raise UnreadablePictureError("the TIFF is damaged") from error


def _tiff_tags(data: bytes) -> dict[int, tuple[int, ...]]:
    """The whole numbers of the first directory, by tag; several pages are refused."""
    order = "<" if data.startswith(b"II") else ">"
    try:
        (directory,) = struct.unpack_from(f"{order}I", data, 4)
        (count,) = struct.unpack_from(f"{order}H", data, directory)
        (next_page,) = struct.unpack_from(f"{order}I", data, directory + 2 + 12 * count)
        if next_page:
            raise UnreadablePictureError("the TIFF holds several pages")
        tags: dict[int, tuple[int, ...]] = {}
        for entry in range(count):
            position = directory + 2 + 12 * entry
            tag, kind, values = struct.unpack_from(f"{order}HHI", data, position)
            code = _TIFF_TYPES.get(kind)
            if code is None or not 0 < values <= _MOST_STRIPS:
                continue
            layout = f"{order}{values}{code}"
            if struct.calcsize(layout) > 4:
                (position,) = struct.unpack_from(f"{order}I", data, position + 8)
                tags[tag] = struct.unpack_from(layout, data, position)
            else:
                tags[tag] = struct.unpack_from(layout, data, position + 8)
    except struct.error as error:
        raise UnreadablePictureError("the TIFF is cut off") from error
    return tags


def _bmp_size(data: bytes) -> tuple[int, int]:
    """Width and height, after the pixels were found to lie in the file."""
    if len(data) < 54:
        raise UnreadablePictureError("the BMP is cut off")
    start, header, width, height, _, bits, compression = struct.unpack_from("<IIiiHHI", data, 10)
    if header < 40 or bits not in (8, 24, 32) or compression not in (0, 3):
        raise UnreadablePictureError("the BMP is not of 8, 24 or 32 bits without compression")
    height = abs(height)  # negative: stored from the top
    _require_size(width, height)
    if start + (width * bits + 31) // 32 * 4 * height > len(data):
        raise UnreadablePictureError("the BMP is cut off")
    return width, height
