"""The cases of `enteron bench faults`, continued: hostile input and failing disks (issue 13)."""

import json
import os
import resource
import shutil
import subprocess

from benchmarks._fault_cases import edit_json, scores_csv
from benchmarks._fault_data import STUDY, write_plain_frames
from benchmarks._fault_harness import OUT, Box, SkippedError, case
from enteron.labels import LABELS

DEEP = "[" * 100_000
LONG = "1" * 5000


def official(study: str = "a", events: str = "") -> str:
    """An official file with one study, its id as JSON text."""
    return f'{{"videos":[{{"video_id":{json.dumps(study)},"events":[{events}]}}]}}'


# ---- 11: ids


@case(11, "ids that leave the folder, or are none")
def ids_refused(box: Box) -> None:
    box.write("s.csv", scores_csv(range(9)))
    for study in ("..", ".", "", "a/b", "/etc/x", "a\\b", "x\ny"):
        box.refuses("decode", "s.csv", "--out", OUT, f"--study-id={study}")


@case(11, "an escape sequence in an id")
def escapes(box: Box) -> None:
    box.write("p.json", official("a\x1b[31mred"))
    done = box.run("validate", "p.json")
    box.outcome.said = done.sentence or "shown without the escape"
    box.expect("\x1b" not in done.stdout + done.stderr, "the escape reaches the terminal")


@case(11, "markup of the terminal in an id")
def markup(box: Box) -> None:
    box.write("s.csv", scores_csv(range(9)))
    for study in ("x[red]y", "x[/b]"):
        done = box.run("decode", "s.csv", "--out", f"{OUT}/{len(study)}", "--study-id", study)
        box.outcome.said = done.sentence or "shown as it is written"
        box.expect(study in done.stdout + done.stderr or done.code == 1, f"{study} vanishes")


@case(11, "HTML in an id")
def html(box: Box) -> None:
    box.write("s.csv", scores_csv(range(40), 0.9))
    study = "<img src=x onerror=alert(1)>"
    done = box.run("decode", "s.csv", "--out", OUT, "--study-id", study)
    box.outcome.said = done.sentence or "escaped on the page"
    if done.code == 0:
        box.works("report", OUT, "--scores", "s.csv")
        page = (box.work / OUT / "report.html").read_text()
        box.expect("<img src=x" not in page, "the page runs it")


@case(11, "half of a character in an id")
def surrogate(box: Box) -> None:
    box.write("p.json", r'{"videos":[{"video_id":"\ud800","events":[]}]}')
    box.refuses("validate", "p.json")


@case(11, "a folder whose name is not UTF-8")
def latin_name(box: Box) -> None:
    shutil.copytree(os.fsencode(box.data / STUDY), os.fsencode(box.work) + b"/root/M\xfcller")  # pyright: ignore[reportArgumentType]
    done = box.run("check", "root")
    box.outcome.said = done.sentence or "checked"


@case(11, "a folder named 12²")
def squared(box: Box) -> None:
    box.copy(STUDY, "root/12²")
    box.refuses("check", "root", says="contains '²'")
    box.works("read", "root/12²", "--model", box.data / "model", "--out", OUT)


@case(11, "a study named recording_..")
def dots(box: Box) -> None:
    box.copy(STUDY, "root/recording_..")
    box.copy(STUDY, "root/5")
    done = box.run("read", "root", "--model", box.data / "model", "--out", OUT)
    box.outcome.said = done.sentence or "read"


# ---- 12: model folders


def _model(box: Box, **backbone: object) -> None:
    path = box.copy("model", "model") / "model.json"
    table = json.loads(path.read_text())
    table["backbone"] = {**table["backbone"], **backbone}
    path.write_text(json.dumps(table))
    box.copy(STUDY, STUDY)
    box.refuses("read", STUDY, "--model", "model", "--out", OUT)


@case(12, "model.json names a trunk on a hub")
def hub_trunk(box: Box) -> None:
    _model(box, trunk="hf-hub:somebody/something")


@case(12, "model.json with pictures of 100,000 pixels")
def huge_pictures(box: Box) -> None:
    path = box.data / "model" / "model.json"
    preprocessing = json.loads(path.read_text())["backbone"]["preprocessing"]
    _model(box, preprocessing={**preprocessing, "size": 100_000})


