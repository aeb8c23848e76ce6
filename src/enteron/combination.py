"""Readings of one study by several models, combined into one: the mean of their scores.

What is averaged, and what the mean is worth (docs/inference.md, "Several models"):

- Calibrated scores, where every reading was calibrated. Raw scores of two models are on different
  scales, and the model that exaggerates would count more. Where none was calibrated, or on demand,
  raw scores.
- The mean of calibrated scores is a probability, but has no fit of its own: its thresholds and
  base rates are the means of the members'. A calibration that `enteron tune` fitted on the same
  combination of other studies replaces them.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from enteron.calibration import EDGE, Calibration, FrameCalibration, calibrated
from enteron.decoding import DecodeOptions, decode, preset
from enteron.decoding.options import require_fitted
from enteron.decoding.pipeline import decision_thresholds, event_context, frame_calibration
from enteron.errors import EnteronError, quantity
from enteron.files import json_text, make_folder, make_subfolder
from enteron.folders.identity import ReadingIdentity, decoding_hash, file_hashes, scores_hash
from enteron.folders.label_studio import write_label_studio
from enteron.folders.model import (
    calibration_hash,
    decoding_priors,
    load_calibration,
    require_scored_by,
)
from enteron.folders.reading import (
    EVENTS,
    EVENTS_TABLE,
    LABEL_STUDIO,
    REPORT,
    RUN,
    SUBMISSION,
    CoarseFacts,
    CombinationFacts,
    CombinedMember,
    ModelFacts,
    Reading,
    RunRecord,
    RuntimeFacts,
    State,
    load_reading,
    package_versions,
    require_folder_of,
    scaling_note,
    write_events,
)
from enteron.folders.scores import SCORES, write_scores
from enteron.folders.studies_table import STUDIES_TABLE
from enteron.folders.suspicious import SUSPICIOUS, suspicious_frames, write_suspicious
from enteron.ids import natural_key
from enteron.labels import LABELS
from enteron.locks import folder_lock
from enteron.options import Options
from enteron.priors import Priors
from enteron.progress import Progress, SilentProgress
from enteron.reading import PresetName, write_joint_submission
from enteron.report import write_report
from enteron.report.pictures import INDEX, PICTURES, choose_pictures, collect_pictures
from enteron.types import Scores

Mean = Literal["probability", "log-odds"]
Averaged = Literal["calibrated", "raw"]


class CombineOptions(Options):
    """How readings are combined, and how the combination is decoded."""

    mean: Mean = "probability"
    """Average probabilities, or their log-odds: a geometric mean, in which a model that is certain
    weighs more."""

    weights: tuple[Annotated[float, Field(gt=0, le=1e6)], ...] | None = None
    """Weight of each reading, in their order; None: all the same."""

    scores: Averaged | None = None
    """What is averaged. None: calibrated scores if every reading is calibrated, raw ones if none
    is."""

    preset: PresetName = "transit"
    """How scores become events."""

    decoding: DecodeOptions | None = None
    """Options of the decoder in place of a preset."""


def combine(
    readings: Sequence[Path | str],
    out: Path | str,
    *,
    options: CombineOptions | None = None,
    calibration: Path | str | None = None,
    progress: Progress | None = None,
) -> list[Reading]:
    """Combine readings of one study, or folders that hold readings of the same studies.

    One study goes to `out` itself; several go to a folder each in it, with a joint submission.
    `calibration` is a folder that `enteron tune` made from such combinations of other studies.
    """
    options = CombineOptions() if options is None else options
    progress = progress or SilentProgress()
    paths = [Path(reading) for reading in readings]
    _require_several(paths, options)
    folder = Path(out)
    by_study = _readings_by_study(paths)
    decoder = _Decoder.load(options, None if calibration is None else Path(calibration))
    if folder.resolve() in {path.resolve() for path in paths}:
        raise EnteronError(
            f"'{folder.name}' is one of the folders that are combined", "give another folder"
        )
    single = (paths[0] / RUN).is_file()
    make_folder(folder)
    results: list[Reading] = []
    with folder_lock(folder):
        if single:
            ((_, members),) = by_study.items()
            return [_combine_study(members, folder, options, decoder)]
        for name in (SUBMISSION, STUDIES_TABLE):  # they stand for all studies, or are not there
            (folder / name).unlink(missing_ok=True)
        for number, (study, members) in enumerate(by_study.items(), 1):
            progress.message(f"Combining study {number} of {len(by_study)}: {study}")
            target = make_subfolder(folder, study)
            with folder_lock(target):
                results.append(_combine_study(members, target, options, decoder))
        write_joint_submission(results, folder)
    return results


# ---- which readings


def _require_several(paths: Sequence[Path], options: CombineOptions) -> None:
    if len(paths) < 2:
        raise EnteronError(
            f"{quantity(len(paths), 'reading')} cannot be combined", "give two or more"
        )
    if options.weights is not None and len(options.weights) != len(paths):
        raise EnteronError(
            f"there are {quantity(len(options.weights), 'weight')} for {len(paths)} readings",
            "give one weight for each, in the same order",
        )


def _readings_by_study(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """The folders to combine for each study, in the order of the paths."""
    for path in paths:
        if not path.is_dir():
            raise EnteronError(f"'{path.name}' is not a folder", "give folders of readings")
    single = [(path / RUN).is_file() for path in paths]
    if all(single):
        return {_study_of(paths[0]): list(paths)}
    if any(single):
        reading, root = paths[single.index(True)], paths[single.index(False)]
        raise EnteronError(
            f"'{reading.name}' is a reading and '{root.name}' is not",
            "give readings of one study, or folders that hold readings of the same studies",
        )
    roots = [_readings_in(path) for path in paths]
    for path, root in zip(paths, roots, strict=True):
        for other_path, other in zip(paths, roots, strict=True):
            if missing := sorted(set(other) - set(root), key=natural_key):
                raise EnteronError(
                    f"'{path.name}' has no reading of study {missing[0]}, which "
                    f"'{other_path.name}' has",
                    "read the same studies with every model",
                )
    return {study: [root[study] for root in roots] for study in sorted(roots[0], key=natural_key)}


def _readings_in(root: Path) -> dict[str, Path]:
    """The readings in a folder by study."""
    folders: dict[str, Path] = {}
    for folder in sorted(root.iterdir()):
        if not (folder / RUN).is_file():
            continue
        study = _study_of(folder)
        if study in folders:
            raise EnteronError(
                f"'{folders[study].name}' and '{folder.name}' in '{root.name}' are both readings "
                f"of study {study}",
                "keep one of them there",
            )
        folders[study] = folder
    if not folders:
        raise EnteronError(
            f"the folder '{root.name}' holds no reading",
            "give folders that `enteron read` wrote",
        )
    return folders


def _name(folder: Path) -> str:
    """As messages name it: in a root every model's reading of a study has the same name."""
    return f"'{folder.resolve().parent.name}/{folder.name}'"


