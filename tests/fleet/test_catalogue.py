"""The catalogue: rows from readings, kept current, in parts, and asked in SQL."""

import json
import os

import polars as pl
import pytest

from enteron.errors import EnteronError
from enteron.fleet import rows as rows_module
from enteron.fleet.catalogue import (
    CATALOGUE,
    CATALOGUE_EVENTS,
    event_schema,
    refresh_catalogue,
    study_schema,
)
from enteron.fleet.figures import fleet_figures, histogram
from enteron.fleet.ledger import Ledger
from enteron.fleet.page import write_fleet_page
from enteron.fleet.tables import PartitionedTable, part_of, run_sql
from enteron.fleet.task import Task
from enteron.labels import LABELS
from tests.browser import Browser, chromium
from tests.folders.making import write_plain_reading
from tests.making import write_frames


def write_study(
    out, study, *, rate: float | None = 2.0, device="olympus", ulcer=None, state="finished", **run
):
    """Mouth, stomach from 100, small intestine from 1,300, colon from 8,500."""
    events = [
        (0, 100, "mouth"), (100, 1300, "stomach"), (1300, 8500, "small intestine"),
        (8500, 9000, "colon"), (2000, 2100, "polyp"),
    ]  # fmt: skip
    events += [] if ulcer is None else [(3000, 3100, "ulcer"), (4000, 4010, "ulcer")]
    facts = {
        "rows": 9000, "rate": rate, "state": state, "settings": {"device": device},
        "timings": {"embed": 60.0, "score": 1.5}, "unreadable": {"count": 3},
        "model": {"hash": "0123456789abcdef"}, "versions": {"enteron": "0.2.0"}, **run,
    }  # fmt: skip
    folder = write_plain_reading(out / study, study, events, run=facts)
    if ulcer is not None:
        content = json.loads((folder / "events.json").read_text())
        for event in content["events"]:
            if event["label"] == "ulcer":
                event["score"] = ulcer if event["start"] == 3000 else 0.4
        (folder / "events.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def out(tmp_path):
    write_study(tmp_path / "out", "a1", ulcer=0.85)
    write_study(tmp_path / "out", "a2", rate=None, device="pillcam")
    return tmp_path / "out"


def test_a_row_says_what_the_reading_says(out):
    studies = refresh_catalogue(out).studies
    row = studies.row(by_predicate=pl.col("study") == "a1", named=True)
    assert row["state"] == "finished"
    assert (row["frames"], row["unreadable"], row["device"]) == (9000, 3, "olympus")
    assert row["complete"] is True
    assert row["gastric_frames"] == 1200
    assert row["gastric_minutes"] == pytest.approx(10.0)
    assert row["small_bowel_minutes"] == pytest.approx(60.0)
    assert (row["ulcer"], row["ulcer_events"], row["polyp"], row["polyp_events"]) == (
        0.85, 2, 0.9, 1,
    )  # fmt: skip
    assert row["angiectasia"] is None
    assert (row["finding"], row["confidence"], row["findings"]) == ("polyp", 0.9, 3)
    assert row["small_intestine_frames"] == 7200
    assert row["seconds"] == 61.5
    assert row["model"] == "0123456789abcdef"
    other = studies.row(by_predicate=pl.col("study") == "a2", named=True)
    assert other["gastric_frames"] == 1200
    assert other["gastric_minutes"] is None  # the rate is unknown


def test_events_are_a_table_of_their_own(out):
    events = refresh_catalogue(out).events
    assert events.height == 7 + 5
    ulcer = events.filter((pl.col("label") == "ulcer") & (pl.col("confidence") > 0.5))
    assert ulcer["start"].to_list() == [3000]
    assert ulcer["frames"].to_list() == [100]


def test_a_recording_that_ends_early_is_not_complete(tmp_path):
    out = tmp_path / "out"
    write_plain_reading(out / "a", "a", [(0, 10, "mouth"), (10, 90, "stomach")])
    missing = {"missing": {"frames": 10, "sentence": "the recording is cut off"}}
    write_plain_reading(out / "b", "b", [(0, 90, "stomach")], run=missing)
    write_plain_reading(out / "c", "c", [(0, 50, "stomach"), (50, 90, "small intestine")])
    rows = {row["study"]: row for row in refresh_catalogue(out).studies.iter_rows(named=True)}
    assert rows["a"]["complete"] is False
    assert rows["b"]["complete"] is None
    assert rows["b"]["cut_off"] is True
    assert rows["c"]["gastric_frames"] is None  # it begins inside the stomach


def test_it_is_kept_current_and_only_changed_readings_are_read(out, monkeypatch):
    refresh_catalogue(out)
    read = []
    rows = rows_module.study_rows
    monkeypatch.setattr(
        rows_module,
        "study_rows",
        lambda folder, stamp: (read.append(folder.name), rows(folder, stamp))[1],
    )
    refresh_catalogue(out)
    assert read == []
    write_study(out, "a3", state="scored")
    write_study(out, "a1", ulcer=0.2)
    catalogue = refresh_catalogue(out)
    assert sorted(read) == ["a1", "a3"]
    assert catalogue.counts() == {"finished": 2, "unfinished": 1}
    assert catalogue.studies.filter(pl.col("study") == "a1")["ulcer"].to_list() == [0.4]
    stored = pl.read_parquet(out / CATALOGUE)
    assert stored.equals(catalogue.studies)
    for path in (out / "a2").iterdir():
        path.unlink()
    (out / "a2").rmdir()
    assert refresh_catalogue(out).studies["study"].to_list() == ["a1", "a3"]
    assert "a2" not in pl.read_parquet(out / CATALOGUE_EVENTS)["study"].to_list()


def test_a_damaged_catalogue_is_made_again(out):
    expected = refresh_catalogue(out).studies
    (out / CATALOGUE).write_bytes(b"no parquet")
    assert refresh_catalogue(out).studies.equals(expected)
    pl.DataFrame({"other": [1]}).write_parquet(out / CATALOGUE)
    assert refresh_catalogue(out).studies.equals(expected)


def test_failures_and_damage_have_rows(out, tmp_path):
    write_frames(tmp_path / "root" / "Doe", range(2))
    task = Task(key="0" * 16, path=str(tmp_path / "root" / "Doe"))
    Ledger(out).add(task, None, "'Doe' holds no frames; copy it again.", 1)
    (out / "a2" / "events.json").write_text("{")
    os.utime(out / "a2" / "run.json", (1, 1))
    catalogue = refresh_catalogue(out)
    assert catalogue.counts() == {"damaged": 1, "finished": 1, "quarantined": 1}
    row = catalogue.studies.row(by_predicate=pl.col("state") == "quarantined", named=True)
    assert row["reason"] == "the study holds no frames; copy it again."
    assert row["study"] == "unread-00000000"
    figures = fleet_figures(catalogue)
    assert {row.state for row in figures.stopped} == {"damaged", "quarantined"}
    Ledger(out).forget("0" * 16)
    assert "quarantined" not in refresh_catalogue(out).counts()


# ---- parts


def test_a_large_table_is_in_parts_and_an_update_writes_those_it_concerns(tmp_path):
    table = pl.DataFrame({"folder": [f"s{i}" for i in range(100)], "value": range(100)})
    stored = PartitionedTable(tmp_path / "t.parquet", table.schema, part_rows=30)
    stored.write(table.head(20), set())
    assert (tmp_path / "t.parquet").is_file()
    stored.write(table, set())
    parts = sorted((tmp_path / "t.parquet").iterdir())
    assert len(parts) == 4
    assert pl.read_parquet(tmp_path / "t.parquet").height == 100  # other programs read it as one
    back = stored.read()
    assert back is not None
    assert back.sort("value").equals(table)
    before = {path.name: path.stat().st_mtime_ns for path in parts}
    changed = table.with_columns(
        value=pl.when(pl.col("folder") == "s7").then(-1).otherwise(pl.col("value"))
    )
    stored.write(changed, {"s7"})
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "t.parquet").iterdir()}
    touched = [name for name in before if before[name] != after[name]]
    assert touched == [f"part-{part_of('s7', 4):03d}-of-004.parquet"]
    back = stored.read()
    assert back is not None
    assert back.sort("value").equals(changed.sort("value"))
    parts[0].unlink()
    assert stored.read() is None  # incomplete: made again
    stored.write(table.head(5), set())
    assert (tmp_path / "t.parquet").is_file()