@case(12, "model.json that nests deeply")
def deep_model(box: Box) -> None:
    box.copy("model", "model").joinpath("model.json").write_text(DEEP)
    box.copy(STUDY, STUDY)
    box.refuses("read", STUDY, "--model", "model", "--out", OUT)


@case(12, "weights: random bytes, a giant header, a pickle")
def weights(box: Box) -> None:
    names = ("a.safetensors", "b.safetensors", "c.bin", "d.bin")
    box.write(names[0], os.urandom(4000))
    box.write(names[1], (2**62).to_bytes(8, "little") + b"{}")
    box.write(names[2], os.urandom(4000))
    box.write(names[3], b"cos\nsystem\n(S'touch hacked'\ntR.")
    for name in names:
        done = box.script(
            "from pathlib import Path; import torch\n"
            "from enteron.model.weights import read_weights\n"
            f"read_weights(Path({name!r}), {{'a': torch.zeros(2)}}, 'copy it again')"
        )
        box.outcome.said = done.sentence
        box.expect(done.code == 1 and bool(done.sentence), f"{name} was read")


@case(12, "cached graphs exchanged, digests too")
def graph_cache(box: Box) -> None:
    import hashlib

    box.copy(STUDY, STUDY)
    line = ("read", STUDY, "--model", box.data / "model", "--runtime", "onnx", "--out")
    box.works(*line, f"{OUT}/1")
    first = (box.work / OUT / "1" / "scores.parquet").read_bytes()
    graphs = list((box.folder / "home").rglob("*.graph"))
    box.expect(len(graphs) == 1, f"{len(graphs)} graphs are cached: the case needs one")
    (graph,) = graphs
    whole = graph.read_bytes()
    seal, content = whole[:32], whole[32:]
    # Zeroed weights would run and give other scores.
    half = len(content) // 2
    other = content[:half] + bytes(4096) + content[half + 4096 :]
    for name, replacement in (
        ("2", hashlib.sha256(b"garbage").digest() + b"garbage"),
        ("3", hashlib.sha256(other).digest() + other),
        ("4", seal + other),
    ):
        graph.write_bytes(replacement)
        box.works(*line, f"{OUT}/{name}")
        second = (box.work / OUT / name / "scores.parquet").read_bytes()
        box.expect(second == first, "another result")
        box.expect(graph.read_bytes()[32:] == content, "the graph was not built again")


# ---- 13: memory and time


@case(13, "two frames numbered 1 and 999,999,999")
def far_frames(box: Box) -> None:
    for number in (1, 2, 3, 999_999_998, 999_999_999):
        write_plain_frames(box.work / "root" / "1", range(number, number + 1))
    box.works("check", "root")
    box.works("read", "root/1", "--model", box.data / "model", "--out", OUT)
    box.works("report", OUT)
    box.works("export", OUT)
    box.works("validate", OUT)


@case(13, "scores of frames 1 and 999,999,999, decoded and shown")
def far_scores(box: Box) -> None:
    box.write("s.csv", scores_csv([1, 2, 3, 999_999_999], 0.9))
    box.write("two.csv", scores_csv([1, 999_999_999], 0.9))
    box.works("decode", "s.csv", "--out", OUT)
    box.works("report", OUT, "--scores", "s.csv")
    box.works("decode", "two.csv", "--out", f"{OUT}/two")
    box.works("report", f"{OUT}/two", "--scores", "two.csv")


@case(13, "labels of frames 0 and 999,999,995")
def far_labels(box: Box) -> None:
    names = ["index", "frame", *LABELS]
    rows = ["0,0", "1,5", "199999999,999999995"]
    box.write(
        "root/Labels/1.csv",
        ",".join(names) + "\n" + "".join(f"{row},1" + ",0" * 16 + "\n" for row in rows),
    )
    box.works("check", "root")
    box.write("p.json", official("1"))
    box.works("evaluate", "root/Labels", "p.json")


@case(13, "a frame numbered 10,000,000,000")
def beyond_frames(box: Box) -> None:
    write_plain_frames(box.work / "root" / "1", range(3))
    write_plain_frames(box.work / "root" / "1", range(10**10, 10**10 + 1))
    done = box.works("check", "root", "--json")
    table = json.loads(done.stdout)["studies"][0]
    box.expect(table["frames"] == 3, f"{table['frames']} frames")
    box.expect(any("frame_10000000000.png" in note for note in table["notes"]), "not mentioned")
    box.outcome.said = "check lists the file as ignored"


