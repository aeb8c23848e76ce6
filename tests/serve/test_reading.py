"""Discovery, frames and reviews through the server's interface."""

import io
import json
import struct
import time

import cv2
import numpy as np
import pytest

from enteron.serve.packs import Pack, PackKey
from enteron.serve.pictures import Flag
from tests.making import write_video
from tests.report.making import EVENTS, RUN, capsule_frame, scores_for, write_folder
from tests.serve.making import HEADERS, REVIEWED, client, write_root


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_root(tmp_path_factory.mktemp("root"), pictures=True)


def wait_for_study(web, study: str = "s1", kinds: tuple[str, ...] = ("study",)) -> dict:
    until = time.monotonic() + 60
    while (state := web.get(f"/api/studies/{study}/source").json())["kind"] not in kinds:
        assert time.monotonic() < until, state
        time.sleep(0.05)
    return state


def unpacked(content: bytes) -> list[tuple[int, int, bytes]]:
    (count,) = struct.unpack_from("<I", content)
    rows = [struct.unpack_from("<III", content, 4 + 12 * index) for index in range(count)]
    offset, pictures = 4 + 12 * count, []
    for position, flag, length in rows:
        pictures.append((position, flag, content[offset : offset + length]))
        offset += length
    assert offset == len(content)
    return pictures


def pixels(jpeg: bytes) -> np.ndarray:
    image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert image is not None
    return image


def act(web, action: dict, study: str = "s1", expected: int | None = None):
    if expected is None:
        expected = web.get(f"/api/studies/{study}/review").json()["state"]["version"]
    body = {"action": action, "expected": expected}
    return web.post(f"/api/studies/{study}/actions", json=body, headers=HEADERS)


def test_the_worklist_names_readings_and_problems(tmp_path):
    write_root(tmp_path / "a", "first")
    write_folder(tmp_path / "twice" / "one", EVENTS, scores_for(EVENTS, study="same"))
    write_folder(tmp_path / "twice" / "two", EVENTS, scores_for(EVENTS, study="same"))
    write_folder(
        tmp_path / "begun", EVENTS, scores_for(EVENTS, study="begun"), {**RUN, "state": "decoded"}
    )
    damaged = write_folder(tmp_path / "damaged", EVENTS, scores_for(EVENTS, study="damaged"))
    (damaged / "events.json").write_text("{")
    with client(tmp_path) as web:
        listed = web.get("/api/studies").json()
    assert [row["study"] for row in listed["studies"]] == ["first"]
    row = listed["studies"][0]
    assert row["status"] == "unread"
    assert row["frames"] == 400
    assert row["machine"]["ulcer"] == 1
    problems = {problem["folder"]: problem["sentence"] for problem in listed["problems"]}
    assert set(problems) == {"one", "two", "begun", "damaged"}
    assert "2 readings of study same" in problems["one"]
    assert "not finished" in problems["begun"]


def test_every_frame_of_the_study_in_batches(root):
    with client(root) as web:
        wait_for_study(web)
        answer = web.get("/api/studies/s1/frames?start=10&count=5&step=2")
        shown = unpacked(answer.content)
        assert [position for position, _, _ in shown] == [10, 12, 14, 16, 18]
        for position, flag, jpeg in shown:
            assert flag == Flag.SHOWN
            drawn = capsule_frame(position).astype(float)
            middle = (slice(20, 76), slice(20, 76))
            assert np.abs(pixels(jpeg)[middle] - drawn[middle]).mean() < 6
        assert len(unpacked(web.get("/api/studies/s1/frames?start=398&count=9").content)) == 2
        assert web.get("/api/studies/s1/picture?frame=400").status_code == 422
        assert answer.headers["cache-control"] == "no-store"


def test_what_recorders_write_outside_of_the_picture_is_masked(tmp_path):
    root = write_root(tmp_path)
    for path in sorted((root / "studies" / "s1").glob("*.png")):
        image = cv2.imread(str(path))
        assert image is not None
        cv2.putText(image, "DOE", (60, 8), cv2.FONT_HERSHEY_SIMPLEX, 0.35, (255, 255, 255), 1)
        cv2.imwrite(str(path), image)
    write_root_again(root)
    with client(root) as web:
        wait_for_study(web)
        image = pixels(web.get("/api/studies/s1/picture?frame=100").content)
        assert image[:9, 60:].max() < 40
        assert image[40:56, 40:56].mean() > 40


