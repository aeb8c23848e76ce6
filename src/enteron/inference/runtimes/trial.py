"""Encoders tried against each other on the same pictures: speed, drift, and a verdict on each."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from enteron.config import Options
from enteron.errors import EnteronError
from enteron.inference.encoder import Encoder, Squares
from enteron.inference.runtimes.drift import Drift, drift

Clock = Callable[[], float]


class Limits(Options):
    """When a runtime may stand in for the exact one."""

    cosine: float = 0.995
    """The least cosine that any picture's embedding may have with its exact one."""

    of_spread: float = 0.2
    """The largest drift, as a share of how far the pictures' embeddings lie apart."""

    rounding: float = 1e-3
    """A drift, as a share of the same, up to which it is rounding and nothing else."""

    worth: float = 1.2
    """How many times as fast a runtime must be to be taken instead of one before it in the list.

    Ties would otherwise be decided by chance, and a study by another runtime from run to run.
    """

    rounds: int = 3
    """How often each is timed, in turns; the median counts."""

    hopeless: float = 2.0
    """Who takes this many times as long as the fastest in the first round is not timed again."""


@dataclass(frozen=True)
class Trial:
    """How one runtime did."""

    runtime: str
    rate: float  # pictures a second
    ratio: float  # of its rate to that of the exact runtime
    drift: Drift
    verdict: str


@dataclass(frozen=True)
class Choice:
    """Which runtime was chosen, and the trials it was chosen by."""

    encoder: Encoder
    reason: str
    trials: tuple[Trial, ...]

    @property
    def runtime(self) -> str:
        """The name of the chosen one."""
        return self.encoder.runtime

    def table(self) -> str:
        """The trials in Markdown, a row each."""
        head = "| runtime | frames/s | ratio | cosine | largest | of spread | verdict |"
        rows = [
            f"| {t.runtime} | {t.rate:.1f} | {t.ratio:.2f} | {t.drift.cosine:.5f} "
            f"| {t.drift.largest:.1e} | {t.drift.of_spread:.1e} | {t.verdict} |"
            for t in self.trials
        ]
        return "\n".join([head, "|---|---:|---:|---:|---:|---:|---|", *rows])


def compare(
    exact: Encoder,
    others: Sequence[Encoder],
    squares: Squares,
    limits: Limits | None = None,
    clock: Clock = time.perf_counter,
) -> Choice:
    """Try the exact encoder and the others on the same squares (n >= 1), and choose."""
    if not len(squares):
        raise EnteronError("there are no pictures to try runtimes on", "give at least one")
    limits = limits or Limits()
    candidates = {encoder.runtime: encoder for encoder in (exact, *others)}
    # The first pass gives the embeddings, and warms up: kernels are chosen, memory is fetched.
    features = {name: encoder.encode(squares) for name, encoder in candidates.items()}
    drifts = {name: drift(found, features[exact.runtime]) for name, found in features.items()}
    seconds = _seconds(candidates, squares, limits, clock)
    return _decide(candidates, exact, len(squares), drifts, seconds, limits)


def _seconds(
    candidates: Mapping[str, Encoder], squares: Squares, limits: Limits, clock: Clock
) -> dict[str, float]:
    """Median seconds of each; in turns, so that another load on the machine hits all of them."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(limits.rounds):
        fastest = min((times[0] for times in found.values() if times), default=0.0)
        for name, encoder in candidates.items():
            if turn and found[name][0] > limits.hopeless * fastest:
                continue
            begin = clock()
            encoder.encode(squares)
            found[name].append(clock() - begin)
    return {name: statistics.median(times) for name, times in found.items()}


def _decide(
    candidates: Mapping[str, Encoder],
    exact: Encoder,
    count: int,
    drifts: Mapping[str, Drift],
    seconds: Mapping[str, float],
    limits: Limits,
) -> Choice:
    faithful = [name for name in candidates if _is_within(drifts[name], limits, limits.rounding)]
    allowed = [
        name
        for name in candidates
        if name not in faithful and _is_within(drifts[name], limits, limits.of_spread)
    ]
    chosen = exact.runtime
    for name in faithful + allowed:
        if seconds[chosen] >= limits.worth * seconds[name]:
            chosen = name
    verdicts = dict.fromkeys(candidates, "refused: drift")
    for name in faithful + allowed:
        verdicts[name] = "slower" if seconds[name] > seconds[chosen] else "hardly faster"
    verdicts[chosen] = "chosen"
    trials = tuple(
        Trial(
            runtime=name,
            rate=count / seconds[name],
            ratio=seconds[exact.runtime] / seconds[name],
            drift=drifts[name],
            verdict=verdicts[name],
        )
        for name in candidates
    )
    return Choice(
        candidates[chosen], _reason(chosen, exact, chosen in faithful, drifts, seconds), trials
    )


def _is_within(found: Drift, limits: Limits, of_spread: float) -> bool:
    # One picture has no spread: then the cosine alone decides.
    return found.cosine >= limits.cosine and not found.of_spread > of_spread


def _reason(
    chosen: str,
    exact: Encoder,
    faithful: bool,
    drifts: Mapping[str, Drift],
    seconds: Mapping[str, float],
) -> str:
    """One sentence for a person who waits for the study."""
    if chosen == exact.runtime:
        return f"{chosen}: exact, and nothing faster is near enough to it here"
    faster = f"{seconds[exact.runtime] / seconds[chosen]:.1f} times as fast as {exact.runtime} here"
    if faithful:
        return f"{chosen}: {faster}, the same but for rounding"
    return f"{chosen}: {faster}, cosine with its embeddings at least {drifts[chosen].cosine:.4f}"