@case(13, "a parquet file of 20,000,000 rows in a megabyte")
def parquet_bomb(box: Box) -> None:
    import polars as pl

    rows = pl.LazyFrame({"frame": pl.repeat(0, 20_000_000, dtype=pl.Int8, eager=True)})
    table = rows.with_columns(pl.lit(0, pl.Int8).alias(label) for label in LABELS)
    table.sink_parquet(box.work / "bomb.parquet")
    box.refuses("decode", "bomb.parquet", "--out", OUT, says="has 20,000,000 rows")


@case(13, "parquet: nested columns, text, garbage, cut off")
def parquet_kinds(box: Box) -> None:
    import polars as pl

    columns: dict[str, object] = {"frame": [1, 2], **{label: [0.5, 0.5] for label in LABELS}}
    for name, change, says in (
        ("nested", {"blood": [[0.5], [0.5]]}, "is nested"),
        ("text", {"blood": ["a", "b"]}, "column 'blood' is not a column of numbers"),
        ("negative", {"frame": [-5, 2]}, "'frame' is not a whole number"),
        ("large", {"frame": [1, 2**62]}, "no study has that many frames"),
    ):
        path = box.work / f"{name}.parquet"
        pl.DataFrame({**columns, **change}).write_parquet(path)
        box.refuses("decode", path.name, "--out", OUT, says=says)
    whole = (box.work / "text.parquet").read_bytes()
    box.write("cut.parquet", whole[: len(whole) // 2])
    box.write("garbage.parquet", b"PAR1" + os.urandom(2000) + b"PAR1")
    for name in ("cut", "garbage"):
        box.refuses("decode", f"{name}.parquet", "--out", OUT, says="cannot be read")


@case(13, "60,000 keys, one of them twice")
def many_keys(box: Box) -> None:
    keys = ",".join(f'"{number}":0' for number in range(60_000))
    box.write("p.json", f'{{{keys},"59999":0,"videos":[]}}')
    box.refuses("validate", "p.json", says="has the key '59999' twice")
    box.outcome.said += f" ({box.outcome.seconds:.1f} s)"


@case(13, "600,000 events")
def many_events(box: Box) -> None:
    event = '{"start":1,"end":2,"label":["blood"]}'
    box.write("p.json", official("a", ",".join([event] * 600_000)))
    box.works("validate", "p.json")
    box.outcome.said = f"read in {box.outcome.seconds:.0f} s"


@case(13, "millions of empty lists")
def many_lists(box: Box) -> None:
    box.write("p.json", "[" + "[]," * 11_000_000 + "[]]")
    box.refuses("validate", "p.json")


@case(13, "FIFOs in place of files")
def fifos(box: Box) -> None:
    box.write("s.csv", scores_csv(range(9)))
    os.mkfifo(box.work / "p.json")
    os.mkfifo(box.work / "f.csv")
    os.mkfifo(box.work / "f.parquet")
    os.mkfifo(box.work / "c.toml")
    for arguments in (
        ("validate", "p.json"),
        ("evaluate", "p.json", "p.json"),
        ("decode", "f.csv", "--out", OUT),
        ("decode", "f.parquet", "--out", OUT),
        ("decode", "s.csv", "--out", OUT, "--config", "c.toml"),
        ("decode", "s.csv", "--out", OUT, "--priors", "p.json"),
    ):
        box.refuses(*arguments, says="it is a pipe, not a regular file")


@case(13, "FIFOs in a study, in labels and in a reading")
def inner_fifos(box: Box) -> None:
    study = box.copy(STUDY, f"root/{STUDY}")
    os.mkfifo(study / "frame_000061.png")
    done = box.run("check", "root", "--decode")
    box.expect("it is a pipe" in " ".join(done.stdout.split()), "the FIFO is not mentioned")
    os.mkfifo(study / "study.json")
    box.run("check", "root")
    (box.work / "root" / "Labels").mkdir()
    os.mkfifo(box.work / "root" / "Labels" / "1.csv")
    box.run("check", "root")
    os.mkfifo(box.work / "root" / "metadata.csv")
    ignored = json.loads(box.run("check", "root", "--json").stdout)["ignored"]
    box.expect(any("metadata.csv" in entry for entry in ignored), "metadata.csv is not mentioned")
    out = box.copy("reading", OUT)
    (out / "run.json").unlink()
    os.mkfifo(out / "run.json")
    box.refuses("report", OUT, says="it is a pipe")


@case(13, "a FIFO in place of a video")
def fifo_video(box: Box) -> None:
    os.mkfifo(box.work / "film.mp4")
    box.refuses("read", "film.mp4", "--model", box.data / "model", "--out", OUT)


@case(13, "devices and sparse files")
def devices(box: Box) -> None:
    for name in ("p.json", "s.csv", "s.parquet", "c.toml"):
        with (box.work / name).open("wb") as file:
            file.truncate(10**12)
    box.write("t.csv", scores_csv(range(9)))
    box.refuses("validate", "/dev/zero", says="it is a device")
    box.refuses("validate", "p.json", says="has 1,000 GB")
    box.refuses("decode", "s.csv", "--out", OUT, says="has 1,000 GB")
    box.refuses("decode", "s.parquet", "--out", OUT, says="has 1,000 GB")
    box.refuses("decode", "t.csv", "--out", OUT, "--config", "c.toml", says="has 1,000 GB")


@case(13, "a picture that claims 60,000 x 60,000 pixels")
def picture_bomb(box: Box) -> None:
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(10**7), 9)
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )
    study = box.copy(STUDY, f"root/{STUDY}")
    (study / "frame_000061.png").write_bytes(bomb)
    done = box.run("check", "root", "--decode")
    box.outcome.said = "one frame is unreadable"
    box.expect("claims to hold 60000 x 60000" in " ".join(done.stdout.split()), "not mentioned")