def test_title_cards_are_shown_on_request_only(tmp_path):
    root = write_root(tmp_path)
    card = np.full((96, 96, 3), (140, 60, 20), np.uint8)  # blue, as OpenCV orders colours
    cv2.putText(card, "Doe, Jane", (6, 50), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 1)
    for number in (0, 200):
        cv2.imwrite(str(root / "studies" / "s1" / f"frame_{number:06d}.png"), card)
    write_root_again(root)
    with client(root) as web:
        wait_for_study(web)
        for number in (0, 200):
            ((_, flag, jpeg),) = unpacked(web.get(f"/api/studies/s1/frames?start={number}").content)
            assert (flag, jpeg) == (Flag.WITHHELD, b"")
            assert web.get(f"/api/studies/s1/picture?frame={number}").status_code == 404
            shown = web.get(f"/api/studies/s1/picture?frame={number}&withheld=1")
            assert pixels(shown.content).shape == (96, 96, 3)
        others = unpacked(web.get("/api/studies/s1/frames?start=1&count=60").content)
        assert {flag for _, flag, _ in others} == {Flag.SHOWN}


def write_root_again(root) -> None:
    """The reading of frames that were changed since it was made."""
    from enteron.folders.reading import RunRecord
    from enteron.study import open_study
    from enteron.study.content import read_content
    from tests.serve.making import _rewrite

    study = open_study(root / "studies" / "s1", study_id="s1")
    content = read_content(study.numbers, study.files(), per_row=True).hash
    run = RunRecord.load(root / "reading")
    assert run is not None
    assert run.identity is not None
    _rewrite(root / "reading", content)
    identity = run.identity.model_copy(update={"content": content})
    run.model_copy(update={"identity": identity}).save(root / "reading")


def test_without_the_study_the_stored_pictures_are_shown(root, tmp_path):
    with client(root, studies=tmp_path) as web:
        state = wait_for_study(web, kinds=("stored",))
        assert "--studies" in state["sentence"]
        flags = [
            flag
            for _, flag, _ in unpacked(web.get("/api/studies/s1/frames?start=0&count=64").content)
        ]
        assert set(flags) == {Flag.SHOWN, Flag.ABSENT}  # the first images of regions are stored
        assert web.get("/api/studies/s1/picture?frame=130").status_code == 200


def test_other_frames_under_the_same_id_are_not_shown(tmp_path):
    root = write_root(tmp_path, pictures=True)
    (root / "studies" / "s1" / "frame_000009.png").write_bytes(
        (root / "studies" / "s1" / "frame_000010.png").read_bytes()
    )
    with client(root) as web:
        state = wait_for_study(web, kinds=("stored",))
        assert "not those that were read" in state["sentence"]
        assert str(tmp_path) not in json.dumps(state)


def test_the_comparison_is_remembered_until_a_file_changes(root):
    with client(root) as web:
        wait_for_study(web)
    record = next((root / ".enteron-serve").glob("*.json"))
    first = json.loads(record.read_text())
    assert set(first) == {"stamps", "height", "width", "mask", "border"}
    assert str(root) not in record.read_text()


# ---- videos and packs


def write_video_root(root, count: int = 400, gop: int = 30, container: str = "mp4"):
    """A reading of a video with key frames `gop` apart."""
    from enteron.folders.reading import RunRecord
    from enteron.study import open_study
    from enteron.study.content import read_content
    from tests.serve.making import _rewrite

    (root / "studies").mkdir(parents=True)
    path = root / "studies" / f"s1.{container}"
    write_video(path, count, options={"g": str(gop), "keyint_min": str(gop), "sc_threshold": "0"})
    scores = scores_for(REVIEWED, range(count), times=np.arange(count) / 2.0)
    folder = write_folder(root / "reading", REVIEWED, scores, {**RUN, "unreadable": None})
    study = open_study(path, study_id="s1")
    content = read_content(study.numbers, study.files(), per_row=False).hash
    run = RunRecord.load(folder)
    assert run is not None
    assert run.identity is not None
    _rewrite(folder, content)
    identity = run.identity.model_copy(update={"content": content})
    run.model_copy(update={"identity": identity}).save(folder)
    return root


@pytest.mark.parametrize("gop", [30, 400])
def test_frames_of_a_video_at_any_place(tmp_path, gop):
    """Drawn blocks never look like the gut, so nothing is masked here."""
    from enteron.serve import pictures
    from tests.making import number_of

    root = write_video_root(tmp_path, gop=gop)
    with client(root, device_text=True) as web:
        wait_for_study(web, kinds=("study", "packing"))
        for position in (0, 399, 57, 58, 210, 5, 398):
            ((_, flag, jpeg),) = unpacked(
                web.get(f"/api/studies/s1/frames?start={position}").content
            )
            assert flag == Flag.SHOWN
            assert number_of(pixels(jpeg)) == position
        packs = list((root / ".enteron-serve").glob("*.pack*"))
        assert bool(packs) == (gop > pictures.FAR)
        if packs:
            state = wait_for_study(web)
            assert state["share"] is None
            ((_, _, jpeg),) = unpacked(web.get("/api/studies/s1/frames?start=300").content)
            assert number_of(pixels(jpeg)) == 300
            whole = web.get("/api/studies/s1/picture?frame=123&whole=1").content
            assert number_of(pixels(whole)) == 123


