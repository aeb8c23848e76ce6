"""`enteron compare` and the lesions of `enteron evaluate`, as a person meets them."""

import json

import pytest

from tests.folders.making import official, write_json, write_plain_reading
from tests.making import label_rows, write_labels

TRUE = [(0, 50, "stomach"), (50, 200, "small intestine"), (60, 70, "blood"), (150, 160, "polyp")]
FOUND = [(0, 55, "stomach"), (55, 200, "small intestine"), (62, 68, "blood"), (100, 110, "ulcer")]


@pytest.fixture
def files(tmp_path):
    """A truth of two studies; reader A is silent about findings, reader B finds the blood."""
    write_json(tmp_path / "truth.json", official(("1", TRUE), ("2", TRUE)))
    write_json(tmp_path / "a.json", official(("1", TRUE[:2]), ("2", TRUE[:2])))
    for study in ("1", "2"):
        write_plain_reading(tmp_path / "b" / study, study, FOUND)
    return tmp_path


def test_two_predictions_against_a_truth(enteron, files):
    said = enteron("compare", "truth.json", "a.json", "b").stdout
    assert "B against A on 2 studies" in said
    for name in ("lesions found", "false events a study", "challenge score at 0.5"):
        assert name in said
    figures = json.loads(enteron("compare", "truth.json", "a.json", "b", "--json").stdout)
    found = figures["differences"]["lesions found"]
    assert (found["a"], found["b"], found["difference"]) == (0, 0.5, 0.5)
    assert found["better"] == "B"
    false = figures["differences"]["false events a study"]
    assert (false["difference"], false["better"]) == (1, "A")


def test_two_readers_without_a_truth(enteron, files):
    said = enteron("compare", "truth.json", "b").stdout
    for part in ("Lesions of both readers, 2 studies", "Cohen's kappa", "Where regions begin"):
        assert part in said
    figures = json.loads(enteron("compare", "truth.json", "b", "--json").stdout)
    blood = figures["lesions"]["blood"]
    assert (blood["a"], blood["b"], blood["shared_a"], blood["shared_b"]) == (2, 2, 2, 2)
    assert figures["lesions"]["all"]["agreement"] == pytest.approx(4 / 8)
    assert figures["borders"]["small intestine"]["median"] == 5
    #  Blood: 6 frames shared of 10 and 6, in 200.
    expected = 194 / 200 * 190 / 200 + 6 / 200 * 10 / 200
    assert figures["kappa"]["blood"]["kappa"] == pytest.approx(
        (196 / 200 - expected) / (1 - expected)
    )


def test_a_folder_of_labels_is_a_reader_too(enteron, files):
    rows = label_rows((50, ["stomach"]), (150, ["small intestine"]))
    write_labels(files / "colleague" / "Labels" / "1.csv", rows)
    figures = json.loads(enteron("compare", "colleague", "b", "--json").stdout)
    assert figures["studies"] == ["1"]
    assert figures["left_out"] == 1
    assert "1 study that only one of them has" in enteron("compare", "colleague", "b").stdout


def test_compare_refuses(enteron, files):
    write_json(files / "other.json", official(("9", TRUE)))
    for arguments, said in (
        (["truth.json", "none.json"], "none.json cannot be read"),
        (["truth.json", "other.json"], "no study is in all of the files"),
        (["truth.json", "a.json", "other.json"], "no study is in all of the files"),
        (["truth.json", "b", "--unit", "index"], "counts in 'frame' where 'index' is needed"),
    ):
        done = enteron("compare", *arguments, code=1)
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    assert "Missing argument" in enteron("compare", "a.json", code=2).stderr


def test_evaluate_counts_lesions(enteron, files):
    said = enteron("evaluate", "truth.json", "b").stdout
    for part in (
        "Lesions: found when the picture of an event lies in them",
        "Lesion recall by false events a study",
        "Is the finding anywhere in the study?",
        "frame rate is unknown",
    ):
        assert part in said
    lesions = json.loads(enteron("evaluate", "truth.json", "b", "--json").stdout)["lesions"]
    assert (lesions["lesions"], lesions["found"], lesions["false_events"]) == (4, 2, 2)
    assert lesions["false_per_hour"] is None
    assert lesions["false_per_study"]["value"] == 1.0
    assert lesions["detection"]["bleeding"]["sensitivity"]["value"] == 1.0
    timed = json.loads(enteron("evaluate", "truth.json", "a.json", "--json", "--rate", 2).stdout)
    assert timed["lesions"]["false_per_hour"]["value"] == 0.0


def test_evaluate_writes_a_page(enteron, files):
    said = enteron("evaluate", "truth.json", "b", "--html", "page.html").stdout
    assert "Open page.html in a browser." in said
    page = (files / "page.html").read_text()
    assert "Of 4 annotated lesions the program shows 2." in page
    assert enteron("evaluate", "truth.json", "b", "--html", "page.html", "--json").stdout[0] == "{"
    assert "'b' is a folder" in enteron("evaluate", "truth.json", "b", "--html", "b", code=1).stderr