# ---- SQL


def test_queries(out):
    catalogue = refresh_catalogue(out)
    tables = {"studies": catalogue.studies, "events": catalogue.events}
    answer = run_sql("SELECT study WHERE ulcer > 0.8 AND complete", tables)
    assert answer["study"].to_list() == ["a1"]
    answer = run_sql("select label, count(*) as n from events group by label order by n", tables)
    assert dict(answer.iter_rows())["ulcer"] == 2
    joined = "SELECT e.start FROM events e JOIN studies s ON e.study = s.study WHERE s.rate = 2"
    assert run_sql(joined + " AND e.label = 'ulcer';", tables).height == 2
    assert run_sql("SELECT study ORDER BY study LIMIT 1", tables)["study"].to_list() == ["a1"]
    with pytest.raises(EnteronError, match="there is no column 'ulcr'; did you mean 'ulcer'"):
        run_sql("SELECT study WHERE ulcr > 0.8", tables)
    with pytest.raises(EnteronError, match="the tables are studies, events"):
        run_sql("SELECT * FROM nothing", tables)
    with pytest.raises(EnteronError, match="is not a query; begin with SELECT"):
        run_sql("DROP TABLE studies", tables)
    with pytest.raises(EnteronError, match="cannot be answered"):
        run_sql("SELECT FROM WHERE", tables)


