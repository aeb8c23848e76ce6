"""Studies, videos and label files for the tests, each frame recognisable by its number."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from av.video.stream import VideoStream

from enteron.labels import LABELS

GALAR_COLUMNS = [
    "index", "z-line", "pylorus", "ampulla of vater", "ileocecal valve", "section", "mouth",
    "esophagus", "stomach", "small intestine", "colon", "ulcer", "polyp", "active bleeding",
    "blood", "erythema", "erosion", "angiectasia", "IBD", "foreign body", "esophagitis", "varices",
    "hematin", "celiac", "cancer", "lymphangioectasis", "frame",
]  # fmt: skip
TECHNICAL_COLUMNS = ["bubbles", "dirt", "no view", "reduced view", "good view"]


def picture(number: int, size: int = 64) -> np.ndarray:
    """An RGB image whose large blocks spell the number in binary: survives any video codec."""
    image = np.full((size, size, 3), 40, dtype=np.uint8)
    block = size // 4
    for bit in range(16):
        if number >> bit & 1:
            y, x = block * (bit // 4), block * (bit % 4)
            image[y : y + block, x : x + block] = (200, 180, 160)
    return image


def number_of(image: np.ndarray) -> int:
    """The number that `picture` drew."""
    block = image.shape[0] // 4
    number = 0
    for bit in range(16):
        y, x = block * (bit // 4), block * (bit % 4)
        middle = image[y + block // 4 : y + 3 * block // 4, x + block // 4 : x + 3 * block // 4]
        number |= int(middle.mean() > 110) << bit
    return number


def write_frames(
    folder: Path, numbers: Sequence[int], name: str = "frame_{:06d}.PNG", size: int = 64
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        path = folder / name.format(number)
        kind = path.suffix.lower()
        data = cv2.imencode(kind, cv2.cvtColor(picture(number, size), cv2.COLOR_RGB2BGR))[1]
        path.write_bytes(data.tobytes())
    return folder


def write_video(
    path: Path,
    count: int,
    codec: str = "libx264",
    rate: Fraction = Fraction(30000, 1001),
    options: dict[str, str] | None = None,
    stamps: Sequence[int] | None = None,
    size: int = 64,
) -> Path:
    """A video of `picture(0)`, `picture(1)`, …; `stamps` are milliseconds, for a variable rate."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, options=options or {})
        assert isinstance(stream, VideoStream)
        stream.width = stream.height = size
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        if stamps is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for number in range(count):
            frame = av.VideoFrame.from_ndarray(picture(number, size), format="rgb24")
            if stamps is not None:
                frame.pts, frame.time_base = stamps[number], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def write_labels(
    path: Path,
    labels: np.ndarray,
    *,
    step: int = 1,
    first: int = 0,
    columns: Sequence[str] = GALAR_COLUMNS,
    headers: Sequence[str] | None = None,
) -> Path:
    """A Galar label file: row i has index `first + i` and frame `step * index`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(headers or columns)]
    for row, values in enumerate(labels):
        index = first + row
        cells = {"index": index, "frame": step * index, "section": "Small bowel"}
        cells.update({label: int(on) for label, on in zip(LABELS, values, strict=True)})
        lines.append(",".join(str(cells.get(column, 0)) for column in columns))
    path.write_text("\n".join(lines) + "\n")
    return path


def label_rows(*runs: tuple[int, Sequence[str]]) -> np.ndarray:
    """A (rows, 17) matrix from (length, labels) runs."""
    rows = [[label in names for label in LABELS] for count, names in runs for _ in range(count)]
    return np.array(rows, dtype=bool)


PATIENT = "DOE^JOHN"
"""What a DICOM header says about a patient, and nothing else ever may."""


def write_dicom(
    path: Path, count: int, kind: str, options: dict[str, str] | None = None, rate: int = 30000
) -> Path:
    """A DICOM file of frames (`native`, `jpeg`), or with a video of a codec inside."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.encaps import encapsulate
    from pydicom.uid import UID, generate_uid

    pictures = [picture(number) for number in range(count)]
    colours = "RGB"
    if kind == "native":
        syntax, data = "1.2.840.10008.1.2.1", np.stack(pictures).tobytes()
    elif kind == "jpeg":
        syntax, colours = "1.2.840.10008.1.2.4.50", "YBR_FULL_422"
        files = [cv2.imencode(".jpg", cv2.cvtColor(p, cv2.COLOR_RGB2BGR))[1] for p in pictures]
        data = encapsulate([file.tobytes() for file in files])
    else:
        syntax = "1.2.840.10008.1.2.4." + ("102" if kind == "libx264" else "100")
        colours = "YBR_PARTIAL_420"
        suffix = "mp4" if kind == "libx264" else "mpg"
        video = write_video(path.with_suffix(f".{suffix}"), count, kind, options=options)
        data = encapsulate([video.read_bytes()])
        video.unlink()
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = UID(syntax)
    meta.MediaStorageSOPClassUID = UID("1.2.840.10008.5.1.4.1.1.7.4")  # multi-frame true colour SC
    meta.MediaStorageSOPInstanceUID = generate_uid()
    dataset = FileDataset(str(path), {}, file_meta=meta, preamble=bytes(128))
    dataset.SOPClassUID, dataset.SOPInstanceUID = (
        meta.MediaStorageSOPClassUID,
        meta.MediaStorageSOPInstanceUID,
    )
    dataset.PatientName, dataset.PatientID, dataset.PatientBirthDate = PATIENT, "4711", "19510203"
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 3, colours
    dataset.PlanarConfiguration, dataset.NumberOfFrames = 0, count
    dataset.Rows = dataset.Columns = pictures[0].shape[0]
    dataset.BitsAllocated = dataset.BitsStored = 8
    dataset.HighBit, dataset.PixelRepresentation = 7, 0
    dataset.FrameTime = f"{1001 / rate * 1000:.10f}"
    dataset.PixelData = data
    dataset["PixelData"].VR = "OB"
    if kind != "native":
        dataset["PixelData"].is_undefined_length = True
    dataset.save_as(path, enforce_file_format=True)
    return path
