"""Fitting all priors to annotated studies."""

from collections import Counter
from collections.abc import Mapping, Sequence

from enteron.priors.fit_findings import fit_cooccurrence, fit_findings, fit_given_region
from enteron.priors.fit_landmarks import fit_landmarks
from enteron.priors.fit_transit import fit_back_steps, fit_presence, fit_regions
from enteron.priors.observed import Observed, observe
from enteron.priors.value import Priors
from enteron.types import Annotation, IndexUnit


def fit_priors(
    annotations: Sequence[Annotation[IndexUnit]],
    strides: Mapping[str, int],
    source: str,
    published: bool = False,
) -> Priors:
    """Priors of annotated studies; `strides` gives each study's original frames per row.

    With `published`, the figures known of all 80 Galar studies are put beside the fitted ones.
    """
    return fit_observed(observe(annotations, strides), source, published)


def fit_observed(studies: Sequence[Observed], source: str, published: bool = False) -> Priors:
    """Priors of studies that already are matrices."""
    landmarks = fit_landmarks(studies, source, published)
    needs = {label: landmark.needs for label, landmark in landmarks.labels.items()}
    strides = Counter(study.stride for study in studies)
    return Priors(
        source=source,
        studies=len(studies),
        rows=sum(study.region.size for study in studies),
        strides={str(stride): count for stride, count in sorted(strides.items())},
        presence=fit_presence(studies, needs, source, published),
        regions=fit_regions(studies, source, published),
        back_steps=fit_back_steps(studies, source, published),
        landmarks=landmarks,
        findings=fit_findings(studies, source),
        cooccurrence=fit_cooccurrence(studies, source),
        given_region=fit_given_region(studies, source),
    )