def test_a_pack_goes_on_after_a_kill_and_is_bound_to_its_study(tmp_path):
    key = PackKey(study="s", content="c", frames=50, side=64, masked=True)
    frames = [None if n == 7 else bytes([n]) * (n + 1) for n in range(50)]
    pack = Pack(tmp_path / "p", key)

    def some(start):
        for number in range(start, 20):
            yield frames[number]
        pack.stop()
        yield b"never written"

    pack.make(some)
    assert (pack.complete, pack.done) == (False, 20)
    assert pack.read(19) == frames[19]
    pack.close()
    part = tmp_path / "p.part"
    part.write_bytes(part.read_bytes() + b"\x05\0\0\0ab")  # killed inside a picture
    again = Pack(tmp_path / "p", key)
    begun: list[int] = []

    def rest(start):
        begun.append(start)
        yield from frames[start:]

    again.make(rest)
    assert begun == [20]
    assert again.complete
    assert [again.read(n) for n in range(50)] == frames
    assert again.read(50) is None
    again.close()
    assert not part.exists()
    opened = Pack(tmp_path / "p", key)
    assert opened.complete
    assert opened.read(33) == frames[33]
    opened.close()
    other = Pack(tmp_path / "p", key.model_copy(update={"content": "other"}))
    assert not other.complete
    (tmp_path / "p").write_bytes((tmp_path / "p").read_bytes()[:-3])
    assert not Pack(tmp_path / "p", key).complete


# ---- reviews


def test_decisions_are_recorded_and_seen_by_others(tmp_path):
    root = write_root(tmp_path)
    with client(root) as web:
        before = web.get("/api/studies/s1/review").json()
        assert before["state"]["status"] == "unread"
        transit = before["summary"]["measures"]["small_bowel_transit"]
        assert transit["seconds"] == 100.0
        event = next(e for e in before["state"]["events"].values() if e["label"] == "ulcer")
        answer = act(web, {"kind": "confirm", "event": event["id"]})
        assert answer.status_code == 200
        assert answer.json()["state"]["events"][event["id"]]["decision"] == "confirmed"
        number = answer.json()["state"]["number"]
        assert web.get(f"/api/studies/s1/review?after={number}").status_code == 204
        # Somebody who saw the study before it was confirmed decides about the same event.
        late = act(web, {"kind": "reject", "event": event["id"]}, expected=0)
        assert late.status_code == 409
        assert "anna confirmed" in late.json()["problem"]
        moved = act(web, {"kind": "move-landmark", "landmark": "first caecal image", "frame": 300})
        assert moved.json()["summary"]["measures"]["small_bowel_transit"]["seconds"] == 90.0
        undone = web.post(
            "/api/studies/s1/undo",
            json={"expected": moved.json()["state"]["version"]},
            headers=HEADERS,
        )
        assert undone.json()["summary"]["measures"]["small_bowel_transit"]["seconds"] == 100.0
        assert undone.json()["can_redo"]
        assert web.get("/api/studies").json()["studies"][0]["status"] == "in progress"
        entries = web.get("/api/studies/s1/history").json()["entries"]
        assert [entry["kind"] for entry in entries] == ["open", "confirm", "move-landmark", "undo"]


def test_a_repeated_request_is_recorded_once(tmp_path):
    root = write_root(tmp_path)
    with client(root) as web:
        body = {"action": {"kind": "comment", "text": "once"}, "expected": None, "key": "k" * 16}
        for _ in range(3):
            assert web.post("/api/studies/s1/actions", json=body, headers=HEADERS).is_success
        assert len(web.get("/api/studies/s1/review").json()["state"]["comments"]) == 1


@pytest.mark.parametrize("kind", ["json", "csv", "labels", "label-studio", "fhir", "dicom"])
def test_exports_are_downloads(root, kind):
    with client(root) as web:
        act(web, {"kind": "confirm", "event": "m7"})
        answer = web.get(f"/api/studies/s1/export/{kind}?draft=1")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-disposition"].startswith('attachment; filename="s1-')
        assert str(root).encode() not in answer.content
        if kind in ("json", "fhir"):
            json.loads(answer.content)
        if kind == "dicom":
            import zipfile

            names = zipfile.ZipFile(io.BytesIO(answer.content)).namelist()
            assert "s1/report.dcm" in names


def test_signed_versions_are_frozen(tmp_path):
    root = write_root(tmp_path)
    with client(root) as web:
        act(web, {"kind": "edit-report", "field": "conclusion", "text": "one"})
        assert act(web, {"kind": "sign"}).json()["state"]["status"] == "signed"
        act(web, {"kind": "edit-report", "field": "conclusion", "text": "two"})
        assert web.get("/api/studies/s1/review").json()["state"]["status"] == "in progress"
        act(web, {"kind": "sign"})
        first = web.get("/api/studies/s1/signed?version=1").json()
        assert first["state"]["report"]["conclusion"] == "one"
        assert first["versions"] == 2
        assert web.get("/api/studies/s1/signed").json()["state"]["report"]["conclusion"] == "two"
        assert web.get("/api/studies/s1/signed?version=3").status_code == 422