def _study_of(folder: Path) -> str:
    record = RunRecord.load(folder)
    return (record.study if record is not None else None) or folder.name


def _load_members(folders: Sequence[Path]) -> list[Reading]:
    """The readings, finished and whole; they must be of the same frames of the same study."""
    members: list[Reading] = []
    for folder in folders:
        if not (folder / SCORES).is_file():
            raise EnteronError(
                f"{_name(folder)} has no {SCORES}", "give folders that `enteron read` wrote"
            )
        members.append(load_reading(folder))
    first, *others = members
    for other in others:
        _require_same_study(first, other)
    hashes = [scores_hash(member.scores) for member in members]
    for index, digest in enumerate(hashes):
        if digest in hashes[:index]:
            same = members[hashes.index(digest)]
            raise EnteronError(
                f"{_name(same.folder)} and {_name(members[index].folder)} hold the same scores",
                "give each reading once, with a weight if it should count more",
            )
    return members


def _require_same_study(first: Reading, second: Reading) -> None:
    """Refuse readings of different studies, files or frames, and name what differs."""
    names = f"{_name(first.folder)} and {_name(second.folder)}"
    if first.study != second.study:
        raise EnteronError(
            f"{names} are readings of different studies, {first.study} and {second.study}",
            "give readings of one study, or folders that hold readings of the same studies",
        )
    read_again = "read the study again with both models"
    content = [r.run.identity.content for r in (first, second) if r.run.identity is not None]
    if None not in content and len(set(content)) > 1:
        raise EnteronError(
            f"{names} were read from different files of study {first.study}", read_again
        )
    if difference := _frame_difference(first.scores, second.scores):
        raise EnteronError(
            f"{names} have scores of different frames of study {first.study}: {difference}",
            read_again,
        )
    if first.scores.frames_per_row != second.scores.frames_per_row:
        raise EnteronError(
            f"{names} disagree on how many original frames a row of study {first.study} stands for",
            read_again,
        )


