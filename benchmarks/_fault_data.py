"""What the cases of `enteron bench faults` share: two models, two studies, their readings."""

import os
import sys
from pathlib import Path

import numpy as np

from benchmarks._fault_harness import ROOT

STUDY, OTHER = "7", "8"  # ids, and names of the folders
FRAMES = 12
VIDEO_FRAMES = 120


def environment() -> dict[str, str]:
    """For a process that imports enteron and the tests from this checkout."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


def make_data(root: Path) -> None:
    """Make everything in the folder; some seconds of encoding with a tiny random ViT."""
    from enteron.datasets.splits import Split, save_split
    from enteron.fitting.calibrate import calibrate_model
    from enteron.folders.model import save_model
    from enteron.model.network import start_network
    from enteron.model.options import ModelOptions
    from enteron.reading import Reader
    from enteron.types import StudyFingerprint, study_id_hash
    from tests.making import label_rows, write_frames, write_labels, write_video

    labels = label_rows(
        (2, ["mouth"]), (3, ["stomach"]), (3, ["small intestine", "blood"]), (4, ["colon"])
    )
    data = root / "data"
    for study in ("1", "2", "3"):
        write_frames(data / "Frames" / study, range(0, 5 * FRAMES, 5))
        write_labels(data / "Labels" / f"{study}.csv", labels, step=5)
    split = Split(("1",), ("2", "3"), (), "by hand")
    trained = StudyFingerprint(id=study_id_hash("1"))
    for seed, name in enumerate(("model", "model-b")):
        network = start_network(ModelOptions(backbone="vit-tiny"), seed=seed)
        save_model(root / name, network, split_hash=split.hash, training_studies=(trained,))
        save_split(split, root / name / "split.json")
        calibrate_model(root / name, data)
    write_plain_frames(root / STUDY, range(0, 5 * FRAMES, 5))
    write_plain_frames(root / OTHER, range(0, 5 * FRAMES, 5), brightness=90)
    reader = Reader(root / "model")
    reader.read(root / STUDY, root / "reading")
    reader.read(root / OTHER, root / "reading-other")
    for suffix, codec in (("mkv", "libx264"), ("avi", "mpeg4"), ("mp4", "libx264")):
        write_video(root / f"film.{suffix}", VIDEO_FRAMES, codec)


def write_plain_frames(folder: Path, numbers: range, brightness: int = 0) -> None:
    """Frames without compression: files of equal size whatever they show."""
    import cv2

    from tests.making import picture

    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        image = cv2.cvtColor(picture(number), cv2.COLOR_RGB2BGR).astype(np.int16) + brightness
        pixels = np.clip(image, 0, 255).astype(np.uint8)
        content = cv2.imencode(".png", pixels, [cv2.IMWRITE_PNG_COMPRESSION, 0])[1]
        (folder / f"frame_{number:06d}.png").write_bytes(content.tobytes())


if __name__ == "__main__":
    make_data(Path(sys.argv[1]))
