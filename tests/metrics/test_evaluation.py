"""`Evaluation` as people use it: scores by threshold, text, tables, rates, some studies only."""

import math

import numpy as np
import pytest

from enteron.errors import SubmissionError
from enteron.labels import LABELS
from enteron.metrics.evaluation import EvaluationOptions, evaluate, summarise
from enteron.types import Annotation, Unit
from tests.metrics.test_honest import PREDICTION, TRUTH, study

HOUR = EvaluationOptions(rate=2.0)  # 7200 frames of truth are an hour


@pytest.fixture(scope="module")
def evaluation():
    return evaluate([TRUTH], [PREDICTION], HOUR)


def test_scores_are_keyed_by_threshold(evaluation):
    # the arithmetic is in test_honest.py, test_hand_arithmetic
    assert evaluation.map[0.5] == pytest.approx(13 / 17)
    assert evaluation.empty_map[0.5] == pytest.approx(11 / 17)
    assert evaluation.present_map == pytest.approx({0.5: 3 / 6, 0.95: 2 / 6})
    figures = summarise(evaluation)
    for scores, name in (
        (evaluation.map, "map"),
        (evaluation.empty_map, "empty"),
        (evaluation.present_map, "present"),
        (evaluation.present_merged_map, "present_merged"),
        (evaluation.whole_truth_map, "whole_truth"),
    ):
        assert {f"{threshold:g}": value for threshold, value in scores.items()} == figures[name]
    with pytest.raises(KeyError):
        evaluation.map[0.7]


def test_figures_have_names(evaluation):
    findings = evaluation.findings
    assert (findings.detected, findings.true_events, findings.predicted) == (1, 3, 2)
    assert (findings.false_alarms, findings.false_alarms_per_hour) == (1, 1.0)
    assert findings.recall == pytest.approx(1 / 3)
    assert evaluation.findings_tiou.recall == 0
    onsets = evaluation.region_onsets
    assert (onsets.median, onsets.compared, onsets.missed, onsets.invented) == (20, 3, 1, 0)


def test_it_prints_as_a_short_table(evaluation):
    assert str(evaluation) == (
        "Evaluation of 1 study: 5 predicted events, 7 true events\n"
        "\n"
        "Temporal mAP\n"
        "                                  at 0.5  at 0.95\n"
        "official                           0.765    0.706\n"
        "an empty file, on the same truth   0.647    0.647\n"
        "labels present in the truth only   0.500    0.333\n"
        "\n"
        "Findings (1.0 hours at 2 frames/s (as given))\n"
        "             recall  precision  false alarms / study   / h  detected  of  predicted\n"
        "any overlap   0.333      0.500                  1.00  1.00         1   3          2\n"
        "tIoU 0.5      0.000      0.000                  2.00  2.00         0   3          2\n"
        "\n"
        "Region onsets, error in frames\n"
        "             median  90th percentile  compared  missed  invented\n"
        "all regions      20               84         3       1         0"
    )
    assert repr(evaluation) == "Evaluation(1 study, map={0.5: 0.765, 0.95: 0.706})"


def test_undefined_metrics_print_as_dashes():
    text = str(evaluate([study("a")], [study("a")]))
    assert "labels present in the truth only       -        -" in text
    assert math.isnan(evaluate([study("a")], [study("a")]).present_map[0.5])


def test_the_table_has_a_row_per_label(evaluation):
    table = evaluation.table()
    assert table["label"].to_list() == list(LABELS)
    figures = summarise(evaluation)["labels"]
    for row in table.iter_rows(named=True):
        expected = figures[row["label"]]
        assert row["true_events"] == expected["truths"]
        assert row["detected"] == expected["found"]
        assert row["correct"] == expected["right"]
        for name in ("studies", "predicted", "recall", "precision", "false_alarms_per_hour"):
            assert row[name] == expected[name]
        for name in ("ap", "empty_ap", "present_ap", "present_merged_ap"):
            assert row[f"{name}_0.5"] == expected[name]["0.5"]
            assert row[f"{name}_0.95"] == expected[name]["0.95"]
    groups = dict(table.select("label", "group").iter_rows())
    assert (groups["colon"], groups["pylorus"], groups["ulcer"]) == (
        "region",
        "landmark",
        "finding",
    )
    assert table["recall"].null_count() > 0
    assert not table.select(["ap_0.5", "recall"]).to_series(1).is_nan().any()


