"""The store: what is recorded, derived, undone, refused, verified, removed."""

import json
import sqlite3
import threading
from pathlib import Path

import pytest

from enteron.errors import EnteronError
from enteron.review.actions import (
    Add,
    ClearLandmark,
    Comment,
    Confirm,
    ConfirmLandmark,
    Dismiss,
    EditReport,
    Grade,
    MachineEvent,
    MoveLandmark,
    Open,
    Reject,
    Relabel,
    SetScore,
    Sign,
    Time,
    Trim,
    Viewed,
    parse_action,
)
from enteron.review.record import Head
from enteron.review.scores import Cecdai, Half, Saurin
from enteron.review.state import derive
from enteron.review.store import REVIEWS, ConflictError, ReviewStore
from enteron.types import Unit

#      0         10        20        30        40        50
#      |---------|---------|---------|---------|---------|
#      stomach---||small intestine--------------||colon--|
#                     uuu        ppp     a
OPENING = Open(
    reading="a" * 64,
    unit=Unit.FRAME,
    first=0,
    end=60,
    events=(
        MachineEvent(label="stomach", start=0, stop=11, score=0.9),
        MachineEvent(label="small intestine", start=11, stop=42, score=0.9, onset=0.7),
        MachineEvent(label="colon", start=42, stop=60, score=0.8, onset=0.6),
        MachineEvent(label="ulcer", start=15, stop=18, score=0.7, region="small intestine"),
        MachineEvent(label="polyp", start=26, stop=29, score=0.5, region="small intestine"),
        MachineEvent(label="angiectasia", start=34, stop=35, score=0.4),
    ),
)


@pytest.fixture
def store(tmp_path):
    with ReviewStore(tmp_path / REVIEWS) as store:
        yield store


def do(store, action, user="anna", study="s1", **options):
    state = store.state(study, OPENING)
    options.setdefault("expected", state.version)
    return store.append(study, user, action, opening=OPENING, **options)


def test_a_study_that_nobody_has_touched_shows_what_the_model_proposes(store):
    state = store.state("s1", OPENING)
    assert state.status == "unread"
    assert [event.label for event in state.events.values()][3:] == ["ulcer", "polyp", "angiectasia"]
    caecum = state.landmarks["first caecal image"]
    assert (caecum.frame, caecum.status, caecum.confidence) == (42, "proposed", 0.6)
    assert store.studies() == ()  # looking leaves nothing behind
    assert store.head().row == 0


def test_every_decision(store):
    do(store, Confirm(event="m3"))
    do(store, Reject(event="m4", reason="a fold"))
    do(store, Relabel(event="m5", label="erosion"))
    do(store, Trim(event="m3", start=14, stop=20))
    do(store, Grade(event="m3", saurin=Saurin.P2))
    do(store, Add(label="erythema", start=50, stop=52))
    do(store, ConfirmLandmark(landmark="first duodenal image"))
    do(store, MoveLandmark(landmark="first caecal image", frame=40))
    do(store, ClearLandmark(landmark="first gastric image"))
    do(store, SetScore(score=Cecdai(proximal=Half(inflammation=5, extent=3, stricture=3))))
    do(store, EditReport(field="conclusion", text="Ulcer."))
    state = do(store, Sign())
    assert state.status == "signed"
    events = {e.id: (e.label, e.start, e.stop, e.decision) for e in state.events.values()}
    assert events["m3"] == ("ulcer", 14, 20, "confirmed")
    assert events["m4"] == ("polyp", 26, 29, "rejected")
    assert events["m5"] == ("erosion", 34, 35, "confirmed")
    assert events["a7"] == ("erythema", 50, 52, "confirmed")
    assert state.events["m3"].changed
    assert not state.events["m4"].changed
    assert state.events["m3"].machine == OPENING.events[3]  # the model's words stay
    assert state.events["m3"].saurin == "P2"
    assert [m.status for m in state.landmarks.values()] == ["absent", "confirmed", "moved"]
    assert state.table()["values"]["cecdai"] == 18
    assert state.report == {"conclusion": "Ulcer."}
    assert [e.id for e in state.findings] == ["m3", "m5", "a7"]
    assert store.verify().problems == ()


