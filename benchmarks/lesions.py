"""Lesions: the list of suspicious frames and every figure of one long study, and of sixty.

Truth, events, scores and embeddings are made on the spot; the literal loops of the tests are the
comparison. What comes beside decoding is meant to take less than two seconds for 130,000 frames.
"""

from functools import cached_property

import numpy as np

from benchmarks._timing import ROUNDS, timed
from enteron.decoding.suspicious import rank_suspicious
from enteron.labels import FINDINGS, LABELS
from enteron.metrics.evaluation import StudyBootstrap
from enteron.metrics.froc import detect_studies, froc, froc_points, operating_point
from enteron.metrics.lesion_evaluation import (
    ShownStudy,
    evaluate_lesions,
    summarise_lesions,
)
from enteron.metrics.lesions import Lesions, Recording, ShownEvents, detect_lesions, lesions_of
from enteron.metrics.psds import PsdsOptions, event_steps, psds, score_steps
from enteron.metrics.top_frames import TOP_FRAMES, fold_near_duplicates, rank_frames, top_recall
from enteron.types import Annotation, Event, FrameAxis, Scores, Unit
from tests.literal import lesions as literal

FRAMES = 130_000
EVENTS = 5_000
FOLD = 20  # frames


def main() -> None:
    print(f"medians of {ROUNDS} runs\n")
    one = Case(studies=1, frames=FRAMES, events=EVENTS)
    print(f"one study of {FRAMES} frames, {len(one.lesions)} lesions, {EVENTS} events")
    one.report()
    sixty = Case(studies=60, frames=20_000, events=20_000 // 60 + 1)
    shown = len(sixty.shown())
    print(f"\n60 studies of 20000 frames, {len(sixty.lesions)} lesions, {shown} events")
    sixty.report()


class Case:
    """Studies with truth, events and scores, all of them random."""

    def __init__(self, studies: int, frames: int, events: int) -> None:
        rng = np.random.default_rng(0)
        self.truth: list[Annotation] = []
        self.scores: list[Scores] = []
        self.events: dict[str, list[Event]] = {}
        self.frames: dict[str, list[int]] = {}
        for number in range(studies):
            name = str(number)
            starts = rng.integers(0, frames - 200, size=frames // 100)
            lengths = rng.integers(1, 150, size=starts.size)
            labels = rng.integers(len(FINDINGS), size=starts.size)
            true = [
                Event(int(a), int(a + n), FINDINGS[f])
                for a, n, f in zip(starts, lengths, labels, strict=True)
            ]
            self.truth.append(Annotation.from_events(name, Unit.FRAME, true))
            starts = rng.integers(0, frames - 400, size=events)
            lengths = rng.integers(1, 300, size=events)
            self.events[name] = [
                Event(int(a), int(a + n), FINDINGS[f], float(c))
                for a, n, f, c in zip(
                    starts,
                    lengths,
                    rng.integers(len(FINDINGS), size=events),
                    rng.random(events),
                    strict=True,
                )
            ]
            self.frames[name] = [int(e.start + rng.integers(len(e))) for e in self.events[name]]
            values = rng.random((frames, len(LABELS)), dtype=np.float32)
            times = np.arange(frames) / 3
            self.scores.append(Scores(name, FrameAxis(np.arange(frames)), values, times))
        self.recordings = [Recording.from_scores(scores) for scores in self.scores]
        self.bootstrap = StudyBootstrap(studies)
        self.lesions = lesions_of(self.truth, self.recordings)

    def report(self) -> None:
        fast, ranked = timed(self.figures), timed(self.top)
        print(f"lesions, FROC, operating point, studies  {1000 * fast:8.1f} ms")
        print(f"ranking, folding, recall in the top N    {1000 * ranked:8.1f} ms")
        print(f"together                                 {1000 * (fast + ranked):8.1f} ms")
        if len(self.truth) == 1:
            whole = timed(self.evaluation, 3)
            listed, folded = timed(self.suspicious, 3), timed(self.folded, 3)
            print(f"all that evaluate says of lesions, PSDS  {1000 * whole:8.1f} ms")
            print(f"list of 300 suspicious frames            {1000 * listed:8.1f} ms")
            print(f"the same, folded by embeddings           {1000 * folded:8.1f} ms")
            print(f"beyond decoding, together                {1000 * (whole + folded):8.1f} ms")
            print(
                f"detection at one threshold, literal      {1000 * timed(self.literal, 1):8.1f} ms"
            )
        steps = event_steps(self.shown())
        options = PsdsOptions(dtc=0.1, gtc=0.1, cttc=0.3, alpha_ct=0.5)
        of_events = timed(lambda: psds(self.lesions, steps, self.recordings, options), 3)
        print(f"PSDS of the events                       {1000 * of_events:8.1f} ms")
        if len(self.truth) == 1:
            frame_steps = score_steps(self.scores)
            of_frames = timed(lambda: psds(self.lesions, frame_steps, self.recordings, options), 3)
            print(f"PSDS of the frame scores                 {1000 * of_frames:8.1f} ms")

    def shown(self) -> ShownEvents:
        return ShownEvents.from_events(self.events, Unit.FRAME, self.frames)

    def figures(self) -> None:
        lesions: Lesions = lesions_of(self.truth, self.recordings)
        detection = detect_lesions(lesions, self.shown(), self.recordings)
        for finding in (None, *FINDINGS):
            froc(detection, finding)
        froc_points(detection, intervals=self.bootstrap)
        operating_point(detection, 0.5, self.bootstrap)
        detect_studies(detection, 0.5)
        detection.missed_share(np.linspace(0, 1, 1001))

    def top(self) -> None:
        ranked = {
            scores.study: fold_near_duplicates(rank_frames(scores), FOLD, most=TOP_FRAMES[-1])
            for scores in self.scores
        }
        result = top_recall(self.lesions, ranked)
        for count in TOP_FRAMES:
            for finding in (None, *FINDINGS):
                result.recall(count, self.bootstrap, finding)

    def evaluation(self) -> None:
        shown = [
            ShownStudy(
                truth,
                tuple(self.events[truth.study]),
                tuple(self.frames[truth.study]),
                recording,
                np.arange(0, FRAMES, FRAMES // 300),
            )
            for truth, recording in zip(self.truth, self.recordings, strict=True)
        ]
        summarise_lesions(evaluate_lesions(self.truth, shown, self.bootstrap))

    def suspicious(self) -> None:
        rank_suspicious(self.scores[0], [])

    @cached_property
    def embeddings(self) -> np.ndarray:
        """A capsule that lies still for half of the study."""
        rng = np.random.default_rng(0)
        features = rng.normal(size=(FRAMES, 512)).astype(np.float16)
        features[FRAMES // 4 : 3 * FRAMES // 4] = features[FRAMES // 4]
        return features

    def folded(self) -> None:
        rank_suspicious(self.scores[0], [], features=self.embeddings)

    def literal(self) -> None:
        name = self.truth[0].study
        segments = [(s.start, s.stop, s.labels) for s in self.truth[0].segments]
        by_finding = {finding: literal.lesions(segments, finding, 30) for finding in FINDINGS}
        events = [
            (event.label, frame, event.score)
            for event, frame in zip(self.events[name], self.frames[name], strict=True)
        ]
        literal.detection(by_finding, events, 0.5)


if __name__ == "__main__":
    main()
