"""Splits: seeded, stable, stored with a hash."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.datasets.splits import (
    Split,
    joined_split,
    load_split,
    save_split,
    seeded_split,
    stratified_split,
)
from enteron.errors import LabelError

IDS = [str(number) for number in range(1, 81)]


def test_the_paper_s_shares():
    split = seeded_split(IDS)
    assert (len(split.train), len(split.val), len(split.test)) == (68, 12, 0)


@given(st.permutations(IDS), st.integers(0, 5))
def test_the_order_of_the_ids_does_not_matter(ids, seed):
    assert seeded_split(ids, seed=seed) == seeded_split(IDS, seed=seed)


def test_seeds_differ_and_parts_are_complete():
    splits = [seeded_split(IDS, seed=seed, val=0.2, test=0.1) for seed in range(5)]
    assert len({split.hash for split in splits}) == 5
    for split in splits:
        assert sorted(split.train + split.val + split.test) == sorted(IDS)


def test_adding_a_study_moves_at_most_the_border():
    before, after = seeded_split(IDS), seeded_split([*IDS, "81"])
    moved = set(before.val) ^ set(after.val)
    assert len(moved) <= 2


def test_the_authors_split_as_the_documentation_makes_it(tmp_path):
    """docs/data.md: test on 61 and up, as the dataset's authors do; validate at random."""
    others = seeded_split([study for study in IDS if int(study) < 61])
    test = tuple(study for study in IDS if int(study) >= 61)
    split = Split(others.train, others.val, test, rule=f"authors' test studies, {others.rule}")
    save_split(split, tmp_path / "split.json")
    split = load_split(tmp_path / "split.json")
    assert split.test == tuple(str(n) for n in range(61, 81))
    assert len(split.val) == 9
    assert not set(split.train) & set(split.val)


def test_stored_with_a_hash_and_refused_when_edited(tmp_path):
    path = tmp_path / "split.json"
    split = seeded_split(IDS, seed=3)
    save_split(split, path)
    assert load_split(path) == split
    content = json.loads(path.read_text())
    content["train"].append(content["val"].pop())
    path.write_text(json.dumps(content))
    with pytest.raises(LabelError, match="do not match its hash"):
        load_split(path)
    path.write_text("{}")
    with pytest.raises(LabelError, match="is not a split"):
        load_split(path)
    with pytest.raises(LabelError, match=r"none\.json cannot be read"):
        load_split(tmp_path / "none.json")


def test_what_cannot_be_split():
    with pytest.raises(LabelError, match="no studies"):
        seeded_split([])
    with pytest.raises(LabelError, match="leave nothing to train on"):
        seeded_split(IDS, val=0.6, test=0.5)
    with pytest.raises(LabelError, match="study 1 is in 'train' and in 'val'"):
        Split(("1",), ("1",), (), "by hand")
    with pytest.raises(LabelError, match="no part 'vall'; did you mean 'val'"):
        seeded_split(IDS).part("vall")


def test_few_studies_still_validate():
    assert len(seeded_split(["a", "b", "c"]).val) == 1
    assert seeded_split(["a"]).train == ("a",)


# ---- Stratified by label

#  study        a    b    c    d    e    f
#  label 0      x    x    x    x    x    x
#  label 1      x    x    .    .    .    .
#  label 2      .    .    .    x    .    .     (one study only: nothing to do)
SHOWS = {
    study: np.array([True, study in "ab", study == "d"]) for study in ("a", "b", "c", "d", "e", "f")
}


def sides(split: Split) -> tuple[str, str]:
    return "".join(split.train), "".join(split.val)


def test_a_split_that_lacks_nothing_stays_as_it_is():
    split = Split(("b", "c", "d", "e"), ("a", "f"), (), "by hand")
    assert stratified_split(split, SHOWS) is split


def test_a_label_that_validation_lacks_is_swapped_in():
    split = Split(("a", "b", "d", "e"), ("c", "f"), ("x",), "by hand")
    changed = stratified_split(split, SHOWS)
    train, val = sides(changed)
    assert ("a" in val) != ("b" in val)
    assert len(val) == 2
    assert sorted(train + val) == list("abcdef")
    assert changed.test == ("x",)
    assert changed.rule == "by hand, stratified by label (1 changes)"
    assert stratified_split(split, SHOWS) == changed  # the same every time


def test_a_label_that_training_lacks_is_swapped_back():
    split = Split(("c", "d", "e", "f"), ("a", "b"), (), "by hand")
    train, val = sides(stratified_split(split, SHOWS))
    assert len(val) == 2
    assert ("a" in val) != ("b" in val)
    assert ("a" in train) != ("b" in train)


def test_validation_grows_where_swaps_do_not_reach():
    """Three labels in pairs of studies of their own cannot all be in a validation of one study."""
    shows = {f"{pair}{n}": np.eye(3, dtype=bool)[pair] for pair in range(3) for n in range(3)}
    split = Split(tuple(s for s in shows if s != "00"), ("00",), (), "by hand")
    changed = stratified_split(split, shows)
    assert len(changed.val) == 3
    assert {study[0] for study in changed.val} == {"0", "1", "2"}
    assert len(stratified_split(split, shows, largest_val=0.0).val) == 1


def test_splits_of_several_sources():
    joined = joined_split({"one": seeded_split(IDS[:10]), "two": seeded_split(IDS[:10])})
    single = seeded_split(IDS[:10])
    assert joined.val == tuple(f"{name}.{s}" for name in ("one", "two") for s in single.val)
    assert joined.rule == f"within each source: {single.rule}"