def test_the_state_is_a_function_of_the_record(store, tmp_path):
    do(store, Confirm(event="m3"))
    do(store, Relabel(event="m3", label="erosion"))
    store.undo("s1", "anna", expected=store.state("s1").version)
    do(store, Viewed(intervals=((0, 10), (5, 20))))
    do(store, Sign())
    with ReviewStore(tmp_path / REVIEWS) as again:
        assert again.state("s1") == store.state("s1")
        assert derive("s1", again.history("s1")) == store.state("s1")


def test_undo_and_redo_are_actions_of_ones_own(store):
    do(store, Confirm(event="m3"), user="anna")
    do(store, Reject(event="m4"), user="ben")
    do(store, Relabel(event="m3", label="erosion"), user="anna")

    def undo(user):
        return store.undo("s1", user, expected=store.state("s1").version)

    assert undo("anna").events["m3"].label == "ulcer"
    state = undo("anna")
    assert state.events["m3"].decision == "open"
    assert state.events["m4"].decision == "rejected"  # Ben's stands
    with pytest.raises(EnteronError, match="nothing to undo"):
        undo("anna")
    store.redo("s1", "anna", expected=store.state("s1").version)
    state = store.redo("s1", "anna", expected=store.state("s1").version)
    assert (state.events["m3"].label, state.events["m3"].decision) == ("erosion", "confirmed")
    with pytest.raises(EnteronError, match="nothing to redo"):
        store.redo("s1", "anna", expected=state.version)
    undo("anna")
    state = do(store, Confirm(event="m5"), user="anna")  # a new decision ends redoing
    assert state.redoable["anna"] == ()
    assert len(store.history("s1")) == 10  # nothing was taken out of the record


def test_undo_is_refused_where_somebody_else_changed_the_same_event(store):
    seen = do(store, Add(label="ulcer", start=20, stop=22), user="anna").version
    do(store, Trim(event="a2", start=20, stop=23), user="ben")
    with pytest.raises(ConflictError, match=r"ben trimmed event a2 at .* UTC, after you loaded"):
        store.undo("s1", "anna", expected=seen)


def test_a_signature_freezes_a_version(store):
    do(store, Confirm(event="m3"))
    signed = do(store, Sign(meaning="read by me"))
    assert signed.undoable == {}
    with pytest.raises(EnteronError, match="since the last signature"):
        store.undo("s1", "anna", expected=signed.version)
    state = do(store, Comment(text="a remark changes no decision"))
    assert state.status == "signed"
    state = do(store, Reject(event="m3"))
    assert state.status == "in progress"
    assert store.signed("s1").events["m3"].decision == "confirmed"
    state = do(store, Sign())
    assert [signature.version for signature in state.signatures] == [1, 2]
    assert state.signatures[0].digest != state.signatures[1].digest
    assert store.signed("s1", 1).signatures[-1].digest == signed.signatures[0].digest
    with pytest.raises(EnteronError, match="no signed version 3; it has 1 to 2"):
        store.signed("s1", 3)
    with pytest.raises(EnteronError, match="no signed version; sign it first"):
        store.signed("s2")


def test_two_people_cannot_overwrite_each_other_silently(store):
    seen = store.state("s1", OPENING).version
    do(store, Reject(event="m3"), user="ben", expected=seen)
    with pytest.raises(ConflictError, match=r"ben rejected event m3 at .* UTC") as caught:
        do(store, Confirm(event="m3"), user="anna", expected=seen)
    assert caught.value.changes[0].action == Reject(event="m3")
    state = do(store, Confirm(event="m4"), user="anna", expected=seen)  # something else: fine
    assert state.events["m3"].decision == "rejected"  # and Ben's change is seen
    with pytest.raises(ConflictError, match="anna confirmed event m4"):
        do(store, Sign(), user="ben", expected=state.version - 1)  # signs what he has not seen
    do(store, Viewed(intervals=((0, 5),)), user="ben", expected=None)
    do(store, Time(active=3), user="ben", expected=None)
    do(store, Sign(), user="anna", expected=state.version)  # notes collide with nothing


def test_an_action_that_is_sent_again_is_recorded_once(store):
    do(store, Add(label="ulcer", start=20, stop=22), key="k1")
    state = do(store, Add(label="ulcer", start=20, stop=22), key="k1", expected=0)
    assert len(store.history("s1")) == 2
    assert "a2" in state.events