@case(13, "links in a reading folder that lead out of it")
def links(box: Box) -> None:
    out = box.copy("reading", OUT)
    box.copy(STUDY, STUDY)
    box.write("secret.html", "kept")
    (out / "report.html").unlink()
    (out / "report.html").symlink_to(box.work / "secret.html")
    box.works("report", OUT)
    shutil.rmtree(out / "pictures")
    (box.work / "elsewhere").mkdir()
    (out / "pictures").symlink_to(box.work / "elsewhere")
    done = box.run("report", OUT, "--study", STUDY)
    box.outcome.said = done.sentence or "links are replaced"
    box.expect(not any((box.work / "elsewhere").iterdir()), "written through a link")


@case(13, "an MP4 that is a playlist of its neighbours")
def playlist(box: Box) -> None:
    box.copy("film.mp4", "secret/film.mp4")
    box.write("list.mp4", "ffconcat version 1.0\nfile secret/film.mp4\n")
    box.write(
        "hls.mp4", "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nsecret/film.mp4\n#EXT-X-ENDLIST\n"
    )
    for name in ("list.mp4", "hls.mp4"):
        box.refuses("read", name, "--model", box.data / "model", "--out", OUT)


# ---- 14: no traceback


@case(14, "JSON nested 100,000 levels deep, everywhere")
def deep_json(box: Box) -> None:
    box.write("p.json", DEEP)
    box.write("s.csv", scores_csv(range(9)))
    box.refuses("validate", "p.json", says="nests too deeply")
    box.refuses("evaluate", "p.json", "p.json", says="nests too deeply")
    box.refuses("decode", "s.csv", "--out", OUT, "--priors", "p.json", says="nests too deeply")
    out = box.copy("reading", f"{OUT}/r")
    for name in ("events.json", "run.json", "pictures/index.json"):
        whole = (out / name).read_bytes()
        (out / name).write_text(DEEP)
        box.refuses("report", f"{OUT}/r", says="nests too deeply")
        (out / name).write_bytes(whole)


@case(14, "TOML nested 30,000 levels deep")
def deep_toml(box: Box) -> None:
    box.write("s.csv", scores_csv(range(9)))
    box.write("c.toml", "a = " + "[" * 30_000)
    box.write("d.toml", "a = 0x" + "f" * 6000)
    box.refuses("decode", "s.csv", "--out", OUT, "--config", "c.toml", says="nests too deeply")
    box.refuses("decode", "s.csv", "--out", OUT, "--config", "d.toml", says="more than 64 bits")


