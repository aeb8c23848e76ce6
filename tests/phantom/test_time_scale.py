import pytest

from enteron.errors import StudyError
from enteron.phantom.dataset import PhantomOptions, StudyPlan
from enteron.phantom.time_scale import FILE, frames_per_row_of, read_frames_per_row
from enteron.priors import load_priors


def test_a_made_root_tells_how_far_its_studies_are_shortened(tmp_path, enteron):
    enteron("phantom", "data", "--studies", 1, "--frames", 8, "--seed", 3, "--workers", 1)
    enteron(
        *("phantom", "tests", "--studies", 1, "--frames", 8, "--seed", 3, "--workers", 1),
        *("--device", "navicam"),
    )
    options = PhantomOptions(frames=8, seed=3)
    expected = StudyPlan(1, options, load_priors()).timeline.compression
    assert read_frames_per_row(tmp_path / "data") == {"1": pytest.approx(expected, abs=1e-3)}
    (study,) = (tmp_path / "data").glob("*/1")
    assert frames_per_row_of(study, "1") == pytest.approx(expected, abs=1e-3)
    assert frames_per_row_of(study, "other") is None
    (unseen,) = (tmp_path / "tests").glob("*/ukdd_navi_00001")
    found = frames_per_row_of(unseen, "ukdd_navi_00001")
    assert found
    assert found > 100  # a transit of some 20,000 frames or more in 8 rows


def test_other_roots_say_nothing(tmp_path):
    assert read_frames_per_row(tmp_path) == {}
    assert frames_per_row_of(tmp_path / "study", "study") is None


@pytest.mark.parametrize("content", ["{", "[1]", '{"1": "x"}', '{"1": 0}'])
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    with pytest.raises(StudyError, match=r"'frames_per_row\.json'"):
        read_frames_per_row(tmp_path)
