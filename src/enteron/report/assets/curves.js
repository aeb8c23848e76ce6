// Scores of the study in 8 bits, with levels of minimum and maximum over 4, 16, … rows, so that a
// curve of any length is drawn from a few values per pixel; and the frames and times of its rows.
/**
 * @typedef {object} Level
 * @property {number} size rows in a bucket
 * @property {number} count buckets
 * @property {Uint8Array} high
 * @property {Uint8Array} low
 */
/**
 * @typedef {object} StudyData what `curve_data` in report/timeline.py gives
 * @property {number} rows
 * @property {number} bucket
 * @property {string | Uint8Array} high base64, or the bytes themselves
 * @property {string | Uint8Array | null} low
 * @property {number} step
 * @property {number} first
 * @property {number} end
 * @property {[number, number][]} runs
 * @property {[number, number][] | null} times
 * @property {string} word
 */
/** @typedef {ReturnType<typeof makeStudy>} Study */

/** @param {StudyData} data */
export const makeStudy = (data) => {
  const LABELS = 17;
  /** @param {string | Uint8Array} text */
  const bytes = (text) => typeof text === "string" ? Uint8Array.from(atob(text), (c) => c.charCodeAt(0)) : text;
  const high = bytes(data.high);
  const low = data.low === null ? high : bytes(data.low);
  /** @type {Level[]} */
  const levels = [{ size: data.bucket, count: high.length / LABELS, high, low }];
  while (levels[levels.length - 1].count > 512) {
    const finer = levels[levels.length - 1];
    const count = Math.ceil(finer.count / 4);
    const level = { size: finer.size * 4, count, high: new Uint8Array(count * LABELS), low: new Uint8Array(count * LABELS) };
    for (let label = 0; label < LABELS; label++) {
      for (let bucket = 0; bucket < count; bucket++) {
        const first = label * finer.count + 4 * bucket;
        const last = label * finer.count + Math.min(4 * bucket + 4, finer.count);
        let least = 255, most = 0;
        for (let i = first; i < last; i++) {
          if (finer.low[i] < least) least = finer.low[i];
          if (finer.high[i] > most) most = finer.high[i];
        }
        level.low[label * count + bucket] = least;
        level.high[label * count + bucket] = most;
      }
    }
    levels.push(level);
  }
  const length = Math.max(1, data.end - data.first);

  // Index of the last run (a pair of row and frame) whose row (key 0) or frame (key 1) is not above a value.
  /** @param {number} value @param {0 | 1} key */
  const runBefore = (value, key) => {
    let from = 0, to = data.runs.length - 1;
    while (from < to) {
      const middle = (from + to + 1) >> 1;
      if (data.runs[middle][key] <= value) from = middle; else to = middle - 1;
    }
    return from;
  };
  // The row that holds at a frame; in a gap the first row after it, and inside is false.
  /** @param {number} frame */
  const find = (frame) => {
    const run = runBefore(frame, 1);
    const [first, start] = data.runs[run];
    const next = run + 1 < data.runs.length ? data.runs[run + 1][0] : data.rows;
    const row = first + Math.floor((frame - start) / data.step);
    if (row < first) return { row: first, inside: false };
    return row < next ? { row, inside: true } : { row: next, inside: false };
  };
  /** @param {number} frame */
  const rowAt = (frame) => { const { row, inside } = find(frame); return inside ? row : -1; };
  // Rows [from, to) of the frames from start to stop; none inside a gap.
  /** @param {number} start @param {number} stop */
  const rowsIn = (start, stop) => {
    const last = find(stop - 1e-9);
    return [find(start).row, last.inside ? last.row + 1 : last.row];
  };
  /** @param {number} row */
  const frameOf = (row) => {
    const [first, start] = data.runs[runBefore(row, 0)];
    return start + (row - first) * data.step;
  };
  // Linear interpolation between knots, which are pairs of frame and seconds: from frames to seconds
  // (key 0), or from seconds to frames (key 1). Null where the study has no times.
  /** @param {number} value @param {0 | 1} key @returns {number | null} */
  const interpolate = (value, key) => {
    const knots = data.times;
    if (knots === null) return null;
    let from = 0, to = knots.length - 1;
    while (from + 1 < to) {
      const middle = (from + to) >> 1;
      if (knots[middle][key] <= value) from = middle; else to = middle;
    }
    const left = knots[from], right = knots[to], other = key === 0 ? 1 : 0;
    if (left[key] === right[key]) return left[other];
    return left[other] + (right[other] - left[other]) * (value - left[key]) / (right[key] - left[key]);
  };
  /** @param {number} frame */
  const seconds = (frame) => interpolate(frame, 0);
  /** @param {number} time */
  const frameAtTime = (time) => interpolate(time, 1);
  // Least and greatest value of a label over rows [from, to): [least, greatest], 0 to 255.
  /** @param {number} label @param {number} from @param {number} to @param {Level} level */
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
  /** @param {number} rows */
  const levelFor = (rows) => {
    let best = levels[0];
    for (const level of levels) if (level.size * 2 <= rows) best = level;
    return best;
  };
  return { ...data, LABELS, length, levels, rowAt, rowsIn, frameOf, seconds, frameAtTime, range, levelFor };
};

/** @param {number} number */
const twoDigits = (number) => String(number).padStart(2, "0");
// A moment as h:mm:ss.
/** @param {number} seconds */
export const timestamp = (seconds) => {
  const whole = Math.floor(seconds + 1e-6);
  return `${Math.floor(whole / 3600)}:${twoDigits(Math.floor(whole / 60) % 60)}:${twoDigits(whole % 60)}`;
};
// A label of the time axis, in the unit that fits a scale which ends at a time: s, min or h.
/** @param {number} seconds @param {number} end */
export const axisTime = (seconds, end) => {
  const whole = Math.round(seconds);
  if (end < 120) return `${whole} s`;
  const minutes = Math.floor(whole / 60), rest = whole % 60;
  if (end < 3600) return rest ? `${minutes}:${twoDigits(rest)} min` : `${minutes} min`;
  return rest ? timestamp(whole) : `${Math.floor(minutes / 60)}:${twoDigits(minutes % 60)} h`;
};
/** @param {number} number */
export const grouped = (number) => Math.round(number).toLocaleString("en-US");