def _frame_difference(first: Scores, second: Scores) -> str | None:
    """What differs, in words; None where the frames are the same."""
    if np.array_equal(first.axis.frames, second.axis.frames):
        return None
    parts: list[str] = []
    for frames, others, which in (
        (first.axis.frames, second.axis.frames, "first"),
        (second.axis.frames, first.axis.frames, "second"),
    ):
        only = np.setdiff1d(frames, others).tolist()
        if only:
            shown = ", ".join(map(str, only[:5])) + (", …" if len(only) > 5 else "")
            parts.append(f"{quantity(len(only), 'frame')} only in the {which} ({shown})")
    return " and ".join(parts)


# ---- the mean


def mean_scores(
    values: Sequence[NDArray[np.floating]], weights: Sequence[float], mean: Mean
) -> NDArray[np.float32]:
    """The weighted mean of several (rows, 17) probabilities, or the probability of the mean of
    their log-odds.
    """
    shares = np.asarray(weights, dtype=np.float64)
    shares = shares / shares.sum()
    total = np.zeros(values[0].shape)
    for share, member in zip(shares, values, strict=True):
        total += share * _transformed(np.asarray(member, dtype=np.float64), mean)
    return np.clip(_restored(total, mean), 0, 1).astype(np.float32)


def _transformed(p: NDArray[np.float64], mean: Mean) -> NDArray[np.float64]:
    if mean == "probability":
        return p
    p = np.clip(p, EDGE, 1 - EDGE)  # as the calibration does: certainty has no finite log-odds
    return np.log(p) - np.log1p(-p)


def _restored(x: NDArray[np.float64], mean: Mean) -> NDArray[np.float64]:
    return x if mean == "probability" else 1 / (1 + np.exp(-x))


def choose_averaged(members: Sequence[Reading], asked: Averaged | None) -> Averaged:
    """Whether calibrated or raw scores are averaged; a mixture is refused."""
    if asked == "raw":
        return "raw"
    without = [member for member in members if member.run.frame_calibration is None]
    if not without:
        return "calibrated"
    if asked is None and len(without) == len(members):
        return "raw"
    raise EnteronError(
        f"{_name(without[0].folder)} was not calibrated, and has raw scores only",
        "calibrate its model and read or decode the study again, or average raw scores with "
        "--scores raw",
    )


def pooled_calibration(
    calibrations: Sequence[FrameCalibration],
    rates: Sequence[Mapping[str, float]],
    weights: Sequence[float],
    mean: Mean,
) -> Calibration:
    """What is known of the mean of calibrated scores without a fit of its own.

    Scores are probabilities as they are. Thresholds and base rates are means over the members that
    have them, on the scale on which scores are averaged.
    """

    def pooled(values: Sequence[float | None]) -> float | None:
        known = [(v, w) for v, w in zip(values, weights, strict=True) if v is not None]
        if not known:
            return None
        points = np.array([[value] for value, _ in known])
        return float(mean_scores(list(points), [weight for _, weight in known], mean)[0])

    thresholds = {
        label: pooled([calibration.thresholds[label] for calibration in calibrations])
        for label in LABELS
    }
    frames = FrameCalibration(thresholds=thresholds)
    shared = {label: pooled([table.get(label) for table in rates]) for label in LABELS}
    return Calibration(
        paper=frames,
        likelihood=frames,
        rates={label: rate for label, rate in shared.items() if rate is not None},
    )


def combination_hash(
    members: Sequence[Reading], weights: Sequence[float], mean: Mean, averaged: Averaged
) -> str | None:
    """What a combination is made of, whatever the study; None where a model is not known.

    The order of the members does not matter. Two combinations with the same hash have scores of
    the same meaning, so that a calibration of one fits the other.
    """
    parts: list[str] = []
    for member, weight in zip(members, weights, strict=True):
        model = None if member.run.identity is None else member.run.identity.model
        if model is None:
            return None
        scale = member.run.frame_calibration if averaged == "calibrated" else None
        applied = None
        if scale is not None:
            applied = [*_temperatures(scale), sorted(scale.bias.items())]
        share = round(weight / sum(weights), 9)
        parts.append(json_text([model, applied, *_scored(member.run.runtime), share]))
    content = json_text(["combination", mean, averaged, sorted(parts)])
    return hashlib.sha256(content.encode()).hexdigest()


def _temperatures(scale: FrameCalibration) -> list[float]:
    """The temperature of all labels, or those of findings and of anatomy."""
    apart = scale.anatomy_temperature
    return [scale.temperature] if apart is None else [scale.temperature, apart]