def test_every_column_is_documented():
    from tests.conftest import ROOT

    page = (ROOT / "docs" / "scale.md").read_text()
    labels = {label.replace(" ", "_").replace("-", "_") for label in LABELS}
    generated = {f"{name}{suffix}" for name in labels for suffix in ("", "_events", "_mean")}
    generated |= {f"{name}_frames" for name in labels}
    for column in {*study_schema(), *event_schema()} - generated:
        assert f"`{column}`" in page, column


def test_the_commands(out, command, tmp_path):
    code, said, _ = command("fleet", "status", out)
    assert code == 0
    assert "Colon recognised in 2 of 2 finished studies." in said
    assert "Small-bowel transit: median 1.0 hours" in said
    code, said, _ = command("fleet", "status", out, "--json")
    assert json.loads(said)["findings"]["ulcer"] == 1
    code, said, _ = command("fleet", "query", out, "SELECT study, ulcer WHERE ulcer > 0.5")
    assert code == 0
    assert "a1" in said
    assert "1 rows." in said
    code, _, _ = command("fleet", "query", out, "SELECT study, ulcer", "--csv", "answer.csv")
    assert code == 0
    assert (tmp_path / "answer.csv").read_text() == "study,ulcer\na1,0.85\na2,\n"
    code, said, _ = command("fleet", "query", out, "--columns")
    assert "small_bowel_minutes" in said
    code, _, error = command("fleet", "query", out)
    assert code == 1
    assert "there is no query" in error
    code, _, error = command("fleet", "status", tmp_path / "nowhere")
    assert code == 1
    assert "there is no folder 'nowhere'" in error
    (tmp_path / "empty").mkdir()
    code, _, error = command("fleet", "status", tmp_path / "empty")
    assert code == 1
    assert "'empty' holds no readings" in error


# ---- figures and page


def test_histograms_count_everything():
    values = pl.Series([0.5, 1.0, 1.1, 7.9, 40.0]).to_numpy()
    drawn = histogram("x", "hours", values)
    assert sum(bar.count for bar in drawn.bars) + drawn.beyond == 5
    assert drawn.median == 1.1


@pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")
def test_the_page_in_a_browser(out, tmp_path):
    write_study(out, "a10", ulcer=0.95)
    Ledger(out).add(
        Task(key="1" * 16, path=str(tmp_path)), None, "<b>no</b> frames; copy it again.", 1
    )
    page = write_fleet_page(out, refresh_catalogue(out))
    assert b"<b>no</b>" not in page.read_bytes()
    with Browser() as browser:
        tab = browser.open(page)
        tab.wait_for("document.querySelectorAll('#rows tr').length === 4")
        names = "[...document.querySelectorAll('#rows tr')].map(r => r.cells[0].textContent)"
        assert tab.run(names) == ["a1", "a2", "a10", "unread-11111111"]
        assert tab.run("document.querySelector('#rows a').getAttribute('href')") == "a1/report.html"
        tab.run(
            "(() => { const s = document.getElementById('finding');"
            "s.value = [...s.options].find(o => o.text === 'ulcer').value;"
            "s.dispatchEvent(new Event('input')); })()"
        )
        assert tab.run(names) == ["a1", "a10"]
        tab.click('[data-sort="confidence"]')
        assert tab.run(names) == ["a10", "a1"]
        assert tab.complaints() == []
        assert tab.requests() == []
