// Decoded frames near the place that is shown: a bounded number, fetched ahead in batches by a worker.

/** @typedef {{ bitmap: ImageBitmap | null, flag: number }} Shown */

const MOST = 72; // decoded frames that are kept; a frame of 512 x 512 takes 1 MB
const BATCH = 16;
const AT_ONCE = 2; // batches under way
const RETRY = 1500; // ms after which a frame that was not there is asked for again

export class FrameStore {
  /** @param {string} path of the study @param {number} count of its frames */
  constructor(path, count) {
    this.path = path;
    this.count = count;
    /** @type {Map<number, Shown>} in the order of use */
    this.held = new Map();
    /** @type {Map<number, { positions: number[] }>} batches under way */
    this.batches = new Map();
    /** @type {Set<number>} positions under way */
    this.coming = new Set();
    /** @type {Map<number, number>} when an absent frame may be asked for again */
    this.absent = new Map();
    this.number = 0;
    /** @type {Set<() => void>} */
    this.listeners = new Set();
    this.worker = new Worker("/assets/frame-worker.js");
    this.worker.addEventListener("message", ({ data }) => this.arrived(data));
  }

  /** @param {number} position */
  get(position) {
    const shown = this.held.get(position);
    if (shown) { this.held.delete(position); this.held.set(position, shown); }
    return shown;
  }

  /** @param {number} position */
  has(position) { return this.held.has(position); }

  /**
   * Ask for positions, the first ones first; with `urgent` whatever is under way elsewhere is dropped.
   * @param {number[]} positions @param {boolean} [urgent]
   */
  want(positions, urgent = false) {
    const now = performance.now();
    const missing = positions.filter((position) => position >= 0 && position < this.count
      && !this.held.has(position) && !this.coming.has(position) && (this.absent.get(position) ?? 0) <= now);
    if (urgent && missing.length) this.cancel();
    while (missing.length && (urgent || this.batches.size < AT_ONCE)) {
      const first = missing[0];
      const run = [first];
      const step = missing.length > 1 ? missing[1] - first : 1;
      // A batch is a run of even steps; playing backwards is fetched in ascending order.
      if (step >= 1) {
        while (run.length < BATCH && missing[run.length] === first + run.length * step) run.push(missing[run.length]);
        this.fetch(first, run.length, step, run);
      } else {
        while (run.length < BATCH && missing[run.length] === first - run.length) run.push(missing[run.length]);
        this.fetch(run[run.length - 1], run.length, 1, run);
      }
      missing.splice(0, run.length);
      if (urgent) break;
    }
  }

  /** @param {number} start @param {number} count @param {number} step @param {number[]} positions */
  fetch(start, count, step, positions) {
    const id = ++this.number;
    this.batches.set(id, { positions });
    for (const position of positions) this.coming.add(position);
    this.worker.postMessage({ id, url: `${this.path}/frames?start=${start}&count=${count}&step=${step}` });
  }

  cancel() {
    for (const [id, { positions }] of this.batches) {
      this.worker.postMessage({ cancel: id });
      for (const position of positions) this.coming.delete(position);
    }
    this.batches.clear();
  }

  /** @param {{ id: number, frames?: { position: number, flag: number, bitmap: ImageBitmap | null }[], failed?: string }} data */
  arrived({ id, frames, failed }) {
    const batch = this.batches.get(id);
    this.batches.delete(id);
    for (const position of batch?.positions ?? []) this.coming.delete(position);
    if (failed !== undefined) {
      if (failed !== "cancelled") for (const position of batch?.positions ?? []) this.absent.set(position, performance.now() + RETRY);
    }
    for (const { position, flag, bitmap } of frames ?? []) {
      if (flag === 2) { // no picture now: the study may be found in a moment
        this.absent.set(position, performance.now() + RETRY);
        if (this.held.has(position)) continue;
      }
      this.held.get(position)?.bitmap?.close();
      this.held.delete(position);
      this.held.set(position, { bitmap, flag });
      if (flag === 2) setTimeout(() => { if (this.held.get(position)?.flag === 2) this.held.delete(position); }, RETRY);
    }
    while (this.held.size > MOST) {
      const [oldest, shown] = /** @type {[number, Shown]} */ (this.held.entries().next().value);
      shown.bitmap?.close();
      this.held.delete(oldest);
    }
    for (const listener of this.listeners) listener();
  }

  /** Put another picture in place of one. @param {number} position @param {Blob} jpeg */
  async replace(position, jpeg) {
    const bitmap = await createImageBitmap(jpeg);
    this.held.get(position)?.bitmap?.close();
    this.held.set(position, { bitmap, flag: 0 });
    for (const listener of this.listeners) listener();
  }

  /** Drop everything, for instance since the study itself was found. */
  forget() {
    this.cancel();
    for (const { bitmap } of this.held.values()) bitmap?.close();
    this.held.clear();
    this.absent.clear();
    for (const listener of this.listeners) listener();
  }
}
