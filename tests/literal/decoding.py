"""The paper's decoder as its text reads, frame by frame, on plain lists.

It shares no code with `enteron.decoding`. The benchmark `decode` measures against it.
"""

import itertools
import math

REGIONS = ["mouth", "esophagus", "stomach", "small intestine", "colon"]
LANDMARKS = {
    "z-line": ("esophagus", "stomach"),
    "pylorus": ("stomach", "small intestine"),
    "ileocecal valve": ("small intestine", "colon"),
}
FINDINGS = [
    "active bleeding", "angiectasia", "blood", "erosion", "erythema", "hematin",
    "lymphangioectasis", "polyp", "ulcer",
]  # fmt: skip


def median_filter(values, window):
    """Stage 1: the median of the window around every frame; the edge value is held outside."""
    half = window // 2
    result = []
    for i in range(len(values)):
        around = [values[min(max(j, 0), len(values) - 1)] for j in range(i - half, i + half + 1)]
        result.append(sorted(around)[half])
    return result


def state_machine(p, tau=200, strict=False, backdate=False):
    """Stage 2: the state at every frame; `p` is a list of frames of five probabilities."""
    s, k, last, states = 0, 0, None, []
    for i, row in enumerate(p):
        best = s
        for j in range(s, 5):
            if row[j] > row[best]:
                best = j
        if best > s:
            if strict and best != last:
                k = 0
            k += 1
            last = best
            if k == tau:
                s, k, last = best, 0, None
                if backdate:
                    for earlier in range(i - tau + 1, i):
                        states[earlier] = s
        else:
            k, last = 0, None
        states.append(s)
    return states


def hysteresis(p, high, low):
    """Stage 3: seeds at or above `high`, grown to both sides while at or above `low`."""
    inside = [False] * len(p)
    for i in range(len(p)):
        if p[i] >= high:
            j = i
            while j >= 0 and p[j] >= low:
                inside[j] = True
                j -= 1
            j = i
            while j < len(p) and p[j] >= low:
                inside[j] = True
                j += 1
    events, start = [], None
    for i in range(len(p) + 1):
        on = i < len(p) and inside[i]
        if on and start is None:
            start = i
        if not on and start is not None:
            events.append((start, i))
            start = None
    return events


def persistence(p, event):
    """S(e) = mean p times ln(1 + d), d = t_e - t_s with inclusive ends."""
    start, stop = event
    mean = sum(p[start:stop]) / (stop - start)
    return mean * math.log(1 + (stop - 1 - start))


def gate(p, regions, shares, label):
    """One label's probabilities times 0.3 where its region shows it on less than 0.1 %."""
    result = []
    for value, region in zip(p, regions, strict=True):
        implausible = region is not None and shares[region].get(label, 0.0) < 0.001
        result.append(value * 0.3 if implausible else value)
    return result


def decode(columns, thresholds, shares):
    """The whole `paper` preset; `columns` maps labels to lists. Returns (label, start, stop)."""
    smooth = {}
    for label, values in columns.items():
        smooth[label] = median_filter(values, 25 if label in FINDINGS else 51)
    rows = len(next(iter(columns.values())))
    states = state_machine([[smooth[r][i] for r in REGIONS] for i in range(rows)])
    events = []
    for state, group in itertools.groupby(range(rows), key=lambda i: states[i]):
        frames = list(group)
        region = REGIONS[state]
        if region == "mouth":
            mean = sum(smooth["mouth"][i] for i in frames) / len(frames)
            if mean < thresholds["mouth"]:
                continue
        events.append((region, frames[0], frames[-1] + 1))
    regions = [None] * rows
    for region, start, stop in events:
        for i in range(start, stop):
            regions[i] = region
    for label, between in LANDMARKS.items():
        p = gate(smooth[label], regions, shares, label)
        near = [False] * rows
        for region, start, stop in events:
            if region in between:
                for i in range(max(0, start - 50), min(rows, stop + 50)):
                    near[i] = True
        p = [value if near[i] else 0.0 for i, value in enumerate(p)]
        h = thresholds[label]
        events += [(label, a, b) for a, b in hysteresis(p, h, 0.7 * h)]
    candidates = []
    for label in FINDINGS:
        p = gate(smooth[label], regions, shares, label)
        h = thresholds[label]
        for a, b in hysteresis(p, h, 0.7 * h):
            score = persistence(p, (a, b))
            if score >= 2.0 and b - 1 - a <= 3000:
                candidates.append((-score, a, FINDINGS.index(label), label, b))
    candidates.sort()
    return events + [(label, a, b) for _, a, _, label, b in candidates[:40]]
