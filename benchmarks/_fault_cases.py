"""The cases of `enteron bench faults`, by the points of issue 13: results that could be wrong."""

import json
import os
import shutil
from pathlib import Path

from benchmarks._fault_data import OTHER, STUDY, VIDEO_FRAMES
from benchmarks._fault_harness import OUT, Box, case
from enteron.labels import LABELS

HEADER = "frame," + ",".join(LABELS)
RESULTS = ("scores.parquet", "events.json", "submission.json")


def scores_csv(frames: range | list[int], score: float = 0.5) -> str:
    """A file of scores with the same score everywhere."""
    return "\n".join([HEADER, *(f"{frame}" + f",{score}" * 17 for frame in frames)]) + "\n"


def edit_json(path: Path, **fields: object) -> None:
    """Change fields of a JSON object."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def results(folder: Path) -> dict[str, bytes]:
    """What a reading found."""
    return {name: (folder / name).read_bytes() for name in RESULTS if (folder / name).exists()}


# ---- 1, 2: damaged and cut videos

_NUMBERS = """
from pathlib import Path
from enteron.study import open_study
from tests.making import number_of
study = open_study(Path({name!r}), study_id="s")
wrong = [f.number for f in study if f.image is not None and number_of(f.image) != f.number]
print(len(study), len(study.unreadable), len(wrong), len(study.notes))
"""


def _numbers(box: Box, name: str) -> None:
    """No readable frame may carry a wrong number, and the damage must be told."""
    done = box.script(_NUMBERS.format(name=name))
    if done.code == 1:
        box.outcome.said = done.sentence
        box.expect(bool(done.sentence), "no sentence")
        return
    if done.code != 0:
        return
    frames, unreadable, wrong, notes = map(int, done.stdout.split())
    box.outcome.said = f"{frames} frames, {unreadable} unreadable, {wrong} wrong, {notes} notes"
    box.expect(wrong == 0, f"{wrong} frames under a wrong number")
    told = unreadable > 0 or notes > 0
    box.expect(told, "the damage is not told")


def _damaged(box: Box, name: str, change: str) -> None:
    content = bytearray((box.data / name).read_bytes())
    # The index of an MP4 lies at its end, and makes up half of so small a file.
    middle = len(content) // (4 if change == "zeroed" else 2)
    if change == "deleted":
        del content[middle : middle + 1024]
    elif change == "zeroed":
        content[middle : middle + 1024] = bytes(1024)
    elif change == "swapped":
        first, second = content[middle - 1500 : middle], content[middle : middle + 1500]
        content[middle - 1500 : middle + 1500] = second + first
    else:
        del content[middle:]
    box.write(name, bytes(content))
    _numbers(box, name)


@case(1, "MKV, 1 kB deleted in the middle")
def mkv_deleted(box: Box) -> None:
    _damaged(box, "film.mkv", "deleted")


@case(1, "AVI, 1 kB deleted in the middle")
def avi_deleted(box: Box) -> None:
    _damaged(box, "film.avi", "deleted")


@case(1, "MP4, 1 kB zeroed, index intact")
def mp4_zeroed(box: Box) -> None:
    _damaged(box, "film.mp4", "zeroed")


@case(1, "MKV, two spans exchanged")
def mkv_swapped(box: Box) -> None:
    _damaged(box, "film.mkv", "swapped")


@case(2, "half of an MKV")
def mkv_cut(box: Box) -> None:
    _damaged(box, "film.mkv", "cut")


@case(2, "half of an AVI")
def avi_cut(box: Box) -> None:
    _damaged(box, "film.avi", "cut")


@case(2, "half of an MP4")
def mp4_cut(box: Box) -> None:
    _damaged(box, "film.mp4", "cut")


@case(1, "undamaged videos are read in full")
def videos_whole(box: Box) -> None:
    for name in ("film.mkv", "film.avi", "film.mp4"):
        box.copy(name, name)
        done = box.script(_NUMBERS.format(name=name))
        box.expect(done.stdout.startswith(f"{VIDEO_FRAMES} 0 0"), f"{name}: {done.stdout.strip()}")
    box.outcome.said = "all frames under their numbers"


# ---- 3, 4: another patient's frames, stages of different runs


@case(3, "all frames replaced by another study's of equal size")
def frames_replaced(box: Box) -> None:
    study = box.copy(STUDY, STUDY)
    out = box.copy("reading", OUT)
    for path in sorted(study.iterdir()):
        times = path.stat()
        shutil.copy(box.data / OTHER / path.name, path)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    first = results(out)
    done = box.run("read", STUDY, "--model", box.data / "model", "--out", OUT)
    box.outcome.said = done.sentence or "read again"
    box.expect(done.code == 1 or results(out) != first, "the first study's events")


@case(4, "events of one run, scores of a killed second one")
def killed_second_run(box: Box) -> None:
    edit_json(box.copy("reading", OUT) / "run.json", state="scored")
    for command in ("report", "export"):
        box.refuses(command, OUT)


@case(4, "decode another study's scores into a reading")
def decoded_into_another(box: Box) -> None:
    out = box.copy("reading", OUT)
    before = results(out)
    box.write("other.csv", scores_csv(range(0, 60, 5)))
    box.refuses("decode", "other.csv", "--out", OUT)
    box.expect(results(out) == before, "the reading was overwritten")


@case(4, "report with the pictures of another study")
def pictures_of_another(box: Box) -> None:
    box.copy("reading", OUT)
    box.copy(OTHER, OTHER)
    box.refuses("report", OUT, "--study", OTHER)


@case(4, "scores.parquet of another study")
def scores_of_another(box: Box) -> None:
    out = box.copy("reading", OUT)
    shutil.copy(box.data / "reading-other" / "scores.parquet", out / "scores.parquet")
    box.refuses("report", OUT)


@case(4, "scores.parquet of another study, renamed to this one")
def scores_renamed(box: Box) -> None:
    out = box.copy("reading", OUT)
    box.script(
        "from pathlib import Path; from dataclasses import replace\n"
        "from enteron.folders.scores import read_scores, write_scores\n"
        f"scores = read_scores(Path({str(box.data / 'reading-other' / 'scores.parquet')!r}))\n"
        f"write_scores(Path('{OUT}/scores.parquet'), replace(scores, study={STUDY!r}))"
    )
    assert (out / "scores.parquet").exists()
    box.refuses("report", OUT)


@case(4, "events.json of another study")
def events_of_another(box: Box) -> None:
    out = box.copy("reading", OUT)
    shutil.copy(box.data / "reading-other" / "events.json", out / "events.json")
    box.refuses("report", OUT)
    box.refuses("export", OUT)


# ---- 5: calibration, split and model


@case(5, "calibration.json of another model")
def foreign_calibration(box: Box) -> None:
    model = box.copy("model", "model")
    shutil.copy(box.data / "model-b" / "calibration.json", model / "calibration.json")
    box.copy(STUDY, STUDY)
    box.refuses("read", STUDY, "--model", "model", "--out", OUT)


@case(5, "calibration of another model for these scores")
def foreign_model_for_scores(box: Box) -> None:
    box.copy("reading/scores.parquet", "scores.parquet")
    box.refuses("decode", "scores.parquet", "--model", box.data / "model-b", "--out", OUT)


@case(5, "split.json exchanged before calibrating")
def foreign_split(box: Box) -> None:
    model = box.copy("model", OUT)
    (model / "calibration.json").unlink()
    box.script(
        "from pathlib import Path; from enteron.datasets.splits import Split, save_split\n"
        f"save_split(Split(('2', '3'), ('1',), (), 'by hand'), Path('{OUT}/split.json'))"
    )
    box.refuses("calibrate", OUT, box.data / "data")


@case(5, "calibrate --split all, training studies included")
def split_all(box: Box) -> None:
    box.copy("model", OUT)
    done = box.run("calibrate", OUT, box.data / "data", "--split", "all")
    said = done.sentence + done.stdout + done.stderr
    box.outcome.said = done.sentence or "calibrated"
    box.expect(done.code == 1 or "train" in said.lower(), "not a word about training studies")


# ---- 6: two runs


@case(6, "two readings in one folder at once")
def two_readings(box: Box) -> None:
    box.copy(STUDY, STUDY)
    line = ["read", STUDY, "--model", str(box.data / "model"), "--out", OUT]
    done = box.run_all([line, line], apart=0.3)
    refused = [each.sentence for each in done if each.code == 1]
    box.outcome.said = refused[0] if refused else "both ended"
    box.expect(any(each.code == 0 for each in done), "neither ended")
    box.expect(len(refused) == 1 and bool(refused[0]), "the other did not say why it stopped")
    whole = results(box.data / "reading")
    box.expect(results(box.work / OUT) == whole, "another result than undisturbed")


# ---- 7: the store

_OPEN = "from pathlib import Path; from enteron.inference.store import open_embeddings\n"


def _store(box: Box, change: str) -> None:
    """Change a copy of the store and open it, as every command that uses it does."""
    path = box.copy("reading/embeddings.npy", "e.npy")
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[-20:-12], "little")  # then a checksum and the magic
    text = bytes(content[-20 - length : -20])
    # Frame numbers, source rows and digests of 12 frames lie before the record.
    arrays = len(content) - 20 - length - 12 * (8 + 4 + 16)
    if change == "frame":
        content[arrays] ^= 1
    elif change == "source":
        content[arrays + 8 * 12] ^= 1
    elif change == "feature":
        content[1000] ^= 255
    elif change in ("|O", "<f8", "<c8", "<i4"):
        head = bytes(content[:128])
        content[:128] = head.replace(b"'<f4'", f"'{change}'".encode().ljust(5))[:128].ljust(128)
    elif change == "chunk":
        zeroed = json.dumps({**json.loads(text), "chunk": 0}).encode()
        content[-20 - length :] = zeroed + len(zeroed).to_bytes(8, "little") + content[-12:]
    elif change == "record":
        content[-20 - length : -20] = os.urandom(length)
    else:
        del content[len(content) // 2 :]
    path.write_bytes(bytes(content))
    done = box.script(_OPEN + "open_embeddings(Path('e.npy'))\nprint('opened')")
    box.outcome.said = done.sentence
    box.expect("opened" not in done.stdout, "opened")


@case(7, "store: a frame number changed")
def store_frame(box: Box) -> None:
    _store(box, "frame")


@case(7, "store: a source row changed")
def store_source(box: Box) -> None:
    _store(box, "source")


@case(7, "store: a feature changed")
def store_feature(box: Box) -> None:
    _store(box, "feature")


@case(7, "store: dtype of objects")
def store_objects(box: Box) -> None:
    _store(box, "|O")


@case(7, "store: dtype of integers")
def store_integers(box: Box) -> None:
    _store(box, "<i4")


@case(7, "store: cut off")
def store_cut(box: Box) -> None:
    _store(box, "cut")


@case(14, "store: chunks of 0 rows")
def store_chunk(box: Box) -> None:
    _store(box, "chunk")


@case(14, "store: record of random bytes")
def store_record(box: Box) -> None:
    _store(box, "record")


# ---- 8: things that are skipped


@case(8, "a picture beside study folders")
def stray_picture(box: Box) -> None:
    for name in (STUDY, OTHER):
        box.copy(name, f"root/{name}")
    shutil.copy(next((box.data / STUDY).iterdir()), box.work / "root" / "stray_1.png")
    done = box.run("check", "root", "--json")
    said = done.stdout + done.stderr
    box.outcome.said = done.sentence or "check names what it ignores"
    box.expect("stray" in said or done.code == 1, "the picture is not mentioned")
    studies = json.loads(done.stdout)["studies"] if done.stdout.startswith("{") else []
    both = {study["study"] for study in studies} >= {STUDY, OTHER}
    box.expect(both or bool(done.sentence), "studies are missing without a word")


@case(8, "a folder of TIFF, a .wmv and an empty folder in a root")
def other_formats(box: Box) -> None:
    import cv2

    box.copy(STUDY, f"root/{STUDY}")
    box.copy("film.mkv", "root/11.wmv")
    (box.work / "root" / "12").mkdir()
    tiff = box.work / "root" / "13"
    tiff.mkdir()
    for path in sorted((box.data / STUDY).iterdir()):
        picture = cv2.imread(str(path))
        assert picture is not None
        cv2.imwrite(str(tiff / f"{path.stem}.tif"), picture)
    done = box.run("check", "root")
    said = done.stdout + done.stderr
    box.outcome.said = done.sentence or "check lists all of them"
    for name in ("11", "12", "13"):
        box.expect(name in said, f"{name} is left out without a word")


@case(8, "one damaged study among several")
def one_bad_study(box: Box) -> None:
    box.copy(STUDY, f"root/{STUDY}")
    for number in range(4):
        box.write(f"root/{OTHER}/frame_{number}.png", b"no picture")
    done = box.refuses("read", "root", "--model", box.data / "model", "--out", OUT)
    whole = (box.work / OUT / STUDY / "report.html").exists()
    box.expect(whole, "the other study was not read")
    box.expect(OTHER in done.stderr, "the damaged study is not named")


@case(8, "--study-id for several studies")
def id_for_several(box: Box) -> None:
    for name in (STUDY, OTHER):
        box.copy(name, f"root/{name}")
    box.refuses("read", "root", "--model", box.data / "model", "--out", OUT, "--study-id", "x")


# ---- 9: times, scores, calibrations


@case(9, "an event before a gap")
def time_before_gap(box: Box) -> None:
    rows = [HEADER.replace("frame,", "frame,time,")]
    frames = [*range(100), *range(1000, 1100)]
    for frame in frames:
        scores = [0.0] * 17
        scores[LABELS.index("small intestine")] = 0.95
        scores[LABELS.index("polyp")] = 0.99 if 60 <= frame < 100 else 0.0
        rows.append(f"{frame},{frame / 2}," + ",".join(map(str, scores)))
    box.write("s.csv", "\n".join(rows) + "\n")
    box.works("decode", "s.csv", "--out", OUT)
    events = json.loads((box.work / OUT / "events.json").read_text())["events"]
    for event in events:
        if event["label"] == "polyp" and event["times"]:
            box.expect(event["times"][1] <= 51, f"it ends at {event['times'][1]} s")


@case(9, "NaN times")
def nan_times(box: Box) -> None:
    box.write(
        "s.csv",
        "\n".join(
            [HEADER.replace("frame,", "frame,time,"), "0,0" + ",0.9" * 17, "1,nan" + ",0.9" * 17]
        )
        + "\n",
    )
    done = box.run("decode", "s.csv", "--out", OUT)
    box.outcome.said = done.sentence or "decoded"
    if done.code == 0:
        text = (box.work / OUT / "events.json").read_text()
        box.expect("NaN" not in text, "events.json is not JSON")


@case(9, "a JPEG with a zeroed stretch")
def jpeg_zeroed(box: Box) -> None:
    import cv2
    import numpy as np

    rng = np.random.default_rng(0)
    smooth = cv2.resize(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8), (576, 576))
    for number in range(6):
        content = bytearray(cv2.imencode(".jpg", np.roll(smooth, 40 * number, 0))[1].tobytes())
        if number in (2, 4):
            middle = len(content) // 2
            content[middle : middle + 4096] = bytes(4096)
        box.write(f"root/1/frame_{number}.jpg", bytes(content))
    done = box.run("check", "root", "--decode", "--json")
    report = json.loads(done.stdout)["studies"][0]
    box.outcome.said = f"{report['unreadable']} of 6 frames unreadable"
    box.expect(report["unreadable"] == 2, "damaged pictures pass as readable")


@case(9, "temperature 1e308")
def temperature(box: Box) -> None:
    path = box.copy("model", "model") / "calibration.json"
    table = json.loads(path.read_text())
    table["likelihood"]["temperature"] = 1e308
    path.write_text(json.dumps(table))
    box.write("s.csv", scores_csv(range(20)))
    box.refuses("decode", "s.csv", "--model", "model", "--out", OUT)


@case(9, "event scores of 5 and -1")
def event_scores(box: Box) -> None:
    out = box.copy("reading", OUT)
    content = json.loads((out / "events.json").read_text())
    event = {"label": "polyp", "start": 0, "stop": 10, "region": None, "onset": None, "end": None}
    for score in (5, -1):
        content["events"] = [{**event, "score": score, "times": None}]
        (out / "events.json").write_text(json.dumps(content))
        box.refuses("report", OUT)


@case(9, "fewer synthetic studies into the same folder")
def fewer_phantoms(box: Box) -> None:
    line = ("phantom", OUT, "--frames", "60", "--seed", "3", "--studies")
    box.works(*line, "3")
    before = (box.work / OUT / "metadata.csv").read_bytes()
    done = box.run(*line, "1")
    box.outcome.said = done.sentence or "metadata of the others stay"
    after = (box.work / OUT / "metadata.csv").read_bytes()
    box.expect(after == before or done.code == 1, "metadata.csv forgets the other studies")


# ---- 10: names


@case(10, "decode Jane_Doe.csv --study-id anon")
def name_of_a_file(box: Box) -> None:
    box.write("Jane_Doe.csv", scores_csv(range(40), 0.9))
    box.works("decode", "Jane_Doe.csv", "--study-id", "anon", "--out", OUT)
    box.works("report", OUT, "--scores", "Jane_Doe.csv")
    for path in sorted((box.work / OUT).iterdir()):
        if path.is_file():
            box.expect(b"Jane" not in path.read_bytes(), f"{path.name} names the patient")


@case(10, "a video named after a patient")
def name_of_a_video(box: Box) -> None:
    box.copy("film.mp4", "Doe_John_1951.mp4")
    box.works("read", "Doe_John_1951.mp4", "--model", box.data / "model", "--out", OUT)
    for path in sorted((box.work / OUT).rglob("*")):
        if path.is_file():
            box.expect(b"Doe_John" not in path.read_bytes(), f"{path.name} names the patient")


@case(10, "a title card as the first frame")
def title_card(box: Box) -> None:
    import cv2
    import numpy as np

    rng = np.random.default_rng(1)
    for number in range(40):
        disc = np.zeros((128, 128, 3), np.uint8)
        cv2.circle(disc, (64, 64), 58, (60 + number, 90, 150), -1)
        noise = rng.integers(0, 30, disc.shape, dtype=np.uint8)
        box.write(f"s/frame_{number:04d}.png", _png(np.where(disc > 0, disc + noise, disc)))
    card = np.full((128, 128, 3), 255, np.uint8)
    cv2.putText(card, "DOE JOHN", (4, 60), cv2.FONT_HERSHEY_SIMPLEX, 0.7, (0, 0, 0), 2)
    cv2.putText(card, "1951-02-03", (4, 90), cv2.FONT_HERSHEY_SIMPLEX, 0.6, (0, 0, 0), 2)
    box.write("s/frame_0000.png", _png(card))
    box.works("read", "s", "--model", box.data / "model", "--out", OUT)
    shown = [path.name for path in (box.work / OUT / "pictures").glob("*.jpg")]
    for name in shown:
        picture = cv2.imread(str(box.work / OUT / "pictures" / name))
        white = picture is not None and (picture.min(axis=2) > 200).mean() > 0.3
        box.expect(not white, f"{name} shows the title card")
    box.outcome.said = f"{len(shown)} pictures, none of the card"


def _png(pixels: object) -> bytes:
    import cv2
    import numpy as np

    return cv2.imencode(".png", np.asarray(pixels, np.uint8))[1].tobytes()


@case(10, "a missing --config in a patient's folder")
def config_path(box: Box) -> None:
    box.write("s.csv", scores_csv(range(9)))
    (box.work / "Doe_John").mkdir()
    done = box.refuses("decode", "s.csv", "--out", OUT, "--config", "Doe_John/none.toml")
    box.expect("Doe_John" not in done.stderr, "the message names the folder")
