"""Lesion metrics as literal loops over frames, lists and dictionaries, to compare ours with."""


def lesions(segments, finding, gap):
    """[start, stop) of each lesion; `segments` are (start, stop, labels) in any order."""
    frames = set()
    for start, stop, labels in segments:
        if finding in labels:
            frames.update(range(start, stop))
    found = []
    for frame in sorted(frames):
        # Frames missing between the last one and this one: frame - last - 1.
        if found and frame - found[-1][1] <= gap:
            found[-1][1] = frame + 1
        else:
            found.append([frame, frame + 1])
    return [tuple(lesion) for lesion in found]


def detection(lesions_by_finding, events, threshold, any_finding=False):
    """(found lesions, shown events, false events); events are (finding, frame, confidence)."""
    shown = [event for event in events if event[2] >= threshold]

    def shows(event, finding, lesion):
        return (any_finding or event[0] == finding) and lesion[0] <= event[1] < lesion[1]

    everything = [(f, lesion) for f, spans in lesions_by_finding.items() for lesion in spans]
    found = [one for one in everything if any(shows(event, *one) for event in shown)]
    false = [event for event in shown if not any(shows(event, *one) for one in everything)]
    return found, shown, false


def flagged(spans):
    """How many frames lie in at least one [start, stop)."""
    return len({frame for start, stop in spans for frame in range(start, stop)})


def fold(ranked, distance=0, source=None, most=None):
    """The ranked list without frames near a kept one, or of the source of a kept one."""
    kept = []  # ranks
    for rank, frame in enumerate(ranked):
        near = any(abs(frame - ranked[other]) <= distance for other in kept)
        alike = source is not None and source[rank] in [source[other] for other in kept]
        if not near and not alike:
            kept.append(rank)
    return [ranked[rank] for rank in kept][:most]


def runs(scores, threshold):
    """[start, stop) of every run of frames at or above the threshold."""
    found, start = [], None
    for frame, score in enumerate([*scores, None]):
        if score is not None and score >= threshold:
            start = frame if start is None else start
        elif start is not None:
            found.append((start, frame))
            start = None
    return found


def psd_counts(detections, truth, others, dtc, gtc, cttc):
    """True positives, false positives, and cross-triggers by finding, of one study."""

    def shared(a, b):
        return max(0, min(a[1], b[1]) - max(a[0], b[0]))

    def length(a):
        return a[1] - a[0]

    def inside(detection, spans):
        return sum(shared(detection, span) for span in spans)

    relevant = [d for d in detections if inside(d, truth) >= dtc * length(d) - 1e-7]
    false = [d for d in detections if d not in relevant]
    true = [t for t in truth if inside(t, relevant) >= gtc * length(t) - 1e-7]
    crossed = {
        other: sum(inside(d, spans) >= cttc * length(d) - 1e-7 for d in false)
        for other, spans in others.items()
    }
    return len(true), len(false), crossed


def isotonic_at(x, y, at):
    """Isotonic regression at one of the x by its max-min formula; equal x share one value."""

    def mean(low, high):
        inside = [b for a, b in zip(x, y, strict=True) if low <= a <= high]
        return sum(inside) / len(inside)

    distinct = sorted(set(x))
    return max(
        min(mean(low, high) for high in distinct if high >= at) for low in distinct if low <= at
    )


def venn_abers(x, y, at):
    """(p0, p1): isotonic regression at `at` with the point added as a 0, and as a 1."""
    return tuple(isotonic_at([*x, at], [*y, label], at) for label in (0, 1))
