"""Plans within a time, and the profile of a reading."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.errors import ConfigError
from enteron.inference.budget import (
    ONCE,
    PER_FRAME_AFTER,
    PER_FRAME_GLANCE,
    SETTINGS,
    SPARE,
    Setting,
    Speed,
    choose_setting,
    describe,
    expected_seconds,
)
from enteron.inference.coarse_to_fine import CoarseOptions
from enteron.inference.peak import gemm_peak, operations
from enteron.profile import BESIDE, PARTS, STOPWATCH, Profile, since, timed

FULL = Setting("flip", None, 1.0, None, None)
PLAIN = Setting("none", None, 1.0, None, None)
COARSE = Setting("none", CoarseOptions(stride=8), 0.4, 0.99, 0.97)


def test_the_time_is_that_of_pictures_and_encoder():
    speed = Speed(picture=0.002, encode=0.01)
    after = ONCE + 1000 * PER_FRAME_AFTER
    assert expected_seconds(PLAIN, 1000, speed) == pytest.approx(after + 2 + 10)
    glance = 1000 * PER_FRAME_GLANCE
    assert expected_seconds(COARSE, 1000, speed) == pytest.approx(after + glance + 2 + 4)
    assert expected_seconds(FULL, 1000, speed) == pytest.approx(
        after + 1000 * PER_FRAME_AFTER + 2 + 20
    )


@given(st.floats(0.1, 1000), st.integers(1, 200_000), st.floats(0, 0.01), st.floats(1e-4, 1))
def test_the_first_setting_that_fits_is_chosen(minutes, frames, picture, encode):
    speed = Speed(picture, encode)
    settings = (FULL, PLAIN, COARSE)
    fitting = [
        setting
        for setting in settings
        if expected_seconds(setting, frames, speed) <= 60 * minutes * (1 - SPARE)
    ]
    if not fitting:
        with pytest.raises(ConfigError, match="cannot be read within"):
            choose_setting(minutes, frames, speed, settings)
        return
    setting, seconds = choose_setting(minutes, frames, speed, settings)
    assert setting is fitting[0]
    assert seconds == expected_seconds(setting, frames, speed)


def test_what_it_would_take_is_told_and_true():
    speed = Speed(0.001, 0.01)
    with pytest.raises(
        ConfigError, match="even the fastest reading, which encodes 40% of them"
    ) as error:
        choose_setting(5, 130_000, speed, (FULL, COARSE))
    minutes = int(error.value.remedy.split("--minutes ")[1].split(",")[0])
    assert choose_setting(minutes, 130_000, speed, (FULL, COARSE))[0] is COARSE
    with pytest.raises(ConfigError):
        choose_setting(minutes - 2, 130_000, speed, (FULL, COARSE))


def test_where_the_glance_costs_more_than_it_saves_every_frame_is_the_fastest():
    with pytest.raises(ConfigError, match="even the fastest reading, which encodes every frame,"):
        choose_setting(0.1, 130_000, Speed(0.001, 0.0001), (FULL, COARSE))


def test_packaged_settings_are_ordered_and_measured():
    speed = Speed(0.001, 0.01)
    seconds = [expected_seconds(setting, 10_000, speed) for setting in SETTINGS]
    assert seconds == sorted(seconds, reverse=True)
    assert SETTINGS[0] == FULL  # the default of `enteron read`
    for setting in SETTINGS:
        if setting.coarse is not None:
            assert setting.kept is not None
            assert setting.bound is not None
            assert 0 < setting.bound <= setting.kept <= 1


def test_the_plan_is_told_with_its_cost():
    told = describe(COARSE, 540, "onnx")
    assert "every 8th frame" in told
    assert "40%" in told
    assert "9.0 minutes" in told
    assert "99.0% of the lesions" in told
    assert "every frame is encoded, 2 views of each, by onnx" in describe(FULL, 60, "onnx")


# ---- the profile


def test_parts_are_added_up_over_threads():
    from concurrent.futures import ThreadPoolExecutor

    before = STOPWATCH.seconds()

    def work(_: int) -> None:
        with timed("resize"):
            pass

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1000)))
    with pytest.raises(ZeroDivisionError), timed("encode"):
        _ = 1 / 0
    spent = since(before)
    assert set(spent) <= {"resize", "encode"}
    assert all(seconds >= 0 for seconds in spent.values())


def profile(**parts: float) -> Profile:
    return Profile(
        seconds=100.0, parts=parts, frames=1000, images=1000, threads=2, operations=1e9, peak=1e11
    )


def test_shares_of_the_peak_by_hand():
    assert profile(encode=20.0).encoder_share == pytest.approx(0.5)
    assert profile().encoder_share is None
    assert profile(encode=60.0, decode=300.0).rest == pytest.approx(40)


def test_the_limit_names_what_is_slow():
    assert "the encoder, which ran at 20%" in profile(encode=50.0, wait=2.0).limit
    waiting = profile(encode=40.0, wait=40.0, decode=70.0, read=1.0).limit
    assert waiting.startswith("pictures")
    assert "'decode'" in waiting
    assert "'page'" in profile(encode=10.0, page=60.0).limit
    nothing = Profile(seconds=1, parts={}, frames=5, images=0, threads=1)
    assert "earlier run" in nothing.limit


def test_parts_that_run_beside_are_parts():
    assert set(PARTS) >= BESIDE


def test_operations_are_those_that_torch_counts():
    from benchmarks._gemm import backbone_operations
    from enteron.model.backbones import lite_backbone

    counted = backbone_operations(lite_backbone())
    assert operations("tf_efficientnet_lite0") == pytest.approx(counted, rel=0.01)
    assert operations("unknown") is None


def test_the_peak_is_that_of_this_planet():
    assert 1e8 < gemm_peak() < 1e14