def test_another_reading_keeps_what_people_decided(store):
    do(store, Confirm(event="m3"))
    do(store, Reject(event="m4"))
    do(store, MoveLandmark(landmark="first caecal image", frame=44))
    events = (
        MachineEvent(label="small intestine", start=9, stop=42, score=0.9),
        MachineEvent(label="colon", start=41, stop=60, score=0.9),
        MachineEvent(label="ulcer", start=15, stop=19, score=0.9),  # the one that was confirmed
        MachineEvent(label="polyp", start=50, stop=52, score=0.9),  # a new one
    )
    other = OPENING.model_copy(update={"reading": "b" * 64, "events": events})
    seen = store.state("s1", other)
    assert set(seen.events) == {"m3", "m4", "m0r2", "m1r2", "m3r2"}
    assert seen.landmarks["first duodenal image"].frame == 9
    assert seen.landmarks["first caecal image"].frame == 44  # a person's
    state = store.append("s1", "anna", Confirm(event="m3r2"), expected=seen.version, opening=other)
    assert state.events["m3r2"].decision == "confirmed"
    assert state.reading == "b" * 64
    assert store.verify().problems == ()


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (Confirm(event="m9"), "study s1 has no event 'm9'"),
        (Add(label="ulcer", start=50, stop=61), "frames 50 to 60 are not all in study s1; its"),
        (MoveLandmark(landmark="first caecal image", frame=60), "frames 60 to 60 are not all"),
        (Comment(text="x", event="m9"), "has no event 'm9'"),
    ],
)
def test_an_impossible_action_leaves_nothing_behind(store, action, message):
    do(store, Confirm(event="m3"))
    with pytest.raises(EnteronError, match=message):
        do(store, action)
    assert len(store.history("s1")) == 2
    assert store.verify().problems == ()


def test_landmarks_keep_their_order(store):
    do(store, MoveLandmark(landmark="first duodenal image", frame=20))
    with pytest.raises(EnteronError, match="would lie before the first duodenal image at frame 20"):
        do(store, MoveLandmark(landmark="first caecal image", frame=10))
    with pytest.raises(EnteronError, match="would lie after the first duodenal image"):
        do(store, MoveLandmark(landmark="first gastric image", frame=30))


def test_a_landmark_without_a_frame_cannot_be_confirmed(store):
    bare = OPENING.model_copy(update={"events": ()})
    with pytest.raises(EnteronError, match="has no frame to confirm; move it"):
        store.append(
            "s1", "anna", ConfirmLandmark(landmark="first caecal image"), expected=0, opening=bare
        )
    assert store.studies() == ()  # the opening went with it


def test_what_is_sent_is_checked(store):
    assert parse_action({"kind": "confirm", "event": "m3"}) == Confirm(event="m3")
    for table, message in [
        ({"kind": "undo", "target": 1}, "not valid"),
        ({"kind": "confirm", "event": "<script>"}, "confirm.event = '<script>' is not valid"),
        ({"kind": "add", "label": "ulcers", "start": 1, "stop": 2}, "did you mean 'ulcer'"),
        ({"kind": "add", "label": "ulcer", "start": 2, "stop": 2}, "stop must be larger"),
        ({"kind": "add", "label": "ulcer", "start": True, "stop": 2}, "start"),
        ({"kind": "comment", "text": "x" * 20_001}, "at most 20000"),
        ("confirm", "not valid"),
    ]:
        with pytest.raises(EnteronError, match=message):
            parse_action(table)
    with pytest.raises(EnteronError, match="needs the version of the review"):
        store.append("s1", "anna", Confirm(event="m3"), opening=OPENING)
    with pytest.raises(EnteronError, match="no reading of study s1 is under review"):
        store.append("s1", "anna", Confirm(event="m3"), expected=0)
    with pytest.raises(EnteronError, match="has no version 99 yet"):
        do(store, Confirm(event="m3"), expected=99)
    with pytest.raises(EnteronError, match="name of the user"):
        do(store, Confirm(event="m3"), user="a\nb")
    with pytest.raises(EnteronError, match="contains '/'"):
        do(store, Confirm(event="m3"), study="../s1")


