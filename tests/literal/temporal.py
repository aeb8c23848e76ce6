"""The official score written as its text reads, step by step, on the official JSON.

It shares no code with `enteron.metrics`, whose tests and benchmark compare with it.
"""

LABELS = [
    "mouth", "esophagus", "stomach", "small intestine", "colon",
    "z-line", "pylorus", "ileocecal valve",
    "active bleeding", "angiectasia", "blood", "erosion", "erythema", "hematin",
    "lymphangioectasis", "polyp", "ulcer",
]  # fmt: skip


def tiou(a, b):
    """Overlap over union of two (start, end) segments, counting inclusive frames."""
    overlap = min(a[1], b[1]) - max(a[0], b[0]) + 1
    if overlap <= 0:
        return 0.0
    union = (a[1] - a[0] + 1) + (b[1] - b[0] + 1) - overlap
    return overlap / union


def segments_of(events, label):
    return [(event["start"], event["end"]) for event in events if label in event["label"]]


def average_precision(truth, predicted, threshold):
    if not truth:
        return 1.0 if not predicted else 0.0
    matched = [False] * len(truth)
    true_positives = 0
    ap = 0.0
    recall_before = 0.0
    for rank, segment in enumerate(predicted, start=1):
        for position, candidate in enumerate(truth):
            if not matched[position] and tiou(segment, candidate) >= threshold:
                matched[position] = True
                true_positives += 1
                break
        precision = true_positives / rank
        recall = true_positives / len(truth)
        ap += precision * (recall - recall_before)
        recall_before = recall
    return ap


def temporal_map(truth, prediction, threshold):
    """Overall mAP, and the mAP of each study; both arguments as in the official JSON."""
    predicted = {video["video_id"]: video["events"] for video in prediction["videos"]}
    studies = {}
    for video in truth["videos"]:
        events = predicted[video["video_id"]]
        aps = [
            average_precision(
                segments_of(video["events"], label), segments_of(events, label), threshold
            )
            for label in LABELS
        ]
        studies[video["video_id"]] = sum(aps) / len(aps)
    return sum(studies.values()) / len(studies), studies
