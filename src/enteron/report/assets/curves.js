// Scores of the study: 8 bits each, with levels of minimum and maximum over 4, 16, … rows, so that
// a curve of any length is drawn from a few values per pixel.
const study = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const LABELS = 17;
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const high = bytes(data.high);
  const low = data.low === null ? high : bytes(data.low);
  const levels = [{ size: data.bucket, count: high.length / LABELS, high, low }];
  while (levels[levels.length - 1].count > 512) {
    const under = levels[levels.length - 1];
    const count = Math.ceil(under.count / 4);
    const level = { size: under.size * 4, count, high: new Uint8Array(count * LABELS), low: new Uint8Array(count * LABELS) };
    for (let label = 0; label < LABELS; label++) {
      for (let at = 0; at < count; at++) {
        const first = label * under.count + 4 * at;
        const last = label * under.count + Math.min(4 * at + 4, under.count);
        let least = 255, most = 0;
        for (let i = first; i < last; i++) {
          if (under.low[i] < least) least = under.low[i];
          if (under.high[i] > most) most = under.high[i];
        }
        level.low[label * count + at] = least;
        level.high[label * count + at] = most;
      }
    }
    levels.push(level);
  }
  const length = Math.max(1, data.end - data.first);

  // The row that holds at a frame; where none does, the first one after it, and inside is false.
  const find = (frame) => {
    let from = 0, to = data.runs.length - 1;
    while (from < to) {
      const middle = (from + to + 1) >> 1;
      if (data.runs[middle][1] <= frame) from = middle; else to = middle - 1;
    }
    const [row, start] = data.runs[from];
    const next = from + 1 < data.runs.length ? data.runs[from + 1][0] : data.rows;
    const at = row + Math.floor((frame - start) / data.step);
    if (at < row) return { row, inside: false };
    return at < next ? { row: at, inside: true } : { row: next, inside: false };
  };
  const rowAt = (frame) => { const { row, inside } = find(frame); return inside ? row : -1; };
  // Rows [from, to) of the frames from start to stop; none inside a gap.
  const rowsIn = (start, stop) => {
    const last = find(stop - 1e-9);
    return [find(start).row, last.inside ? last.row + 1 : last.row];
  };
  const frameOf = (row) => {
    let from = 0, to = data.runs.length - 1;
    while (from < to) {
      const middle = (from + to + 1) >> 1;
      if (data.runs[middle][0] <= row) from = middle; else to = middle - 1;
    }
    return data.runs[from][1] + (row - data.runs[from][0]) * data.step;
  };
  const seconds = (frame) => {
    const knots = data.times;
    if (knots === null) return null;
    let from = 0, to = knots.length - 1;
    while (from + 1 < to) {
      const middle = (from + to) >> 1;
      if (knots[middle][0] <= frame) from = middle; else to = middle;
    }
    const [[f0, t0], [f1, t1]] = [knots[from], knots[Math.min(from + 1, knots.length - 1)]];
    return f1 === f0 ? t0 : t0 + (t1 - t0) * (frame - f0) / (f1 - f0);
  };
  // Least and greatest value of a label over rows [from, to): [least, greatest], 0 to 255.
  const range = (label, from, to, level) => {
    const base = label * level.count;
    const first = Math.min(level.count - 1, Math.floor(from / level.size));
    const last = Math.min(level.count, Math.max(first + 1, Math.ceil(to / level.size)));
    let least = 255, most = 0;
    for (let i = base + first; i < base + last; i++) {
      if (level.low[i] < least) least = level.low[i];
      if (level.high[i] > most) most = level.high[i];
    }
    return [least, most];
  };
  const levelFor = (rows) => {
    let best = levels[0];
    for (const level of levels) if (level.size * 2 <= rows) best = level;
    return best;
  };
  return { ...data, LABELS, length, levels, rowAt, rowsIn, frameOf, seconds, range, levelFor };
})();

const clockText = (seconds) => {
  const whole = Math.floor(seconds + 1e-6);
  const two = (n) => String(n).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
};
const grouped = (n) => Math.round(n).toLocaleString("en-US");
