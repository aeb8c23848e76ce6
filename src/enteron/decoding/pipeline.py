"""The steps of decoding in their order: scale, calibrate, regions, gate, landmarks, findings.

The gap merge of the prior submission treats all labels alike, in place of the last four.

`Decoder` holds one study. Its constants are scaled to the rows of that study at the start; rows
become frames at the end.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from enteron.calibration import (
    Calibration,
    FrameCalibration,
    Silence,
    Thresholds,
    calibrated,
    log_odds,
    probability,
)
from enteron.confidence import Guarantee
from enteron.context import EventContext, event_terms, means_at, positions
from enteron.context import log_odds as all_log_odds
from enteron.decoding.events import DecodedEvent, DecodedRun, edge_confidence
from enteron.decoding.evidence import evidence, running_median, score_base_rates
from enteron.decoding.findings import (
    Candidate,
    event_confidence,
    find_candidates,
    finding_log_ratios,
    gate,
    median_run_length,
    regions_at,
    select_candidates,
    smooth_findings,
)
from enteron.decoding.gap_merge import gap_merge_runs
from enteron.decoding.landmarks import landmark_at_transition, landmark_spans, rows_near_regions
from enteron.decoding.options import (
    DEFAULT_KAPPA,
    DEFAULT_LOW,
    TRANSIT,
    DecodeOptions,
    GapMergeOptions,
    require_fitted,
    scaled_for,
)
from enteron.decoding.regions import semi_markov_regions, state_machine_regions
from enteron.decoding.suspicious import (
    SuspicionOptions,
    finding_probabilities,
    picture_runs,
    rank_rows,
)
from enteron.labels import ANATOMY, COLUMN, FINDINGS, LABELS, LANDMARKS, REGIONS
from enteron.priors import Priors, load_priors
from enteron.runs import means, scaled_window
from enteron.types import Scores


def decode(
    scores: Scores,
    options: DecodeOptions | None = None,
    priors: Priors | None = None,
    calibration: Calibration | None = None,
) -> list[DecodedEvent]:
    """Events of one study: regions and landmarks in time order, then findings in their rank.

    Without options the preset `transit`; without priors those of the package; without a
    calibration scores are taken as probabilities. Events count in the unit of the scores' axis.
    """
    options = TRANSIT if options is None else options
    priors = load_priors() if priors is None else priors
    calibration = Calibration() if calibration is None else calibration
    return Decoder(scores, options, priors, calibration).events()


JudgedCandidate = tuple[Candidate, float]
"""A candidate, and the probability that it is a true event."""


class Decoder:
    """One study, decoded step by step."""

    def __init__(
        self, scores: Scores, options: DecodeOptions, priors: Priors, calibration: Calibration
    ) -> None:
        require_fitted(options, calibration)
        self.scores = scores
        self.options = scaled_for(options, scores)
        self.row_scale = scores.shortening  # for what is no option: see `scaled_for`
        self.priors = priors
        self.calibration = calibration
        self.frame_calibration = frame_calibration(options, calibration)
        semi_markov = options.semi_markov
        self.row_frames = scores.row_frames if semi_markov.stride is None else semi_markov.stride
        self.kappa = _first_set(semi_markov.kappa, calibration.kappa, DEFAULT_KAPPA)
        self.low = lower_share(options, calibration)
        self.event_context = event_context(options, calibration)
        self.p: NDArray[np.float32] = calibrated(scores, self.frame_calibration)
        self.rates = score_base_rates(calibration, priors)
        self._ends = scores.axis.ends()

    def events(self) -> list[DecodedEvent]:
        """All steps."""
        if self.options.gap_merge is not None:
            return self._merged_events(self.options.gap_merge)
        regions, p = self.regions()
        anatomy = [*regions, *self.landmarks(self._gate(p, regions), regions)]
        anatomy.sort(key=lambda run: (run.start, COLUMN[run.label]))
        guarantee = promised_recall(self.options, self.calibration)
        if guarantee is not None:
            findings = self.promised_findings(regions, guarantee)
        else:
            smoothed = self.smooth(regions, self.windows())
            findings = self.rank(self.findings(smoothed, regions))
        events = [self._event(run, regions) for run in (*anatomy, *findings)]
        return drop_silent(events, self.calibration) if self.options.silence else events

    def _merged_events(self, options: GapMergeOptions) -> list[DecodedEvent]:
        """Every label on its own; regions may overlap, and an event lies in most of one."""
        runs = gap_merge_runs(self.p, self.frame_calibration.thresholds, options)
        runs.sort(key=lambda run: (run.label in FINDINGS, run.start, COLUMN[run.label]))
        regions = [run for run in runs if run.label in REGIONS]
        return [self._event(run, regions) for run in runs]

    def regions(self) -> tuple[list[DecodedRun], NDArray[np.float32]]:
        """Regions, and the (rows, 17) probabilities in which landmarks are sought."""
        count = len(REGIONS)
        if self.options.anatomy == "semi-Markov":
            regions = semi_markov_regions(
                self.p[:, :count],
                self.rates[:count],
                self.row_frames,
                self.options.semi_markov,
                self.kappa,
                self.priors,
            )
            return regions, self.p
        machine = self.options.state_machine
        smoothed = self.p.copy(order="F")
        smoothed[:, : len(ANATOMY)] = running_median(self.p[:, : len(ANATOMY)], machine.window)
        mouth_threshold = self.frame_calibration.thresholds[REGIONS[0]]
        return state_machine_regions(smoothed[:, :count], machine, mouth_threshold), smoothed

    def landmarks(self, p: NDArray[np.float32], regions: list[DecodedRun]) -> list[DecodedRun]:
        """Runs of the three landmarks in (rows, 17) gated probabilities."""
        options = self.options.landmarks
        runs: list[DecodedRun] = []
        for label in LANDMARKS:
            column = np.ascontiguousarray(p[:, COLUMN[label]])
            threshold = self.frame_calibration.thresholds[label]
            if options.method == "transition":
                run = landmark_at_transition(
                    label,
                    self._evidence(label, column),
                    regions,
                    self.kappa,
                    self.priors,
                    options,
                    self.row_scale,
                )
                runs += [] if run is None else [run]
            elif threshold is not None:
                allowed = rows_near_regions(column.size, label, regions, options.near)
                spans = landmark_spans(column, threshold, self.low, allowed)
                runs += [
                    DecodedRun(label, start, stop, float(mean))
                    for (start, stop), mean in zip(
                        spans.tolist(), means(column, spans), strict=True
                    )
                ]
        return runs

    def windows(self) -> dict[str, int]:
        """Full-length rows over which each finding's log-odds are averaged.

        The median run length of the label, or the window that was fitted for `clinical`.
        """
        rules = self.calibration.events
        if self.options.findings.threshold == "clinical" and rules and self.event_context is None:
            return {label: rules[label].window for label in FINDINGS}
        return {label: median_run_length(label, self.priors) for label in FINDINGS}

    def smooth(
        self, regions: Sequence[DecodedRun], windows: Mapping[str, int]
    ) -> NDArray[np.float32]:
        """(rows, 17): findings smoothed and gated; the columns of anatomy are not for use.

        `windows` count rows of a full-length study.
        """
        scaled = {label: scaled_window(rows, self.row_scale) for label, rows in windows.items()}
        smoothed = self.p.copy(order="F")
        smoothed[:, len(ANATOMY) :] = smooth_findings(self.p, self.options.findings, scaled)
        return self._gate(smoothed, regions)

    def findings(
        self, smoothed: NDArray[np.float32], regions: Sequence[DecodedRun]
    ) -> list[JudgedCandidate]:
        """Candidates by hysteresis, within the limits, by persistence, and how likely each is true.

        With an event context only those that are likely enough.
        """
        thresholds = decision_thresholds(self.options, self.calibration)
        candidates = self.candidates(smoothed, thresholds)
        context = self.event_context
        if context is None:
            return [(c, event_confidence(c, self.calibration)) for c in candidates]
        is_clinical = self.options.findings.threshold == "clinical"
        least = context.clinical if is_clinical else context.threshold
        if least is None:
            return []
        terms = self.event_terms(candidates, regions, context.scales)
        confidences = context.confidence([c.label for c in candidates], terms).tolist()
        judged = zip(candidates, confidences, strict=True)
        return [(candidate, confidence) for candidate, confidence in judged if confidence >= least]

    def candidates(
        self, smoothed: NDArray[np.float32], thresholds: Mapping[str, float | None]
    ) -> list[Candidate]:
        """Candidates at these thresholds; findings without one have none."""
        candidates: list[Candidate] = []
        for label in FINDINGS:
            threshold = thresholds.get(label)
            if threshold is not None:
                column = np.ascontiguousarray(smoothed[:, COLUMN[label]])
                candidates += find_candidates(label, column, threshold, self.low, self.row_scale)
        return select_candidates(candidates, self.options.findings, self.priors, self.row_scale)

    def event_terms(
        self,
        candidates: Sequence[Candidate],
        regions: Sequence[DecodedRun],
        scales: Sequence[float],
    ) -> NDArray[np.float64]:
        """(candidates, 3 + scales) what their confidences are made of."""
        pictures = np.array(
            [self.scores.best_row(c.label, range(c.start, c.stop)) for c in candidates], np.int64
        )
        columns = [COLUMN[candidate.label] - len(ANATOMY) for candidate in candidates]
        findings = all_log_odds(self.p[:, len(ANATOMY) :])
        around = means_at(findings, positions(self.scores), scales, pictures)
        of_region = finding_log_ratios(self.priors)
        return event_terms(
            np.array([candidate.peak for candidate in candidates]),
            np.array([(c.stop - c.start) * self.row_scale for c in candidates]),
            np.array(
                [
                    0.0 if region is None else of_region[region][label]
                    for region, label in zip(
                        regions_at(pictures, regions), [c.label for c in candidates], strict=True
                    )
                ]
            ),
            around[np.arange(len(candidates)), :, columns],
        )

    def rank(self, judged: Sequence[JudgedCandidate]) -> list[DecodedRun]:
        """Candidates, which are ordered by persistence, as scored runs in the order of the options.

        With `confidence` the score is the probability that the event is true, and both ends get a
        confidence of their own.
        """
        if self.options.findings.rank == "persistence":
            return [DecodedRun(c.label, c.start, c.stop, c.mean) for c, _ in judged]
        runs: list[DecodedRun] = []
        for label in FINDINGS:
            of_label = [(c, confidence) for c, confidence in judged if c.label == label]
            if not of_label:
                continue
            label_evidence = self._evidence(label, self.p[:, COLUMN[label]])
            starts = np.array([c.start for c, _ in of_label])
            stops = np.array([c.stop for c, _ in of_label])
            onsets = edge_confidence(label_evidence, starts, self.kappa)
            ends = edge_confidence(-label_evidence, stops, self.kappa)
            runs += [
                DecodedRun(
                    label,
                    candidate.start,
                    candidate.stop,
                    confidence,
                    float(onset),
                    float(end),
                )
                for (candidate, confidence), onset, end in zip(of_label, onsets, ends, strict=True)
            ]
        return sorted(runs, key=lambda run: (-run.score, run.start, COLUMN[run.label]))

    def promised_findings(
        self, regions: Sequence[DecodedRun], guarantee: Guarantee
    ) -> list[DecodedRun]:
        """An event around every picture that a promised recall needs."""
        options = SuspicionOptions()
        p = finding_probabilities(
            self.scores, regions, self.priors, self.calibration, options.window
        )
        rows = len(self.scores.axis)
        ranking = rank_rows(p, self.scores, options, least=guarantee.threshold, most=rows)
        return picture_runs(ranking, p, self.low, self.calibration, options)

    def _gate(self, p: NDArray[np.float32], regions: Iterable[DecodedRun]) -> NDArray[np.float32]:
        return gate(p, regions, self.priors, self.options.gate, self.options.implausible)

    def _evidence(self, label: str, column: NDArray[np.float32]) -> NDArray[np.float32]:
        return evidence(column, self.rates[COLUMN[label]], self.options.semi_markov.clip)

    def _event(self, run: DecodedRun, regions: Sequence[DecodedRun]) -> DecodedEvent:
        """The run in frames: a row holds up to the next one."""
        start, stop = int(self.scores.axis.frames[run.start]), int(self._ends[run.stop - 1])
        region = _region_of(run, regions)
        return DecodedEvent(start, stop, run.label, run.score, region, run.onset, run.end)


def lower_share(options: DecodeOptions, calibration: Calibration) -> float:
    """The lower threshold of findings and landmarks as a share of the upper one."""
    return _first_set(options.findings.low, calibration.low, DEFAULT_LOW)


def _first_set(option: float | None, fitted: float | None, default: float) -> float:
    """The option, else the fitted value, else the default; 0 is a value."""
    if option is not None:
        return option
    return default if fitted is None else fitted


def _region_of(run: DecodedRun, regions: Iterable[DecodedRun]) -> str | None:
    """The region that most rows of a run lie in."""
    shared = [
        (min(run.stop, region.stop) - max(run.start, region.start), COLUMN[region.label])
        for region in regions
    ]
    rows, column = max(shared, default=(0, 0))
    return LABELS[column] if rows > 0 else None


def drop_silent(events: Sequence[DecodedEvent], calibration: Calibration) -> list[DecodedEvent]:
    """The events without those of labels for which silence scores better, in their order."""
    best: dict[str, float] = {}
    for event in events:
        best[event.label] = max(best.get(event.label, 0.0), event.score or 0.0)
    emitted = {
        label
        for label, score in best.items()
        if is_worth_emitting(calibration.silence[label], score)
    }
    return [event for event in events if event.label in emitted]


def is_worth_emitting(statistics: Silence, best_score: float) -> bool:
    """Whether E[AP | present] > (1 - pi) / pi.

    Emitting is worth pi * E[AP], silence 1 - pi: an absent label scores 1 only if left out.
    """
    pi = presence_probability(statistics, best_score)
    return pi * statistics.expected_ap > 1 - pi


def presence_probability(statistics: Silence, best_score: float) -> float:
    """pi: probability that the study shows the label, given its most confident event in it."""
    return probability(statistics.intercept + statistics.slope * log_odds(best_score))


def frame_calibration(options: DecodeOptions, calibration: Calibration) -> FrameCalibration:
    """The calibration of frames that the options name."""
    return getattr(calibration, options.calibration)


def event_context(options: DecodeOptions, calibration: Calibration) -> EventContext | None:
    """What judges events by what surrounds them; None where thresholds alone decide."""
    if options.gap_merge is not None or options.findings.threshold == "frames":
        return None
    if options.findings.rank != "confidence" or promised_recall(options, calibration) is not None:
        return None
    return calibration.event_context


def promised_recall(options: DecodeOptions, calibration: Calibration) -> Guarantee | None:
    """The promise that decides which findings are emitted; None: thresholds decide."""
    return calibration.guarantee if options.findings.threshold == "clinical" else None


def decision_thresholds(options: DecodeOptions, calibration: Calibration) -> Thresholds:
    """The threshold of each label, as decoding uses it; None: the label is never reported.

    With a promised recall findings have no thresholds, and are left out.
    """
    frames = frame_calibration(options, calibration).thresholds
    if promised_recall(options, calibration) is not None:
        return {label: threshold for label, threshold in frames.items() if label not in FINDINGS}
    kind, rules = options.findings.threshold, calibration.events
    context = event_context(options, calibration)
    if context is not None:
        return {**frames, **dict.fromkeys(FINDINGS), **context.candidates}
    if kind == "frames" or (kind == "events" and not rules):
        return frames
    of_events = {
        label: rule.threshold if kind == "events" else rule.clinical
        for label, rule in rules.items()
    }
    return {**frames, **of_events}
