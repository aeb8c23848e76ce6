"""Fitting what concerns the way through the regions: presence, durations, back-steps."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from enteron.labels import FINDINGS, LANDMARKS, REGIONS
from enteron.priors import published as galar
from enteron.priors.latent import NOTICEABLE, fit_latent, proper_correlation, to_table
from enteron.priors.observed import Observed
from enteron.priors.sizes import significant
from enteron.priors.value import (
    BackSteps,
    BestShare,
    Duration,
    LogNormal,
    Presence,
    Regions,
    Share,
    Table,
)


def fit_presence(
    studies: Sequence[Observed], needs: dict[str, tuple[str, ...]], source: str, published: bool
) -> Presence:
    """Shares of studies, and how the presences of labels hang together.

    `needs` names the regions without which a landmark cannot be.
    """
    labels = [*REGIONS, *LANDMARKS, *FINDINGS]
    present = np.array([[study.shows(label) for label in labels] for study in studies])
    latent: Table = {}
    for group in (REGIONS, LANDMARKS + FINDINGS):
        columns = [labels.index(label) for label in group]
        possible = np.ones((len(studies), len(group)), dtype=np.bool_)
        for place, label in enumerate(group):
            for region in needs.get(label, ()):
                possible[:, place] &= present[:, labels.index(region)]
        latent |= to_table(fit_latent(present[:, columns], possible), group)
    used = f"shares: {galar.SOURCE}, with the fitted ones beside them; " if published else ""
    return Presence(
        source=f"{used}{'the rest' if published else 'all'}: {source}",
        unit="studies; latent: correlation of the Gaussian variables behind the presences",
        labels={
            label: BestShare(
                fitted=Share(count=int(present[:, i].sum()), n=len(studies)),
                published=galar.PRESENCE[label] if published else None,
            )
            for i, label in enumerate(labels)
        },
        latent=latent,
    )


def fit_regions(studies: Sequence[Observed], source: str, published: bool) -> Regions:
    """Total stays, their correlation, and rows without a region."""
    rows = np.array([np.bincount(s.region[s.region >= 0], minlength=5) for s in studies])
    frames = rows * np.array([[s.stride] for s in studies])
    durations = {
        region: Duration(
            fitted=fit_log_normal(frames[frames[:, i] > 0, i].tolist()),
            published=galar.DURATIONS[region] if published else None,
        )
        for i, region in enumerate(REGIONS)
    }
    beside = " (the published medians and spreads stand beside and are not used)"
    return Regions(
        source=source + (beside if published else ""),
        unit="original frames (rows times stride), natural logarithms; without: rows",
        durations=durations,
        correlation=to_table(_log_correlation(frames), REGIONS),
        without=Share(
            count=sum(int((s.region < 0).sum()) for s in studies),
            n=sum(s.region.size for s in studies),
        ),
    )


def fit_log_normal(frames: Sequence[float]) -> LogNormal:
    """Mean and spread of the logarithms."""
    if not frames:
        return LogNormal(n=0, log_mean=0, log_sd=0, median=1)
    logs = np.log(frames)
    return LogNormal(
        n=len(frames),
        log_mean=round(float(logs.mean()), 4),
        log_sd=round(float(logs.std(ddof=1)), 4) if len(frames) > 1 else 0.0,
        median=significant(float(np.median(frames)), 6),
    )


def _log_correlation(frames: np.ndarray) -> np.ndarray:
    k = frames.shape[1]
    matrix = np.eye(k)
    for a in range(k):
        for b in range(a):
            seen = (frames[:, a] > 0) & (frames[:, b] > 0)
            if seen.sum() < 3:
                continue
            logs = np.log(frames[seen][:, [a, b]])
            if logs.std(axis=0).min() == 0:
                continue
            r = float(np.corrcoef(logs.T)[0, 1])
            if abs(r) * math.sqrt(seen.sum()) >= NOTICEABLE:
                matrix[a, b] = matrix[b, a] = r
    return proper_correlation(matrix)


def fit_back_steps(studies: Sequence[Observed], source: str, published: bool) -> BackSteps:
    """Steps from a region to an earlier one.

    Around a step back lie a stay in the later region and one in the earlier. One of the two is
    usually short, a glance ahead or a glance back; so the shorter and the longer are fitted.
    """
    shorter: list[float] = []
    longer: list[float] = []
    early = steps = showing = 0
    borders: dict[str, int] = dict.fromkeys(REGIONS[1:], 0)
    for study in studies:
        stays = study.stays()
        crossed: set[str] = set()
        for (region, start, stop), (back, begin, end) in itertools.pairwise(stays):
            if back >= region:
                continue
            later, earlier = (stop - start) * study.stride, (end - begin) * study.stride
            shorter.append(min(later, earlier))
            longer.append(max(later, earlier))
            early += later <= earlier
            steps += 1
            crossed.add(REGIONS[region])
        showing += bool(crossed)
        for region in crossed:
            borders[region] += 1
    used = f"studies and steps: {galar.SOURCE}; the rest: " if published else ""
    return BackSteps(
        source=used + source,
        unit="studies, steps; shorter, longer: original frames, natural logarithms",
        studies=BestShare(
            fitted=Share(count=showing, n=len(studies)),
            published=galar.BACK_STEP_STUDIES if published else None,
        ),
        steps=steps,
        published_steps=galar.BACK_STEPS if published else None,
        shorter=fit_log_normal(shorter),
        longer=fit_log_normal(longer),
        early=Share(count=early, n=max(steps, 1)),
        borders={r: Share(count=c, n=max(showing, 1)) for r, c in borders.items() if c},
    )