def test_a_suspicious_frame_is_dismissed_and_taken_back(store):
    do(store, Dismiss(frame=30, label="ulcer"))
    do(store, Dismiss(frame=20, label="polyp"))
    state = do(store, Dismiss(frame=30, label="ulcer"), user="ben")
    assert [(d.frame, d.label, d.by) for d in state.dismissed] == [
        (20, "polyp", "anna"),
        (30, "ulcer", "ben"),
    ]
    state = store.undo("s1", "anna", expected=state.version)
    assert [d.frame for d in state.dismissed] == [30]
    with pytest.raises(EnteronError, match="frames 99 to 99 are not all"):
        do(store, Dismiss(frame=99, label="ulcer"))


def test_viewed_ranges_are_merged_and_fast_ones_kept_apart(store):
    do(store, Viewed(intervals=((0, 10), (5, 12)), rate=10))
    state = do(store, Viewed(intervals=((12, 20), (55, 99)), rate=30))
    assert state.viewed == ((0, 20), (55, 60))
    assert state.viewed_slowly == ((0, 12),)


def test_reading_time_is_kept_by_person(store):
    do(store, Time(active=10.5, idle=2))
    do(store, Time(active=4.5))
    state = do(store, Time(active=1), user="ben")
    assert state.times["anna"].active == 15
    assert state.times["anna"].idle == 2
    assert state.times["ben"].active == 1


# ---- the record


def test_rows_hold_who_when_before_after_and_the_hash_before(store, tmp_path):
    do(store, Reject(event="m3"))
    rows = sqlite3.connect(tmp_path / REVIEWS).execute("SELECT * FROM record").fetchall()
    opened, rejected = rows
    assert rejected[1:5] == ("s1", 2, "a" * 64, "anna")
    assert rejected[5].endswith("+00:00")
    assert json.loads(rejected[7])["event m3"]["decision"] == "open"
    assert json.loads(rejected[8])["event m3"]["decision"] == "rejected"
    assert rejected[-2] == opened[-1]


def test_sqlite_itself_refuses_changes(store, tmp_path):
    do(store, Reject(event="m3"))
    other = sqlite3.connect(tmp_path / REVIEWS)
    for statement in ("UPDATE record SET user = 'eve'", "DELETE FROM record"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            other.execute(statement)
    mode, sync = (
        store._connection.execute(f"PRAGMA {p}").fetchone()[0]
        for p in ("journal_mode", "synchronous")
    )
    assert (mode, sync) == ("wal", 2)


@pytest.mark.parametrize(
    ("forgery", "message"),
    [
        ("UPDATE record SET user = 'eve' WHERE id = 3", "row 3 was changed"),
        ("UPDATE record SET action = replace(action, 'm4', 'm5') WHERE id = 3", "row 3 was chang"),
        ("DELETE FROM record WHERE id = 3", "row 3 is missing"),
        ("UPDATE record SET id = 9 WHERE id = 3", "row 3 is missing"),
        ("UPDATE record SET action = NULL WHERE id = 3", "row 3 was emptied without a tombstone"),
        ("UPDATE record SET hash = 'f' WHERE id = 3", "row 3 was changed"),
    ],
)
def test_a_forged_record_does_not_verify(store, tmp_path, forgery, message):
    for event in ("m3", "m4", "m5"):
        do(store, Confirm(event=event))
    head = store.head()
    assert store.verify(head).problems == ()
    eve = sqlite3.connect(tmp_path / REVIEWS)
    eve.executescript(f"DROP TRIGGER no_update; DROP TRIGGER no_delete; {forgery};")
    eve.commit()
    problems = " ".join(store.verify().problems)
    assert message in problems


def test_rows_cut_off_at_the_end_are_found_with_a_noted_head(store, tmp_path):
    for event in ("m3", "m4"):
        do(store, Confirm(event=event))
    head = store.head()
    eve = sqlite3.connect(tmp_path / REVIEWS)
    eve.executescript("DROP TRIGGER no_delete; DELETE FROM record WHERE id = 3;")
    assert store.verify().problems == ()
    (problem,) = store.verify(Head.parse(str(head))).problems
    assert "does not contain the head that was noted (row 3)" in problem
    with pytest.raises(EnteronError, match="is not the head of a record"):
        Head.parse("3:abc")


def test_a_removed_study_leaves_nothing_but_hashes(store, tmp_path):
    secret = "a remark about s1 that must go"
    do(store, Confirm(event="m3"), study="s1")
    do(store, Confirm(event="m3"), study="s2")
    do(store, Comment(text=secret), study="s1")
    do(store, Confirm(event="m4"), study="s2")
    head = store.head()
    assert store.remove("s1", "carla", "asked for by the patient") == 3
    assert store.studies() == ("s2",)
    found = store.verify(head)  # the head from before still holds
    assert (found.problems, found.removed, found.rows) == ((), 3, 7)
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes()
    other = sqlite3.connect(tmp_path / REVIEWS)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):  # guarded again
        other.execute("DELETE FROM record")
    other.close()
    assert store.state("s1", OPENING).status == "unread"
    do(store, Confirm(event="m3"), study="s1")  # and may begin anew
    assert store.verify().problems == ()
    with pytest.raises(EnteronError, match="there is no review of study s9"):
        store.remove("s9", "carla")


