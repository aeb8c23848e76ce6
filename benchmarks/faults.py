"""Faults and attacks: what happens now, with exit codes, memory, and writes outside of the output.

Every case makes a faulty input in an empty folder and runs commands on it. Exit code 1 when a
result is silently wrong, or when a command crashes, writes outside of its output folder or takes
more than 2 GB.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import _fault_attacks, _fault_cases, _fault_data
from benchmarks._fault_harness import CASES, MOST_MEMORY, Case, Outcome, run_case

_WIDTH = 76  # characters of what a command said

assert _fault_cases
assert _fault_attacks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="cases whose name contains this, or of this point's number")
    parser.add_argument("--data", type=Path, help="keep models and studies here, for the next run")
    arguments = parser.parse_args()
    chosen = [each for each in CASES if _is_chosen(each, arguments.only)]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="enteron-faults-") as folder:
        data = Path(folder) / "data" if arguments.data is None else arguments.data.resolve()
        prepare(data)
        made = time.perf_counter() - start
        outcomes = [(each, _run(each, data)) for each in chosen]
    seconds = time.perf_counter() - start
    print(f"\n{len(outcomes)} cases in {seconds:.0f} s, {made:.0f} s of them to make the data")
    if _summary([outcome for _, outcome in outcomes]):
        sys.exit(1)


def prepare(data: Path) -> None:
    """Make what the cases share, in a process of its own, so that this one stays small."""
    if not (data / "ready").exists():
        data.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, _fault_data.__file__, str(data)],
            check=True,
            env=_fault_data.environment(),
        )
        (data / "ready").touch()
    data.chmod(0o755)


def _is_chosen(case: Case, only: str | None) -> bool:
    if only is None:
        return True
    return int(only) == case.point if only.isdecimal() else only in case.name


def _run(case: Case, data: Path) -> Outcome:
    outcome = run_case(case, data)
    state = "skipped" if outcome.skipped else "FAILED" if outcome.failures else "ok"
    said = outcome.skipped or outcome.said
    short = said if len(said) <= _WIDTH else said[: _WIDTH - 1] + "…"
    codes = ",".join(str(code) for code in sorted(set(outcome.exits)))
    print(
        f"{case.point:2} {case.name[:58]:58} {short:{_WIDTH}} {codes:>5} "
        f"{outcome.peak / 2**20:6,.0f} MiB {outcome.seconds:5.1f} s  {state}",
        flush=True,
    )
    for failure in outcome.failures:
        print(f"   -> {failure}", flush=True)
    return outcome


def _summary(outcomes: list[Outcome]) -> bool:
    """Print the totals; whether any of them is not zero."""
    totals = {
        "silently wrong": sum(bool(outcome.wrong) for outcome in outcomes),
        "tracebacks and crashes": sum(bool(outcome.crashes) for outcome in outcomes),
        "another sentence than expected": sum(bool(outcome.unclear) for outcome in outcomes),
        "writes outside of the output folder": sum(bool(outcome.outside) for outcome in outcomes),
        "over 2 GB": sum(outcome.peak > MOST_MEMORY for outcome in outcomes),
    }
    for name, count in totals.items():
        print(f"{name:40} {count}")
    skipped = sum(bool(outcome.skipped) for outcome in outcomes)
    if skipped:
        print(f"{'skipped, for the reasons above':40} {skipped}")
    return any(totals.values())


if __name__ == "__main__":
    main()