def _scored(runtime: RuntimeFacts | None) -> list[object]:
    """How a member's clips were made and averaged; the two common sets of views as yes or no."""
    if runtime is None or runtime.views is None:
        return [None]
    mirrored = {"none": False, "flip": True}.get(runtime.views, runtime.views)
    return [mirrored] if runtime.neighbour_step is None else [mirrored, runtime.neighbour_step]


# ---- one study


@dataclass(frozen=True)
class _Decoder:
    """How combinations are decoded."""

    options: DecodeOptions
    preset: str | None  # None: options of a file
    fitted: Calibration | None  # of `enteron tune`
    fitted_path: Path | None

    @classmethod
    def load(cls, options: CombineOptions, path: Path | None) -> "_Decoder":
        decoding = preset(options.preset) if options.decoding is None else options.decoding
        fitted = None if path is None else load_calibration(path)
        fitted_for = None if fitted is None else fitted.fitted_for
        if fitted_for is not None and fitted_for.origin == "model":
            raise EnteronError(
                "the calibration was fitted for one model, not for a combination",
                "fit one with `enteron tune` on combinations of studies with a truth",
            )
        require_fitted(decoding, fitted or Calibration())
        name = options.preset if options.decoding is None else None
        return cls(decoding, name, fitted, path)

    @property
    def priors(self) -> Priors:
        """Those beside the fitted calibration, or the packaged ones."""
        return decoding_priors(self.fitted or Calibration(), self.fitted_path)


def _seen_by_all(scores: Sequence[Scores]) -> NDArray[np.bool_] | None:
    """(rows,) frames that every model saw; None: all of them."""
    partial = [s.encoded for s in scores if s.encoded is not None]
    return np.logical_and.reduce(partial) if partial else None


def _combine_study(
    folders: Sequence[Path], out: Path, options: CombineOptions, decoder: _Decoder
) -> Reading:
    """One study from its readings to the page."""
    start = time.perf_counter()
    members = _load_members(folders)
    weights = options.weights or (1.0,) * len(members)
    averaged = choose_averaged(members, options.scores)
    _require_replaceable(out, members[0].study)
    if averaged == "calibrated":
        values = [calibrated(m.scores, _scale_of(m)) for m in members]
    else:
        values = [member.scores.values for member in members]
    first = members[0]
    scores = replace(
        first.scores,
        values=mean_scores(values, weights, options.mean),
        encoded=_seen_by_all([member.scores for member in members]),
    )
    calibration = _calibration_of(members, weights, averaged, options.mean, decoder)
    model = combination_hash(members, weights, options.mean, averaged)
    if decoder.fitted is not None and decoder.fitted_path is not None:
        require_scored_by(decoder.fitted, model, decoder.fitted_path, Path(SCORES))
    known = Calibration() if calibration is None else calibration
    priors = decoder.priors
    events = decode(scores, decoder.options, priors, known)
    decoded = time.perf_counter()
    path = decoder.fitted_path
    identity = ReadingIdentity(
        study=first.study,
        content=None if first.run.identity is None else first.run.identity.content,
        model=model,
        calibration=None if path is None else calibration_hash(path),
        decoding=decoding_hash(decoder.options, priors),
        scores=scores_hash(scores),
    )
    combination = _facts(members, weights, options.mean, averaged)
    record = _record(first.run, members, combination, identity, scores, decoder, calibration)
    record = record.model_copy(update={"timings": {"combine": round(decoded - start, 3)}})
    make_folder(out)
    record.save(out)
    (out / REPORT).unlink(missing_ok=True)
    write_scores(out / SCORES, scores, identity, calibrated=averaged == "calibrated")
    write_events(out, scores, events, identity, decoder.options)
    write_suspicious(out, scores, events, priors, calibration)
    write_label_studio(
        out, scores, events, rate=record.rate, axis=first.stored_axis, identity=identity
    )
    record = _saved(record, out, "decoded", _DECODED)
    collect_pictures(choose_pictures(scores, events, suspicious_frames(out)), folders, out)
    record = _saved(record, out, "illustrated", (f"{PICTURES}/{INDEX}",))
    write_report(out, unfinished=True)
    record = _saved(record, out, "finished", (REPORT,))
    return Reading(out, scores, tuple(events), record)


_DECODED = (SCORES, EVENTS, EVENTS_TABLE, SUBMISSION, SUSPICIOUS, *LABEL_STUDIO)


