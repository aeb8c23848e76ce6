"""The steps in their order: calibrate, smooth, transit, gate, landmarks, findings."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from enteron.calibration.calibration import Calibration, Silence, Thresholds, calibrated
from enteron.decode.events import DecodedEvent, edge_confidence
from enteron.decode.evidence import evidence, known_rates, median
from enteron.decode.findings import (
    DEFAULT_LOW,
    Candidate,
    candidates,
    event_confidence,
    log_odds,
    median_run,
    select,
    smoothed_findings,
)
from enteron.decode.landmarks import LandmarkRun, by_hysteresis, by_transition, near_regions
from enteron.decode.options import (
    TRANSIT,
    DecodeOptions,
    require_fitted,
    scaled_rows,
    scaled_window,
)
from enteron.decode.regions import (
    DEFAULT_KAPPA,
    RegionStay,
    Stay,
    semi_markov_transit,
    state_machine_transit,
)
from enteron.labels import ANATOMY, COLUMN, FINDINGS, LABELS, LANDMARKS, REGIONS
from enteron.priors import Priors, load_priors
from enteron.runs import means
from enteron.types import Scores


def gated(
    p: NDArray[np.float32],
    stays: Iterable[Stay],
    priors: Priors,
    factor: float = 0.3,
    implausible: float = 0.001,
) -> NDArray[np.float32]:
    """(rows, 17) probabilities times `factor` where P(label | region) < `implausible`.

    Paper stage 3: "anatomy gating attenuating predictions by 70 % in anatomically implausible
    regions"; which ones those are is decision 28. Rows without a decoded region stay as they are.
    """
    if factor == 1:
        return p
    result = p.copy(order="K")
    for region, start, stop in stays:
        shares = priors.given_region.shares[REGIONS[region]]
        for column, label in enumerate(LABELS):
            gates = label in LANDMARKS or label in FINDINGS
            if gates and shares.get(label, 0.0) < implausible:
                result[start:stop, column] *= np.float32(factor)
    return result


def worth_emitting(events: Sequence[DecodedEvent], calibration: Calibration) -> list[DecodedEvent]:
    """The events of those labels that are better emitted, in their order."""
    best: dict[str, float] = {}
    for event in events:
        best[event.label] = max(best.get(event.label, 0.0), event.score or 0.0)
    spoken = {label for label, score in best.items() if speaks(calibration.silence[label], score)}
    return [event for event in events if event.label in spoken]


def presence_given(statistics: Silence, best_score: float) -> float:
    """pi: probability that the study shows the label, given its surest event in this study."""
    x = statistics.intercept + statistics.slope * log_odds(best_score)
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def speaks(statistics: Silence, best_score: float) -> bool:
    """Emit if E[AP | present] > (1 - pi) / pi.

    Emitting is worth pi * E[AP], silence 1 - pi: an absent label scores 1 only if left out.
    """
    pi = presence_given(statistics, best_score)
    return pi * statistics.expected_ap > 1 - pi


def decode(
    scores: Scores,
    options: DecodeOptions | None = None,
    priors: Priors | None = None,
    calibration: Calibration | None = None,
) -> list[DecodedEvent]:
    """Events of one study: regions and landmarks along time, then findings, the surest first.

    Without options the preset `transit`; without priors those of the package; without a
    calibration scores are taken as probabilities. Events count in the unit of the scores' axis.
    """
    options = TRANSIT if options is None else options
    priors = load_priors() if priors is None else priors
    decoder = Decoder(scores, options, priors, calibration or Calibration())
    return decoder.events()


class Decoder:
    """One study on its way through the steps; rows inside, frames at the end."""

    def __init__(
        self, scores: Scores, options: DecodeOptions, priors: Priors, calibration: Calibration
    ) -> None:
        require_fitted(options, calibration)
        self.scores = scores
        self.options = options
        self.priors = priors
        self.calibration = calibration
        self.frame_calibration = getattr(calibration, options.calibration)
        tuned = (
            calibration.kappa if options.semi_markov.kappa is None else options.semi_markov.kappa
        )
        self.kappa = DEFAULT_KAPPA if tuned is None else tuned
        low = calibration.low if options.findings.low is None else options.findings.low
        self.low = DEFAULT_LOW if low is None else low
        self.shortening = scores.shortening
        self.p: NDArray[np.float32] = calibrated(scores, self.frame_calibration, options.device)
        self.rates = known_rates(calibration, priors)

    def events(self) -> list[DecodedEvent]:
        """All steps."""
        stays, anatomy = self.regions()
        spans = [(stay.region, stay.start, stay.stop) for stay in stays]
        gate = (self.priors, self.options.gate, self.options.implausible)
        landmarks = self.landmarks(gated(anatomy, spans, *gate), stays)
        findings = self.findings(self.smoothed(stays, self.windows()))
        events = [self._region_event(stay) for stay in stays]
        events += [self._event(label, run, stays) for label, run in landmarks]
        events.sort(key=lambda event: (event.start, COLUMN[event.label]))
        events += self._finding_events(findings, stays)
        if self.options.silence:
            events = worth_emitting(events, self.calibration)
        return events

    def regions(self) -> tuple[list[RegionStay], NDArray[np.float32]]:
        """Stays, and the (rows, 17) matrix in which landmarks are sought."""
        if self.options.anatomy == "semi-Markov":
            semi_markov = self.options.semi_markov
            given = semi_markov.stride
            stride = self.scores.row_frames if given is None else given
            margin = scaled_rows(semi_markov.margin, self.shortening)
            semi_markov = semi_markov.model_copy(update={"margin": margin})
            settings = (stride, semi_markov, self.kappa, self.priors)
            count = len(REGIONS)
            return semi_markov_transit(self.p[:, :count], self.rates[:count], *settings), self.p
        machine = self.options.state_machine
        settings = machine.model_copy(
            update={
                "window": scaled_window(machine.window, self.shortening),
                "tau": scaled_rows(machine.tau, self.shortening),
            }
        )
        anatomy = self.p.copy(order="F")
        anatomy[:, : len(ANATOMY)] = median(self.p[:, : len(ANATOMY)], settings.window)
        mouth = self.frame_calibration.thresholds[REGIONS[0]]
        return state_machine_transit(anatomy[:, : len(REGIONS)], settings, mouth), anatomy

    def smoothed(self, stays: list[RegionStay], windows: Mapping[str, int]) -> NDArray[np.float32]:
        """(rows, 17): findings smoothed and gated; the other columns are not for use.

        Windows count rows of a full-length study.
        """
        matrix = self.p.copy(order="F")
        scaled = {label: scaled_window(rows, self.shortening) for label, rows in windows.items()}
        options = self.options.findings
        if options.window is not None:
            window = scaled_window(options.window, self.shortening)
            options = options.model_copy(update={"window": window})
        findings = smoothed_findings(self.p, options, scaled)
        matrix[:, len(ANATOMY) :] = findings
        spans = [(stay.region, stay.start, stay.stop) for stay in stays]
        return gated(matrix, spans, self.priors, self.options.gate, self.options.implausible)

    def windows(self) -> dict[str, int]:
        """Rows over which each finding's log-odds are averaged: its median run, or as fitted."""
        rules = self.calibration.events
        if self.options.findings.threshold == "clinical" and rules:
            return {label: rules[label].window for label in FINDINGS}
        return {label: median_run(label, self.priors) for label in FINDINGS}

    def thresholds(self) -> Thresholds:
        """The upper thresholds that the options ask for."""
        kind = self.options.findings.threshold
        rules = self.calibration.events
        if kind == "frames" or (kind == "events" and not rules):
            return self.frame_calibration.thresholds
        if kind == "events":
            return {label: rule.threshold for label, rule in rules.items()}
        return {label: rule.clinical for label, rule in rules.items()}

    def landmarks(
        self, p: NDArray[np.float32], stays: list[RegionStay]
    ) -> list[tuple[str, LandmarkRun]]:
        """Runs of the three landmarks."""
        options = self.options.landmarks
        near = scaled_rows(options.near, self.shortening)
        options = options.model_copy(update={"near": near})
        found: list[tuple[str, LandmarkRun]] = []
        for label in LANDMARKS:
            column = np.ascontiguousarray(p[:, COLUMN[label]])
            threshold = self.frame_calibration.thresholds[label]
            if options.method == "transition":
                known = evidence(column, self.rates[COLUMN[label]], self.options.semi_markov.clip)
                settings = (self.kappa, self.priors, options, self.shortening)
                run = by_transition(label, known, stays, *settings)
                found += [(label, run)] if run else []
            elif threshold is not None:
                allowed = near_regions(column.size, label, stays, options.near)
                spans = by_hysteresis(column, threshold, self.low, allowed)
                for (start, stop), mean in zip(spans.tolist(), means(column, spans), strict=True):
                    found.append((label, LandmarkRun(start, stop, float(mean))))
        return found

    def findings(self, smoothed: NDArray[np.float32]) -> list[Candidate]:
        """What hysteresis and the limits leave, by persistence."""
        thresholds = self.thresholds()
        found: list[Candidate] = []
        for label in FINDINGS:
            threshold = thresholds[label]
            if threshold is not None:
                column = np.ascontiguousarray(smoothed[:, COLUMN[label]])
                found += candidates(label, column, threshold, self.low, self.shortening)
        return select(found, self.options.findings, self.priors, self.shortening)

    def _finding_events(
        self, found: list[Candidate], stays: list[RegionStay]
    ) -> list[DecodedEvent]:
        if self.options.anatomy == "state machine":  # the paper ranks by persistence
            return [
                self._event(c.label, LandmarkRun(c.start, c.stop, c.mean), stays) for c in found
            ]
        events: list[DecodedEvent] = []
        for label in FINDINGS:
            mine = [c for c in found if c.label == label]
            if not mine:
                continue
            column = COLUMN[label]
            known = evidence(self.p[:, column], self.rates[column], self.options.semi_markov.clip)
            starts = np.array([c.start for c in mine])
            stops = np.array([c.stop for c in mine])
            onsets = edge_confidence(known, starts, self.kappa)
            ends = edge_confidence(-known, stops, self.kappa)
            believed = [event_confidence(c, self.calibration) for c in mine]
            for c, score, onset, end in zip(mine, believed, onsets, ends, strict=True):
                run = LandmarkRun(c.start, c.stop, score, float(onset), float(end))
                events.append(self._event(label, run, stays))
        return sorted(events, key=lambda e: (-(e.score or 0.0), e.start, COLUMN[e.label]))

    def _region_event(self, stay: RegionStay) -> DecodedEvent:
        name = REGIONS[stay.region]
        start, stop = self._frames(stay.start, stay.stop)
        return DecodedEvent(start, stop, name, stay.score, name, stay.onset, stay.end)

    def _event(self, label: str, run: LandmarkRun, stays: list[RegionStay]) -> DecodedEvent:
        start, stop = self._frames(run.start, run.stop)
        region = _most_shared(run, stays)
        return DecodedEvent(start, stop, label, run.score, region, run.onset, run.end)

    def _frames(self, start: int, stop: int) -> tuple[int, int]:
        """From rows to frames: a row holds up to the next one."""
        axis = self.scores.axis
        last = stop - 1
        end = int(axis.frames[last]) + axis.step
        if stop < len(axis):
            end = min(end, int(axis.frames[stop]))
        return int(axis.frames[start]), end


def _most_shared(run: LandmarkRun, stays: list[RegionStay]) -> str | None:
    """The region that most of a run lies in."""
    shared = [(min(run.stop, s.stop) - max(run.start, s.start), s.region) for s in stays]
    most = max(shared, default=(0, 0))
    return REGIONS[most[1]] if most[0] > 0 else None
