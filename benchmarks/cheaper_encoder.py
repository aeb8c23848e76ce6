"""Cheaper forms of the encoder of the model in the box: what they cost in findings and events.

`enteron bench cheaper_encoder -- --drawn ROOT [--parts drift auc events speed]`. Forms are compared
with fp32 (`onnx`): AUC on left-out videos by `real_protocol.json`, with the layer of local evidence
fitted on fp32 features as in the box, int8 calibrated on frames of the other folds' videos and of
drawings; events of real videos and of drawn studies (a root that `enteron phantom` made); and
frames per second, in turns. Features and scores are kept in --out, so a run that was stopped
resumes. Needs the frames of ../shared (or --data).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper

from benchmarks import real
from benchmarks._inference_study import TOLERANCE, synthetic_study
from enteron.calibration import Calibration
from enteron.datasets.layouts import open_dataset
from enteron.decoding import PRESETS, DecodedEvent, decode
from enteron.folders.model import (
    LoadedModel,
    default_model,
    load_calibration,
    load_model,
    open_model,
)
from enteron.folders.packing import calibration_images
from enteron.inference.embed import EmbedOptions, embed_study
from enteron.inference.encoder import Encoder, ImageBatch
from enteron.inference.onnx_graph import export_graph
from enteron.inference.onnx_runtime import GRAPH_INPUT, OnnxEncoder, open_session
from enteron.inference.pictures import prepare_frame, study_fields
from enteron.inference.runtimes import drift, make_encoder
from enteron.inference.score import score_study
from enteron.inference.static_int8 import Int8Options, int8_graph
from enteron.inference.views import VIEW_SETS
from enteron.labels import FINDINGS
from enteron.model.backbones import Backbone
from enteron.model.options import FEATURES
from enteron.model.patches import LocalEvidence
from enteron.model.preprocessing import window_rows
from enteron.priors import load_priors
from enteron.study import Study, open_study
from enteron.training.options import recipe
from enteron.training.patches import evidence_of, fit_local_evidence

ROOT = Path(__file__).resolve().parents[1]
MAPS = "cat"  # the exported graph's value that local evidence reads
EXACT = "onnx"

FORMS: dict[str, Int8Options] = {
    "7 bits, all outputs": Int8Options("seven", fitted_ranges=False, corrected=False),
    "7 bits, corrected": Int8Options("seven"),
    "8 bits in pairs": Int8Options(corrected=False),
    "8 bits in pairs, corrected": Int8Options(),
    "8 bits, corrected": Int8Options("eight"),
}
PARTS = ("drift", "auc", "events", "speed")
PLAIN = "ONNX Runtime's own, 8 bits"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/frames/kvasir-capsule")
    parser.add_argument("--drawn", type=Path, required=True)
    parser.add_argument("--drawn-studies", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "runs/cheaper")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=PARTS)
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    parts = {"drift": drifts, "auc": auc, "events": events, "speed": speed}
    for part in options.parts:
        parts[part](options)


def box() -> Backbone:
    return load_model(default_model())[0].backbone.eval()


def form_graph(backbone: Backbone, form: Int8Options, images: ImageBatch, *, maps: bool) -> bytes:
    """The encoder in int8; with `maps` it also gives those that local evidence reads."""
    tensors = backbone.state_dict(prefix="backbone.")
    weights = {name: tensor.numpy() for name, tensor in tensors.items() if tensor.ndim == 4}
    model = int8_graph(export_graph(backbone), weights, images, form)
    if maps:
        output = helper.make_tensor_value_info(MAPS, TensorProto.FLOAT, None)
        model.graph.output.append(output)
    return model.SerializeToString()


def stored_graph(backbone: Backbone, name: str, options: argparse.Namespace) -> bytes:
    """A form calibrated as the box is: on real and on drawn frames."""
    path = options.out / f"{_file_name(name)}.onnx"
    if not path.exists():
        roots = [options.data, options.drawn]
        images = calibration_images(roots, backbone.spec.preprocessing)
        if name == PLAIN:
            _quantise_plainly(backbone, images, path)
        else:
            path.write_bytes(form_graph(backbone, FORMS[name], images, maps=False))
    return path.read_bytes()


def _quantise_plainly(backbone: Backbone, images: ImageBatch, path: Path) -> None:
    """Convolutions and additions as ONNX Runtime quantises them without further settings."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._rows = iter(images)

        def get_next(self) -> Any:
            image = next(self._rows, None)
            return None if image is None else {GRAPH_INPUT: image[None]}

    exported = onnx.load_model_from_string(export_graph(backbone))
    trunk = [n.name for n in exported.graph.node if n.op_type in ("Conv", "Clip")]
    quantization.quantize_static(
        exported,
        path,
        Reader(),
        per_channel=True,
        nodes_to_quantize=trunk,
        weight_type=quantization.QuantType.QInt8,
    )