def test_another_process_notices_a_removal(store, tmp_path):
    do(store, Confirm(event="m3"))
    with ReviewStore(tmp_path / REVIEWS) as other:
        assert other.state("s1").status == "in progress"
        store.remove("s1", "carla")
        assert other.state("s1").status == "unread"
        assert other.history("s1") == ()


def test_two_stores_on_one_file_see_each_other(store, tmp_path):
    with ReviewStore(tmp_path / REVIEWS) as other:
        do(store, Confirm(event="m3"))
        assert other.state("s1").events["m3"].decision == "confirmed"
        do(other, Reject(event="m4"), user="ben")
        assert store.state("s1").events["m4"].decision == "rejected"
        other.undo("s1", "ben", expected=other.state("s1").version)
        assert store.state("s1").events["m4"].decision == "open"
        assert [e.user for e in store.history("s1", after=2)] == ["ben", "ben"]


def test_threads_take_turns(store):
    do(store, Confirm(event="m3"))
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(20):
                text = f"{name}-{number}"
                store.append("s1", name, Comment(text=text), opening=OPENING)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"user{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    state = store.state("s1")
    assert len({remark.text for remark in state.comments}) == 160
    assert [e.number for e in store.history("s1")] == list(range(1, 163))
    assert store.verify().problems == ()


def test_a_backup_is_a_whole_record(store, tmp_path):
    do(store, Confirm(event="m3"))
    head = store.backup(tmp_path / "copy.sqlite")
    do(store, Confirm(event="m4"))
    with ReviewStore(tmp_path / "copy.sqlite") as copy:
        assert copy.head() == head
        assert copy.state("s1").events["m4"].decision == "open"
    with pytest.raises(EnteronError, match=r"'copy.sqlite' exists already"):
        store.backup(tmp_path / "copy.sqlite")
    assert not list(tmp_path.glob(".*"))


def test_files_that_are_no_reviews_are_refused(tmp_path):
    with pytest.raises(EnteronError, match="there are no reviews here"):
        ReviewStore(tmp_path / REVIEWS, create=False)
    path = tmp_path / "text.sqlite"
    path.write_text("hello " * 1000)
    with pytest.raises(EnteronError, match=r"'text.sqlite' is damaged"):
        ReviewStore(path)
    foreign = tmp_path / "foreign.sqlite"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(EnteronError, match="is not a file of reviews"):
        ReviewStore(foreign)
    link = tmp_path / "link.sqlite"
    link.symlink_to(foreign)
    with pytest.raises(EnteronError, match="is not a plain file"):
        ReviewStore(link)
    newer = tmp_path / "newer.sqlite"
    ReviewStore(newer).close()
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(EnteronError, match="another version of enteron"):
        ReviewStore(newer)


def test_a_damaged_file_is_told(tmp_path):
    path = Path(tmp_path / REVIEWS)
    with ReviewStore(path) as store:
        do(store, Comment(text="x" * 15_000), expected=None)
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(EnteronError, match="damaged"), ReviewStore(path) as store:
        store.verify()