@case(14, "integers of 5,000 digits and of 1e30, everywhere")
def long_integers(box: Box) -> None:
    big = "1" + "0" * 30
    for number in (LONG, big):
        box.write("p.json", official("a", f'{{"start":0,"end":{number},"label":["blood"]}}'))
        box.refuses("validate", "p.json", says="digits")
    out = box.copy("reading", OUT)
    for name, fields in (("run.json", ("rows", "stride")), ("events.json", ("events",))):
        whole = (out / name).read_text()
        for key in fields:
            table = json.loads(whole)
            table[key] = (
                "NUMBER" if key != "events" else [{"label": "blood", "start": 0, "stop": "NUMBER"}]
            )
            (out / name).write_text(json.dumps(table).replace('"NUMBER"', big))
            box.refuses("report", OUT, says="digits")
        (out / name).write_text(whole)


@case(14, "an event that starts at Infinity, at 1e400, at 1.5")
def endless_events(box: Box) -> None:
    out = box.copy("reading", OUT)
    content = json.loads((out / "events.json").read_text())
    for start in ("Infinity", "1e400", "1.5", "true", "null", '"3"', "-3"):
        event = f'{{"label": "blood", "start": {start}, "stop": 50, "score": 0.5}}'
        head = json.dumps({"study": content["study"], "unit": "frame"})
        (out / "events.json").write_text(f'{head[:-1]}, "events": [{event}]}}')
        box.refuses("report", OUT)
    box.write("p.json", official("a", '{"start":Infinity,"end":1e400,"label":["blood"]}'))
    box.refuses("validate", "p.json", says="contains Infinity")


@case(14, "a cell of 200 kB in metadata.csv")
def long_cell(box: Box) -> None:
    box.write("root/1/frame_1.png", b"")
    box.write("root/metadata.csv", "File Name,Capsule System\n" + "x" * 200_000 + ",PillCam\n")
    box.refuses("check", "root", says="field larger than field limit")


@case(14, "ages of 400 digits and ² in metadata.csv")
def odd_ages(box: Box) -> None:
    box.copy(STUDY, f"root/{STUDY}")
    for age in ("1" * 400, "²", "1e5", "-3"):
        box.write("root/metadata.csv", f"File Name,Capsule System,Age\n{STUDY},PillCam,{age}\n")
        box.works("check", "root")


@case(14, "label files: ragged, UTF-16, NUL, millions of columns")
def odd_labels(box: Box) -> None:
    names = ",".join(["index", "frame", *LABELS])
    row = "0,0,1" + ",0" * 16
    for content, says in (
        ((f"{names}\n{row},9,9\n").encode(), "cells where the header has"),
        ((f"{names}\n{row}\n").encode("utf-16"), "not UTF-8"),
        ((f"{names}\n{row[:-1]}\0\n").encode(), "not UTF-8"),
        (b"a," * 3_000_000, "more than 1,000 columns"),
        (b"\xff" * 100, "not text in UTF-8"),
        ((f"{names}\n1e30{row[1:]}\n").encode(), "'index' is '1e30'"),
    ):
        box.write("labels/1.csv", content)
        box.write("p.json", official("1"))
        box.refuses("evaluate", "labels", "p.json", says=says)


@case(14, "a journal that is not UTF-8, a journal of chunks of 0")
def journals(box: Box) -> None:
    box.copy(STUDY, STUDY)
    key = json.dumps({"key": {}, "chunk": 0, "rows": 12}).encode()
    for number, content in enumerate((b"\xff\xfe\xff\n", key + b"\n", b"[" * 10_000 + b"\n")):
        folder = f"{OUT}/{number}"
        box.write(f"{folder}/embeddings.npy.journal", content)
        box.write(f"{folder}/embeddings.npy.part", b"")
        done = box.run("read", STUDY, "--model", box.data / "model", "--out", folder)
        box.outcome.said = done.sentence or "started again"


