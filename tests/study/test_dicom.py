"""DICOM files as studies: what is refused, and that nothing of the patient leaves the file."""

import logging
import pickle
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom.encaps import encapsulate, generate_frames
from pydicom.uid import UID

from enteron.errors import StudyError
from enteron.study import open_study
from tests.making import PATIENT, number_of, write_dicom


def changed(path: Path, **values):
    """The same file with other values in its header."""
    dataset = pydicom.dcmread(path)
    for name, value in values.items():
        if name == "syntax":
            dataset.file_meta.TransferSyntaxUID = UID(value)
        elif value is None:
            delattr(dataset, name)
        else:
            setattr(dataset, name, value)
    if "PixelData" in dataset and dataset.file_meta.TransferSyntaxUID.is_compressed:
        dataset["PixelData"].is_undefined_length = True
    dataset.save_as(path)
    return path


@pytest.mark.parametrize("kind", ["native", "jpeg", "libx264"])
def test_nothing_of_the_patient_leaves_the_file(tmp_path, kind, caplog, capfd):
    path = changed(write_dicom(tmp_path / "v.dcm", 6, kind), PatientComments="secret")
    with caplog.at_level(logging.DEBUG), open_study(path) as study:
        frames = list(study)
        texts = [study.id, repr(study.metadata), *study.notes, *map(repr, frames)]
    assert [number_of(frame.image) for frame in frames if frame.image is not None] == list(range(6))
    out, err = capfd.readouterr()
    for text in (*texts, caplog.text, out, err):
        for secret in (PATIENT, "DOE", "4711", "19510203", "secret"):
            assert secret not in text


def test_a_video_leaves_no_copy_behind(tmp_path, monkeypatch):
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    path = write_dicom(tmp_path / "v.dcm", 6, "libx264")
    study = open_study(path)
    (copy,) = copies.rglob("*.mp4")
    assert PATIENT.encode() not in copy.read_bytes()
    assert copy.parent.stat().st_mode & 0o077 == 0  # only we can look into it
    study.close()
    assert list(copies.iterdir()) == []
    assert study.frame(3).number == 3  # and is made again when needed
    study.close()
    assert list(copies.iterdir()) == []


def test_times_follow_the_header(tmp_path):
    path = write_dicom(tmp_path / "v.dcm", 4, "native")
    assert open_study(path).rate == Fraction(30000, 1001)
    assert open_study(changed(path, FrameTime=None, CineRate="3")).rate == 3
    assert open_study(changed(path, CineRate=None)).rate is None


def test_planes_and_grey_are_read(tmp_path):
    path = write_dicom(tmp_path / "v.dcm", 4, "native")
    colour = [frame.image for frame in open_study(path)]
    pixels = np.frombuffer(pydicom.dcmread(path).PixelData, np.uint8).reshape(4, 64, 64, 3)
    planes = np.ascontiguousarray(np.moveaxis(pixels, 3, 1)).tobytes()
    changed(path, PlanarConfiguration=1, PixelData=planes)
    for frame, image in zip(open_study(path), colour, strict=True):
        np.testing.assert_array_equal(frame.image, image)
    grey = np.ascontiguousarray(pixels[..., 0]).tobytes()
    changed(path, PhotometricInterpretation="MONOCHROME2", SamplesPerPixel=1, PixelData=grey)
    for frame, image in zip(open_study(path), colour, strict=True):
        assert frame.image is not None
        assert image is not None
        np.testing.assert_array_equal(frame.image, np.repeat(image[..., :1], 3, axis=2))


def test_a_frame_in_several_pieces_is_read(tmp_path):
    path = write_dicom(tmp_path / "v.dcm", 4, "jpeg")
    dataset = pydicom.dcmread(path)
    frames = list(generate_frames(dataset.PixelData, number_of_frames=4))
    dataset.PixelData = encapsulate(frames, fragments_per_frame=2)
    dataset["PixelData"].is_undefined_length = True
    dataset.save_as(path)
    images = [frame.image for frame in open_study(path)]
    assert [number_of(image) for image in images if image is not None] == [0, 1, 2, 3]


def test_a_damaged_frame_is_told_and_the_others_stay(tmp_path):
    path = write_dicom(tmp_path / "v.dcm", 6, "jpeg")
    data = bytearray(path.read_bytes())
    third = [at for at in range(len(data)) if data[at : at + 3] == b"\xff\xd8\xff"][2]
    data[third : third + 200] = bytes(200)
    path.write_bytes(data)
    with open_study(path) as study:
        readable = [frame.number for frame in study if frame.image is not None]
    assert readable == [0, 1, 3, 4, 5]
    assert list(study.unreadable) == [2]


def test_a_file_that_ends_early(tmp_path):
    path = write_dicom(tmp_path / "v.dcm", 6, "native")
    path.write_bytes(path.read_bytes()[: -64 * 64 * 3 - 10])
    with open_study(path) as study:
        list(study)
    assert list(study.unreadable) == [4, 5]
    assert study.unreadable[4] == "the file ends inside of it"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"syntax": "1.2.840.10008.1.2.4.90"},
            r"transfer syntax 1.2.840.10008.1.2.4.90\); convert",
        ),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "colours that are not read"),
        ({"PhotometricInterpretation": "YBR_FULL"}, "colours that are not read"),
        ({"Rows": 5000}, "states 6 frames of 64 x 5000 pixels"),
        ({"PixelData": None}, "holds no pixels"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(tmp_path, change, message):
    kind = "jpeg" if "syntax" in change else "native"
    path = changed(write_dicom(tmp_path / "v.dcm", 6, kind), **change)
    with pytest.raises(StudyError, match=message):
        open_study(path)


def test_files_that_are_no_dicom(tmp_path):
    path = tmp_path / "v.dcm"
    path.write_bytes(bytes(5000))
    with pytest.raises(StudyError, match=r"'v.dcm' is not a DICOM file"):
        open_study(path)
    video = changed(write_dicom(tmp_path / "w.dcm", 6, "jpeg"), syntax="1.2.840.10008.1.2.4.102")
    with pytest.raises(StudyError, match="in no container that is read"):
        open_study(video)


@pytest.mark.parametrize("kind", ["native", "jpeg", "libx264"])
def test_a_mutated_file_never_ends_in_another_error(tmp_path, kind):
    path = write_dicom(tmp_path / "v.dcm", 4, kind)
    whole = path.read_bytes()
    random = np.random.default_rng(1)
    refused = 0
    for number in range(40):
        data = bytearray(whole)
        head = number % 2 == 0  # in the header, or anywhere
        for at in random.integers(0, 900 if head else len(data), size=4):
            data[at] = int(random.integers(256))
        if number % 5 == 0:
            del data[int(random.integers(len(data))) :]
        path.write_bytes(data)
        try:
            with open_study(path) as study:
                list(study)
        except StudyError:
            refused += 1
    assert 0 < refused < 40


@pytest.mark.parametrize("kind", ["native", "libx264"])
def test_a_worker_opens_its_own(tmp_path, kind):
    with open_study(write_dicom(tmp_path / "v.dcm", 6, kind)) as study:
        copy = pickle.loads(pickle.dumps(study))
        with copy:
            assert copy.id == study.id
            np.testing.assert_array_equal(copy.frame(4).image, study.frame(4).image)