def test_html_is_escaped_and_self_contained():
    from html.parser import HTMLParser

    class Tags(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open, self.seen = [], set()

        def handle_starttag(self, tag, attrs):
            self.open.append(tag)
            self.seen.add(tag)
            assert not attrs  # nothing is loaded, and nothing runs

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    evaluation = evaluate([TRUTH], [study("a", (0, 1_000_000, "colon"))])
    object.__setattr__(evaluation, "warnings", ("<script>alert('x')</script>",))
    html = evaluation._repr_html_()
    assert "&lt;script&gt;" in html
    for cell in ("official", "an empty file, on the same truth", "small intestine", "0.647"):
        assert f"<td>{cell}</td>" in html
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert tags.seen <= {"div", "p", "table", "caption", "thead", "tbody", "tr", "th", "td",
                         "details", "summary"}  # fmt: skip


# ---- frame rates


def test_the_rate_is_given_or_the_reading_s_or_unknown():
    given = evaluate([TRUTH], [PREDICTION], EvaluationOptions(rate=4.0), rates={"a": 1.0})
    assert (given.rate, given.rate_source, given.timed) == (4.0, "option", 1)
    assert given.hours.tolist() == [0.5]
    read = evaluate([TRUTH], [PREDICTION], rates={"a": 1.0, "another": 9.0})
    assert (read.rate, read.rate_source, read.timed) == (1.0, "reading", 1)
    assert read.hours.tolist() == [2.0]
    assert read.rate_note == "2.0 hours at 1 frames/s (from the reading)"
    unknown = evaluate([TRUTH], [PREDICTION])
    assert (unknown.rate, unknown.rate_source, unknown.timed) == (None, None, 0)
    assert unknown.findings.false_alarms_per_hour is None
    assert unknown.findings.false_alarms_per_study == 1.0


def test_every_study_counts_at_its_own_rate():
    #  a: 7200 frames at 1/s are 2 h; b: 3600 frames at 4/s are 1/4 h; both: 10800 frames in 8100 s
    other = study("b", (0, 3600, "colon"))
    evaluation = evaluate([TRUTH, other], [PREDICTION, other], rates={"a": 1.0, "b": 4.0})
    assert evaluation.hours.tolist() == [2.0, 0.25]
    assert evaluation.rate == pytest.approx(10800 / 8100)
    assert evaluation.findings.false_alarms_per_hour == pytest.approx(1 / 2.25)
    partly = evaluate([TRUTH, other], [PREDICTION, other], rates={"a": 1.0})
    np.testing.assert_array_equal(partly.hours, [2.0, np.nan])
    assert partly.findings.false_alarms_per_hour == pytest.approx(1 / 2)  # of the timed study
    assert partly.findings.false_alarms_per_study == pytest.approx(1 / 2)  # of both
    assert partly.rate_note == (
        "2.0 hours at 1 frames/s (from the reading); the rate of 1 of 2 studies is unknown, and "
        "they do not count in rates per hour"
    )


def test_rows_are_called_rows():
    rows = Annotation("a", Unit.INDEX, TRUTH.segments)
    text = str(evaluate([rows], [rows]))
    assert "Findings (The frame rate is unknown" in text
    assert "Region onsets, error in rows" in text


# ---- some studies only


def test_only_the_predicted_studies_are_scored_on_request():
    truth = [study("b", (0, 10, "colon")), TRUTH, study("c", (0, 10, "colon"))]
    with pytest.raises(SubmissionError, match=r"lacks 2 of the truth's 3 studies.* --only-pred"):
        evaluate(truth, [PREDICTION])
    some = evaluate(truth, [PREDICTION], EvaluationOptions(only_predicted=True, rate=2.0))
    assert some.studies == ("a",)
    assert some.map == evaluate([TRUTH], [PREDICTION]).map
    assert some.warnings == (
        "the prediction has 1 of the truth's 3 studies; the others are left out",
    )
    np.testing.assert_array_equal(some.hours, [1.0])


def test_only_predicted_does_not_forgive_unknown_studies():
    only = EvaluationOptions(only_predicted=True)
    with pytest.raises(SubmissionError, match="has 1 study that the truth does not have"):
        evaluate([TRUTH], [PREDICTION, study("x")], only)
    with pytest.raises(SubmissionError, match="the prediction holds no study"):
        evaluate([TRUTH], [], only)
    assert evaluate([TRUTH], [PREDICTION], only).warnings == ()


def test_a_study_that_is_left_out_may_count_in_another_unit():
    rows = Annotation("b", Unit.INDEX, ())
    only = EvaluationOptions(only_predicted=True)
    assert evaluate([TRUTH, rows], [PREDICTION], only).studies == ("a",)
    assert evaluate([rows, TRUTH], [PREDICTION], only).studies == ("a",)