def _saved(record: RunRecord, out: Path, state: State, names: Sequence[str]) -> RunRecord:
    files = {**record.files, **file_hashes(out, names)}
    record = record.model_copy(update={"state": state, "files": files})
    record.save(out)
    return record


def _scale_of(member: Reading) -> FrameCalibration:
    assert member.run.frame_calibration is not None  # `choose_averaged` saw to it
    return member.run.frame_calibration


def _require_replaceable(out: Path, study: str) -> None:
    """Refuse a folder that holds anything but an earlier combination of the same study."""
    if not out.is_dir():
        return
    earlier = require_folder_of(out, study)
    if earlier is not None and earlier.combination is None:
        raise EnteronError(
            f"'{out.name}' holds a reading of study {study} that is no combination",
            "give another folder",
        )


def _calibration_of(
    members: Sequence[Reading],
    weights: Sequence[float],
    averaged: Averaged,
    mean: Mean,
    decoder: _Decoder,
) -> Calibration | None:
    """The calibration of the combination; None: its scores are raw."""
    if decoder.fitted is not None:
        return decoder.fitted
    if averaged == "raw":
        return None
    for member in members:
        applied = None if member.run.options is None else member.run.options.calibration
        if applied not in (None, decoder.options.calibration):
            raise EnteronError(
                f"{_name(member.folder)} was calibrated by '{applied}', where these options of the "
                f"decoder ask for '{decoder.options.calibration}'",
                "decode the readings with the same preset first, average raw scores with "
                "--scores raw, or give a calibration of the combination with --calibration",
            )
        if not member.run.base_rates:
            raise EnteronError(
                f"{_name(member.folder)} does not record the base rates of its calibration: an "
                "older version of enteron read it",
                "decode its scores again with --model MODEL, or read the study again",
            )
    return pooled_calibration(
        [_scale_of(member) for member in members],
        [member.run.base_rates for member in members],
        weights,
        mean,
    )


def _facts(
    members: Sequence[Reading], weights: Sequence[float], mean: Mean, averaged: Averaged
) -> CombinationFacts:
    listed: list[CombinedMember] = []
    for member, weight in zip(members, weights, strict=True):
        identity, model = member.run.identity, member.run.model
        listed.append(
            CombinedMember(
                weight=weight / sum(weights),
                scores=scores_hash(member.scores),
                model=None if identity is None else identity.model,
                calibration=None if identity is None else identity.calibration,
                backbone=None if model is None else model.backbone,
            )
        )
    return CombinationFacts(mean=mean, averaged=averaged, members=tuple(listed))


def _least_looked_at(members: Sequence[Reading]) -> CoarseFacts | None:
    """Of the member that looked at the fewest frames; None where all looked at every one."""
    coarse = [member.run.coarse for member in members if member.run.coarse is not None]
    return max(coarse, key=lambda facts: facts.skipped, default=None)


def _record(
    of_study: RunRecord,
    members: Sequence[Reading],
    combination: CombinationFacts,
    identity: ReadingIdentity,
    scores: Scores,
    decoder: _Decoder,
    calibration: Calibration | None,
) -> RunRecord:
    """What is known: of the study what its first reading knows, of the rest what was done here."""
    known = Calibration() if calibration is None else calibration
    trained = [m.run.model.calibrated_on_training for m in members if m.run.model is not None]
    sources = [s for m in members if m.run.model is not None for s in m.run.model.sources]
    how = f"--preset {decoder.preset}" if decoder.preset else "--config FILE"
    return of_study.model_copy(
        update={
            "state": "started",
            "identity": identity,
            "files": {},
            "command": f"enteron combine READING... --mean {combination.mean} {how}",
            "redundant": None,
            "coarse": _least_looked_at(members),
            "plan": None,
            "profile": None,
            "runtime": None,
            "combination": combination,
            "model": ModelFacts(
                backbone=f"mean of {len(members)} models",
                sources=tuple(dict.fromkeys(sources)),
                hash=None if identity.model is None else identity.model[:16],
                calibrated=calibration is not None,
                calibrated_on_training=max(trained, default=0),
            ),
            "preset": decoder.preset,
            "options": decoder.options,
            "frame_calibration": None
            if calibration is None
            else frame_calibration(decoder.options, calibration),
            "event_context": event_context(decoder.options, known),
            "base_rates": known.rates,
            "thresholds": decision_thresholds(decoder.options, known),
            "scaling": scaling_note(scores),
            "versions": package_versions("enteron", "numpy", "scipy", "polars"),
            "timings": {},
        }
    )
