"""`enteron bench faults`: the harness measures what it says, and a handful of its cases pass."""

import os
import sys

import pytest

from benchmarks import faults
from benchmarks._fault_harness import CASES, OUT, Box, Case, SkippedError, run_case

QUICK = (
    "60,000 keys, one of them twice",
    "a cell of 200 kB in metadata.csv",
    "devices and sparse files",
    "a file without the right to read it",
    "binary files in place of text files",
)


def outcome_of(act, tmp_path):
    return run_case(Case(0, "made here", act), tmp_path)


def test_there_are_enough_cases_over_all_points():
    assert len(CASES) >= 60
    assert {case.point for case in CASES} == set(range(1, 16))
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("name", QUICK)
def test_quick_cases_pass(name, tmp_path):
    (case,) = (each for each in CASES if each.name == name)
    outcome = run_case(case, tmp_path)  # none of them needs the shared data
    assert outcome.failures == []
    assert outcome.exits
    assert 20 * 2**20 < outcome.peak < 2 * 2**30


def test_a_wrong_acceptance_and_a_wrong_sentence_are_noticed(tmp_path):
    def act(box: Box):
        box.write("p.json", '{"videos":[{"video_id":"a","events":[]}]}')
        box.refuses("validate", "p.json")
        box.write("q.json", "{")
        box.refuses("validate", "q.json", says="nests too deeply")

    outcome = outcome_of(act, tmp_path)
    assert outcome.wrong == ["validate accepted it"]
    assert outcome.unclear == ["validate said something else than 'nests too deeply'"]
    assert outcome.exits == [0, 1]


def test_tracebacks_signals_memory_and_writes_outside_are_noticed(tmp_path):
    def act(box: Box):
        (box.work / OUT).mkdir()
        box.script("open('out/inside', 'w').write('x')")
        assert not box.outcome.failures
        box.script("open('outside', 'w').write('x'); import tempfile; tempfile.mkstemp()")
        box.script("import traceback\ntry: 1 / 0\nexcept ArithmeticError: traceback.print_exc()")
        box.script("import os; os.abort()")
        box.script("{}['a']")
        box.script("bytearray(300 * 2**20)")

    outcome = outcome_of(act, tmp_path)
    assert [path.split("/")[0] for path in outcome.outside] == ["tmp", "work", "tmp"]
    assert outcome.outside[1] == "work/outside"
    assert outcome.crashes[0] == "traceback: ZeroDivisionError: division by zero"
    assert outcome.crashes[1].startswith("exit -6")
    assert "unforeseen: `enteron script` failed while starting (KeyError)" in outcome.crashes[2]
    assert outcome.peak > 300 * 2**20


def test_a_case_that_cannot_run_here_says_why(tmp_path):
    def act(box: Box):
        raise SkippedError("no disk to fill")

    assert outcome_of(act, tmp_path).skipped == "no disk to fill"


def test_the_table_has_totals_and_an_exit_code(tmp_path, monkeypatch, capsys):
    def act(box: Box):
        box.expect(False, "two is three")

    monkeypatch.setattr(faults, "CASES", [Case(3, "arithmetic", act)])
    monkeypatch.setattr(faults, "prepare", lambda data: None)
    monkeypatch.setattr(sys, "argv", ["enteron bench faults"])
    with pytest.raises(SystemExit) as ended:
        faults.main()
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert "-> two is three" in said
    assert "silently wrong                           1" in said
    assert "tracebacks and crashes                   0" in said


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults") / "data"
    faults.prepare(folder)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.point}-{case.name}")
def test_every_case_passes(case, data):
    outcome = run_case(case, data)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.failures == []
    assert os.listdir(data)  # noqa: PTH208 (what the cases share is still there)
