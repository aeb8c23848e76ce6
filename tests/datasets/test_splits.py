"""Splits: seeded, stable, stored with a hash."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.datasets.splits import Split, load_split, save_split, seeded_split
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
