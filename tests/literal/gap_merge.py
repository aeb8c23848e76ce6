"""The prior submission's decoder as decision 32 describes it, row by row, on plain lists.

It shares no code with `enteron.decoding`.
"""


def smooth(active, window):
    """Median of 0 and 1 around every row; beyond its ends the list is mirrored, edge included."""
    rows, half, result = len(active), window // 2, []
    for row in range(rows):
        around = []
        for position in range(row - half, row + half + 1):
            while not 0 <= position < rows:
                position = -1 - position if position < 0 else 2 * rows - 1 - position
            around.append(active[position])
        result.append(sorted(around)[half])
    return result


def drop_short(active, shortest):
    result = list(active)
    row = 0
    while row < len(result):
        stop = row
        while stop < len(result) and result[stop] == 1:
            stop += 1
        if stop - row < shortest:
            result[row:stop] = [0] * (stop - row)
        row = max(stop, row + 1)
    return result


def close_gaps(active, gap):
    result = list(active)
    end = None  # first row after the last run
    for row, value in enumerate(active):
        if value == 1:
            if end is not None and 0 < row - end <= gap:
                result[end:row] = [1] * (row - end)
            end = row + 1
    return result


def label_set_events(columns):
    """(first row, row after the last, labels) for every run of rows with one label set."""
    events, start, rows = [], 0, len(next(iter(columns.values())))

    def labels_at(row):
        return tuple(label for label in columns if columns[label][row] == 1)

    for row in range(1, rows + 1):
        if row == rows or labels_at(row) != labels_at(start):
            if labels_at(start):
                events.append((start, row, labels_at(start)))
            start = row
    return events


def decode(columns, thresholds, window=7, shortest=3, gap=5):
    """Events with their label sets, in time order; `columns` maps labels to lists of scores."""
    active = {}
    for label, values in columns.items():
        on = [int(value >= thresholds[label]) for value in values]
        active[label] = close_gaps(drop_short(smooth(on, window), shortest), gap)
    return label_set_events(active)