@case(14, "a calibration and priors of wrong types")
def wrong_types(box: Box) -> None:
    model = box.copy("model", "model")
    box.write("s.csv", scores_csv(range(9)))
    for text in (
        "[]",
        "3",
        '{"paper": []}',
        '{"paper": {"temperature": "hot"}}',
        '{"x": ' * 60 + "1" + "}" * 60,
    ):
        (model / "calibration.json").write_text(text)
        box.refuses("decode", "s.csv", "--model", "model", "--out", OUT)


@case(14, "run.json of wrong types")
def wrong_run(box: Box) -> None:
    out = box.copy("reading", OUT)
    whole = (out / "run.json").read_text()
    for fields in (
        {"rows": "many"}, {"stride": 0}, {"stride": -5}, {"gaps": -1}, {"rate": 1e300},
        {"unreadable": {"count": 10**18}}, {"unreadable": {"count": 1, "frames": [10**18]}},
        {"notes": ["x" * 10**6]}, {"timings": {"a": -1}}, {"options": {"x": 1}},
    ):  # fmt: skip
        (out / "run.json").write_text(whole)
        edit_json(out / "run.json", **fields)
        done = box.run("report", OUT)
        box.outcome.said = done.sentence or "shown"


@case(14, "binary files in place of text files")
def binary(box: Box) -> None:
    noise = os.urandom(5000)
    for name in ("p.json", "s.csv", "s.parquet", "c.toml"):
        box.write(name, noise)
    box.write("t.csv", scores_csv(range(9)))
    box.refuses("validate", "p.json")
    box.refuses("decode", "s.csv", "--out", OUT)
    box.refuses("decode", "s.parquet", "--out", OUT)
    box.refuses("decode", "t.csv", "--out", OUT, "--config", "c.toml")


# ---- 15: sentences that name the file


@case(15, "a full disk")
def full_disk(box: Box) -> None:
    disk = box.work / OUT
    disk.mkdir()
    if os.geteuid() != 0:
        raise SkippedError("needs root, to mount a small disk")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode != 0:
        raise SkippedError("a small disk cannot be mounted here")
    try:
        box.write("s.csv", scores_csv(range(100), 0.9))
        done = box.refuses(
            "decode", "s.csv", "--out", OUT, "--preset", "paper", says="No space left"
        )
        box.expect("'a file'" not in done.sentence, "the file is not named")
        left = [path.name for path in disk.iterdir() if path.name.startswith(".")]
        box.expect(not left, f"{left} is left behind")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@case(15, "a limit on the size of files")
def file_limit(box: Box) -> None:
    box.write("s.csv", scores_csv(range(2000), 0.9))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
    try:
        done = box.run("decode", "s.csv", "--out", OUT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    box.outcome.said = done.sentence
    box.expect(done.code == 1, "the limit went unnoticed")


@case(15, "a file without the right to read it")
def unreadable(box: Box) -> None:
    for name in ("p.json", "s.csv"):
        box.write(name, "x").chmod(0)
    box.refuses(
        "validate", "p.json", says="p.json cannot be read (Permission denied)", powerless=True
    )
    box.refuses(
        "decode", "s.csv", "--out", OUT, says="s.csv cannot be read (Permission", powerless=True
    )


@case(15, "an output folder without the right to write to it")
def unwritable(box: Box) -> None:
    box.write("s.csv", scores_csv(range(20), 0.9))
    (box.work / OUT).mkdir(mode=0o555)
    says = "'out' cannot be written (Permission denied)"
    box.refuses("decode", "s.csv", "--out", OUT, says=says, powerless=True)
    box.refuses(
        "decode", "s.csv", "--out", f"{OUT}/inner", says="'inner' cannot be", powerless=True
    )


@case(15, "a folder, a file and nothing where something else is needed")
def misplaced(box: Box) -> None:
    box.write("s.csv", scores_csv(range(9)))
    box.write("file", "x")
    (box.work / "folder.csv").mkdir()
    for arguments, says in (
        (("decode", "folder.csv", "--out", OUT), "it is a folder"),
        (("decode", "s.csv", "--out", "file"), "'file' is a file"),
        (("decode", "s.csv", "--out", "file/inner"), "'file' is a file"),
        (("validate", "none.json"), "none.json cannot be read (No such file"),
        (("decode", "s.csv", "--out", "n" * 300), "cannot be written (File name too long)"),
        (("report", "none"), "'none' is not a folder"),
    ):
        box.refuses(*arguments, says=says)