# ---- drift and processor time


def drifts(options: argparse.Namespace) -> None:
    """On one real frame of every video that did not calibrate, one thread, in turns."""
    backbone = box()
    preprocessing = backbone.spec.preprocessing
    images = []
    for entry in open_dataset(options.data).studies.values():
        with entry.open() as study:
            frame = study.frame(int(study.numbers[len(study) // 5]))
        if frame.image is not None:
            images.append(preprocessing.resize_and_crop(frame.image))
    graphs = {EXACT: export_graph(backbone)}
    graphs |= {name: stored_graph(backbone, name, options) for name in (PLAIN, *options.forms)}
    encoders = {
        name: OnnxEncoder(graph, name, "", preprocessing, 1) for name, graph in graphs.items()
    }
    batch = np.stack(images)
    features = {name: encoder.encode(batch) for name, encoder in encoders.items()}
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    for _ in range(options.rounds):
        for name, encoder in encoders.items():
            start = time.process_time()
            encoder.encode(batch[:16])
            seconds[name].append((time.process_time() - start) / 16)
    exact = features[EXACT]
    print(f"{len(batch)} real frames; processor time of one thread, {options.rounds} rounds\n")
    print("| | ms | ratio | cosine: mean | worst | of spread | evidence: worst correlation |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, found in features.items():
        measured = drift(found[:, :FEATURES], exact[:, :FEATURES])
        cosines = [
            drift(a[None], b[None]).cosine
            for a, b in zip(found[:, :FEATURES], exact[:, :FEATURES], strict=True)
        ]
        evidence = [
            np.corrcoef(found[:, column], exact[:, column])[0, 1]
            for column in range(FEATURES, exact.shape[1])
        ]
        ratios = [a / b for a, b in zip(seconds[EXACT], seconds[name], strict=True)]
        print(
            f"| {name} | {1000 * statistics.median(seconds[name]):.1f} "
            f"| {statistics.median(ratios):.2f} | {np.mean(cosines):.4f} | {measured.cosine:.4f} "
            f"| {measured.of_spread:.3f} | {min(evidence):.3f} |",
            flush=True,
        )
    print()


# ---- AUC on left-out videos


def auc(options: argparse.Namespace) -> None:
    protocol = json.loads(real.PROTOCOL.read_text())
    frames = real.load_frames(options.data, options.out, protocol)
    layers = [
        _evidence_of_fold(frames, protocol, fold, options.out)
        for fold in range(len(protocol["folds"]))
    ]
    scores = {EXACT: np.full((len(frames.samples), len(FINDINGS)), np.nan, np.float32)}
    for fold, layer in enumerate(layers):
        rows = frames.rows_of(protocol["folds"][fold])
        scores[EXACT][rows] = evidence_of(layer, frames.samples.maps, rows)
    backbone = box()
    for name in options.forms:
        path = options.out / f"evidence-{_file_name(name)}.npy"
        if not path.exists():
            start = time.perf_counter()
            np.save(path, _form_scores(backbone, FORMS[name], frames, protocol, layers, options))
            print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
        scores[name] = np.load(path)
    pairs = real.pairs_of(frames, protocol)
    findings = list(dict.fromkeys(pair.finding for pair in pairs))
    values = {
        name: np.array([real.mean_auc([_over_clips(s, frames)], pair) for pair in pairs])
        for name, s in scores.items()
    }
    print(f"\n| AUC of left-out videos | macro | difference | {' | '.join(findings)} | worst |")
    print("|---|---:|---:|" + "---:|" * (len(findings) + 1))
    for name, array in values.items():
        of = {f: array[[p.finding == f for p in pairs]].mean() for f in findings}
        base = {f: values[EXACT][[p.finding == f for p in pairs]].mean() for f in findings}
        differences = [of[f] - base[f] for f in findings]
        low, high = real.macro_interval((array - values[EXACT]).tolist(), pairs)
        print(
            f"| {name} | {np.mean(list(of.values())):.3f} "
            f"| {np.mean(differences):+.4f} [{low:+.4f}, {high:+.4f}] "
            f"| {' | '.join(f'{of[f]:.3f}' for f in findings)} | {min(differences):+.3f} |"
        )


def _evidence_of_fold(
    frames: real.Frames, protocol: Mapping, fold: int, out: Path
) -> LocalEvidence:
    """The layer fitted on fp32 maps of the other folds, as `enteron bench real` does."""
    layer, path = LocalEvidence(), out / f"evidence-{frames.digest}-{fold}.pt"
    if path.exists():
        layer.load_state_dict(torch.load(path, weights_only=True))
        return layer.eval()
    others = [v for k, videos in enumerate(protocol["folds"]) if k != fold for v in videos]
    train = frames.samples[frames.rows_of(others)]
    fit_local_evidence(train, recipe("default").patches, seed=0, evidence=layer)
    torch.save(layer.state_dict(), path)
    return layer


def _form_scores(
    backbone: Backbone,
    form: Int8Options,
    frames: real.Frames,
    protocol: Mapping,
    layers: Sequence[LocalEvidence],
    options: argparse.Namespace,
) -> NDArray[np.float32]:
    """Evidence (frames, 9) by each fold's layer on maps of the form."""
    preprocessing = backbone.spec.preprocessing
    scores = np.full((len(frames.samples), len(FINDINGS)), np.nan, np.float32)
    drawn = calibration_images([options.drawn], preprocessing)[::2]
    for fold, videos in enumerate(protocol["folds"]):
        others = [v for k, other in enumerate(protocol["folds"]) if k != fold for v in other]
        images = np.concatenate([_one_of_each(frames, others, backbone), drawn])
        session = open_session(form_graph(backbone, form, images, maps=True))
        for video in videos:
            rows = frames.rows_of([video])
            with frames.studies[video].open() as study:
                fields = study_fields(study, preprocessing)
                maps = []
                for number in frames.numbers[rows].tolist():
                    image = prepare_frame(study.frame(number), preprocessing, fields).image
                    assert image is not None
                    maps.append(session.run([MAPS], {GRAPH_INPUT: image[None]})[0])
            with torch.inference_mode():
                found = np.concatenate(maps).astype(np.float16)  # as fp32 maps are stored
                scores[rows] = layers[fold](torch.from_numpy(found).float()).numpy()
    return scores


def _one_of_each(frames: real.Frames, videos: Sequence[str], backbone: Backbone) -> ImageBatch:
    images = []
    for video in videos:
        with frames.studies[video].open() as study:
            fields = study_fields(study, backbone.spec.preprocessing)
            frame = study.frame(int(study.numbers[len(study) // 2]))
            image = prepare_frame(frame, backbone.spec.preprocessing, fields).image
        assert image is not None
        images.append(image)
    return np.stack(images)


def _over_clips(scores: NDArray[np.float32], frames: real.Frames) -> NDArray[np.float32]:
    """The mean over the frames of a clip, as in the recipe `default`."""
    options = recipe("default").model
    means = np.empty_like(scores)
    for place in np.unique(frames.samples.study):
        own = np.flatnonzero(frames.samples.study == place)
        windows = window_rows(len(own), options.neighbour_step, options.frames)
        means[own] = scores[own][windows].mean(axis=1)
    return means


# ---- events


@dataclass
class Kept:
    """Events of fp32, and how many of them a form keeps."""

    all: int = 0
    sure: int = 0  # with a confidence over .5
    kept: int = 0
    sure_kept: int = 0
    overlapping: int = 0  # kept by label and half of their union
    sure_overlapping: int = 0
    new: int = 0
    score: float = 0.0  # sum over studies of mean differences of scores
    studies: int = 0


def events(options: argparse.Namespace) -> None:
    model = open_model(default_model())
    calibration = load_calibration(default_model())
    backbone = box()
    preprocessing = backbone.spec.preprocessing
    encoders: dict[str, Encoder] = {EXACT: make_encoder(model.backbone, EXACT)}
    for name in options.forms:
        graph = stored_graph(backbone, name, options)
        encoders[name] = OnnxEncoder(graph, _file_name(name), backbone.hash(), preprocessing, 1)
    # The drawings that calibrated int8 are not those that are read: the last ones are.
    kinds = {
        "real": list(open_dataset(options.data).studies.values()),
        "drawn": list(open_dataset(options.drawn).studies.values())[-options.drawn_studies :],
    }
    print(
        "| events | studies | fp32: events | kept | overlapping | over .5 | kept | overlapping ",
        end="",
    )
    print("| new | mean difference of scores |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for kind, entries in kinds.items():
        results = {name: Kept() for name in options.forms}
        for entry in entries:
            with entry.open() as study:
                folder = options.out / "events" / kind / entry.id
                folder.mkdir(parents=True, exist_ok=True)
                read = {
                    name: _read(
                        study, encoder, folder / f"{_file_name(name)}.npy", model, calibration
                    )
                    for name, encoder in encoders.items()
                }
            for name in options.forms:
                _count(results[name], read[EXACT], read[name], TOLERANCE * study.axis.step)
        for name, r in results.items():
            print(
                f"| {kind}, {name} | {r.studies} | {r.all} | {r.kept} | {r.overlapping} | {r.sure} "
                f"| {r.sure_kept} | {r.sure_overlapping} | {r.new} | {r.score / r.studies:.4f} |",
                flush=True,
            )
    print(f"\nkept: the same label, both ends within {TOLERANCE} stored frames; overlapping: or by")
    print("half of both together")


Read = tuple[NDArray[np.float32], list[DecodedEvent]]


def _read(
    study: Study, encoder: Encoder, path: Path, model: LoadedModel, calibration: Calibration | None
) -> Read:
    embeddings = embed_study(study, encoder, path, EmbedOptions(), views=VIEW_SETS["none"])
    scores = score_study(model.head, embeddings, views="none", frames_per_row=study.frames_per_row)
    return scores.values, decode(scores, PRESETS["transit"], load_priors(), calibration)


def _count(result: Kept, exact: Read, other: Read, tolerance: int) -> None:
    result.studies += 1
    result.score += float(np.nanmean(np.abs(exact[0] - other[0])))
    left = list(other[1])
    partners = 0
    for event in exact[1]:
        sure = (event.score or 0) > 0.5
        result.all += 1
        result.sure += sure
        same = [e for e in left if e.label == event.label]
        near = [
            e
            for e in same
            if max(abs(e.start - event.start), abs(e.stop - event.stop)) <= tolerance
        ]
        overlapping = [e for e in same if _overlap(e, event) >= 0.5]
        if near or overlapping:
            left.remove((near or overlapping)[0])
            partners += 1
        result.kept += bool(near)
        result.sure_kept += bool(near) and sure
        result.overlapping += bool(near or overlapping)
        result.sure_overlapping += bool(near or overlapping) and sure
    result.new += len(other[1]) - partners


def _overlap(first: DecodedEvent, second: DecodedEvent) -> float:
    shared = min(first.stop, second.stop) - max(first.start, second.start)
    return max(0, shared) / (max(first.stop, second.stop) - min(first.start, second.start))


# ---- speed


def speed(options: argparse.Namespace) -> None:
    """Frames per second of the runtimes of the box, in turns: the encoder, from PNG, from video."""
    model = open_model(default_model())
    encoders = {name: make_encoder(model.backbone, name) for name in (EXACT, "onnx-int8")}
    sources = {
        "PNG": synthetic_study(600).folder,
        "video": synthetic_study(600, video=True).folder,
    }
    with open_study(sources["PNG"]) as study:
        pictures = [study.frame(int(n)).image for n in study.numbers[:96]]
    resize = model.backbone.spec.preprocessing.resize_and_crop
    batch = np.stack([resize(picture) for picture in pictures if picture is not None])
    rates: dict[tuple[str, str], list[float]] = {}
    cpu: dict[tuple[str, str], list[float]] = {}
    for turn in range(options.rounds + 1):
        for name, encoder in encoders.items():
            for source in ("encoder alone", *sources):
                wall, used = time.perf_counter(), time.process_time()
                if source == "encoder alone":
                    encoder.encode(batch)
                    count = len(batch)
                else:
                    with tempfile.TemporaryDirectory() as folder, open_study(sources[source]) as s:
                        path = Path(folder) / "features.npy"
                        embed_study(s, encoder, path, EmbedOptions(), views=VIEW_SETS["none"])
                        count = len(s)
                if turn:
                    key = (source, name)
                    rates.setdefault(key, []).append(count / (time.perf_counter() - wall))
                    cpu.setdefault(key, []).append(1000 * (time.process_time() - used) / count)
    exact, int8 = (encoder.encode(batch) for encoder in encoders.values())
    print(f"\ndrift on drawn frames: {drift(int8, exact)}\n")
    print(
        "| from | onnx, frames/s | onnx-int8 | ratio | CPU ms a frame, onnx | onnx-int8 | ratio |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for source in ("encoder alone", *sources):
        first, second = rates[source, EXACT], rates[source, "onnx-int8"]
        ratio = statistics.median(b / a for a, b in zip(first, second, strict=True))
        a, b = cpu[source, EXACT], cpu[source, "onnx-int8"]
        cpu_ratio = statistics.median(x / y for x, y in zip(a, b, strict=True))
        print(
            f"| {source} | {statistics.median(first):.0f} | {statistics.median(second):.0f} "
            f"| {ratio:.2f} | {statistics.median(a):.2f} | {statistics.median(b):.2f} "
            f"| {cpu_ratio:.2f} |"
        )


def _file_name(form: str) -> str:
    return form.replace(",", "").replace(" ", "-")


if __name__ == "__main__":
    main()
