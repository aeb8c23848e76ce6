"""`enteron train --folds`: a division by study, a model folder each, resumption."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enteron.datasets.splits import load_split
from enteron.errors import ConfigError, TrainingError
from enteron.folders.model import load_model
from enteron.model.backbones import lite_backbone
from enteron.priors import load_priors, save_priors
from enteron.progress import SilentProgress
from enteron.training import run
from enteron.training.folds import divide, fold_folder, folds_finished, stored_folds, train_folds
from enteron.training.options import recipe
from enteron.training.plan import TrainingRequest
from tests.training.model_folders import STUDIES, LookupEncoder, store_features, write_root


@given(
    studies=st.integers(2, 30),
    folds=st.integers(2, 6),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_every_study_is_left_out_once_and_labels_are_spread(studies, folds, seed, data):
    names = [str(number) for number in range(studies)]
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    shows = {name: rng.random(5) < (0.05, 0.1, 0.3, 0.6, 1.0) for name in names}
    parts = divide(names, folds, seed, shows)
    assert sorted(study for part in parts for study in part) == sorted(names)
    sizes = sorted(map(len, parts))
    assert sizes[-1] - sizes[0] <= 1
    assert parts == divide(list(reversed(names)), folds, seed, shows)  # whatever the order
    # The rarest label is dealt out first, so no fold has two of it before all have one.
    counts = np.sum(list(shows.values()), axis=0)
    rarest = np.flatnonzero(counts == counts[counts > 0].min())[0]
    held = sorted(sum(bool(shows[study][rarest]) for study in part) for part in parts)
    if studies >= folds:
        assert held[-1] - held[0] <= 1 or held[-1] <= -(-counts[rarest] // min(folds, studies))
    plain = divide(names, folds, seed, {})
    assert sorted(study for part in plain for study in part) == sorted(names)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> tuple[Path, Path]:
    home = tmp_path_factory.mktemp("folds")
    root = write_root(home / "galar")
    backbone = lite_backbone()
    encoder = LookupEncoder(backbone.hash(), backbone.spec.preprocessing)
    return root, store_features(root, home / "features", encoder)


def request(data: tuple[Path, Path], out: Path, **changes) -> TrainingRequest:
    options = recipe("lite", epochs=1, batch=16, checkpoint_steps=2)
    settings = {"features": data[1], **changes}
    return TrainingRequest((data[0],), out, settings.pop("options", options), **settings)


class KilledError(Exception):
    """Stands for a kill: nothing after it runs."""


def test_folds_are_model_folders_and_a_killed_run_resumes_to_the_same_bytes(
    data, tmp_path, monkeypatch
):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    results = train_folds(request(data, whole), 2, SilentProgress())
    assert all(best is not None for best in results.values())
    splits = [load_split(fold_folder(whole, number) / "split.json") for number in (1, 2)]
    assert sorted([*splits[0].val, *splits[1].val]) == sorted(STUDIES)
    for split in splits:
        assert sorted([*split.train, *split.val]) == sorted(STUDIES)
    for number, split in enumerate(splits, 1):
        _, record = load_model(fold_folder(whole, number))
        assert record.split_hash == split.hash
        assert [(s.frames, s.share) for s in record.spacings] == [(5, 1.0)]
    assert sorted(path.name for path in whole.iterdir()) == ["fold-1", "fold-2"]
    assert folds_finished(whole)

    # Killed between the folds, and then within the second.
    real, calls = run.run_training, []

    def dies(plan, progress):
        calls.append(plan.request.out.name)
        if len(calls) == 2:
            raise KilledError
        return real(plan, progress)

    monkeypatch.setattr(run, "run_training", dies)
    with pytest.raises(KilledError):
        train_folds(request(data, killed), 2, SilentProgress())
    monkeypatch.setattr(run, "run_training", real)
    assert stored_folds(killed) == 2
    assert not folds_finished(killed)
    before = (killed / "fold-1" / "model.json").stat().st_mtime_ns

    def dies_within(*arguments, **settings):
        raise KilledError

    monkeypatch.setattr(run, "_write_model_folder", dies_within)
    with pytest.raises(KilledError):
        train_folds(request(data, killed, resume=True), 2, SilentProgress())
    monkeypatch.undo()
    resumed = train_folds(request(data, killed, resume=True), 2, SilentProgress())
    assert resumed[1] is None
    assert resumed[2] is not None
    assert (killed / "fold-1" / "model.json").stat().st_mtime_ns == before
    for number in (1, 2):
        for name in ("model.safetensors", "model.json", "split.json", "training/history.json"):
            one, other = (fold_folder(out, number) / name for out in (whole, killed))
            assert one.read_bytes() == other.read_bytes(), (number, name)
    assert sorted(path.name for path in killed.iterdir()) == ["fold-1", "fold-2"]


def test_contradictions_are_refused_before_anything_is_written(data, tmp_path, monkeypatch):
    out = tmp_path / "out"
    monkeypatch.setattr(
        run, "run_training", lambda plan, progress: (_ for _ in ()).throw(KilledError)
    )
    save_priors(load_priors().model_copy(update={"source": "ours"}), tmp_path / "own.json")
    with pytest.raises(KilledError):
        train_folds(request(data, out, priors=tmp_path / "own.json"), 2, SilentProgress())
    save_priors(load_priors().model_copy(update={"source": "theirs"}), tmp_path / "others.json")
    later = recipe("lite", epochs=7, batch=16, checkpoint_steps=2)
    for changes, folds, message in (
        ({}, 2, "holds 2 folds already; add --resume"),
        ({"resume": True}, 3, "holds 2 folds, not 3; resume with the same number"),
        ({"resume": True, "options": later}, 2, "started with another 'epochs'"),
        ({"resume": True, "priors": tmp_path / "others.json"}, 2, "started with other priors"),
    ):
        with pytest.raises(TrainingError, match=message):
            train_folds(request(data, out, **changes), folds, SilentProgress())
    split = out / "fold-1" / "split.json"
    with pytest.raises(ConfigError, match="--folds makes its own splits"):
        train_folds(request(data, out, resume=True, split=split), 2, SilentProgress())
    with pytest.raises(TrainingError, match="4 studies cannot be divided into 5 folds"):
        train_folds(request(data, tmp_path / "five"), 5, SilentProgress())
    with pytest.raises(TrainingError, match="'none' holds no folds to resume"):
        train_folds(request(data, tmp_path / "none", resume=True), 2, SilentProgress())
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="start it without torchrun"):
        train_folds(request(data, tmp_path / "processes"), 2, SilentProgress())
    assert not any((tmp_path / name).exists() for name in ("processes", "five/fold-1"))


def test_on_the_command_line(data, tmp_path, command):
    """Folds are made, are finished, and are resumed without being told how many they are."""
    root, features = data
    (tmp_path / "quick.toml").write_text("epochs = 1\nbatch = 16\n")
    words = ("--preset", "lite", "--config", "quick.toml", "--features", features)
    code, said, _ = command("train", root, "--out", "models", "--folds", 2, *words)
    assert code == 0
    assert "Fold 1 of 2: leaves out 2 studies." in said
    assert "Over 2 folds: mAP of present labels 0." in said
    assert "2 models written to models." in said
    code, said, _ = command("train", root, "--out", "models", "--resume")
    assert said == "models is finished: there is nothing to resume.\n"
    record = json.loads((tmp_path / "models" / "fold-2" / "model.json").read_text())
    assert record["spacings"] == [{"frames": 5, "share": 1.0}]
    code, _, error = command("train", root, "--out", "models", "--folds", 2, *words)
    assert code == 1
    assert "'models' holds 2 folds already; add --resume" in error
