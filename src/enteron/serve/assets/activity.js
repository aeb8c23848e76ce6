// What is measured of the reading itself: seconds of active work, idle ones apart, and the frames that
// were looked at. Both are sent as notes every few seconds, and when the page goes away.

const IDLE = 30_000; // ms without a key, a movement of the pointer or a running study
const SEND = 10_000; // ms between two notes of time
const SEND_VIEWED = 4_000;

export class Activity {
  /**
   * @param {import("./review.js").Review} review @param {() => boolean} playing
   * @param {(position: number) => number} frameAt frame of a position; of the one after the last, the end
   */
  constructor(review, playing, frameAt) {
    this.review = review;
    this.playing = playing;
    this.frameAt = frameAt;
    this.active = 0;
    this.idle = 0;
    this.lastInput = performance.now();
    this.lastTick = performance.now();
    /** @type {Map<number | null, [number, number][]>} positions [from, to) by rate */
    this.viewed = new Map();
    for (const kind of ["keydown", "pointerdown", "pointermove", "wheel"]) addEventListener(kind, () => { this.lastInput = performance.now(); }, { passive: true });
    setInterval(() => this.tick(), 500);
    setInterval(() => this.sendTime(), SEND);
    setInterval(() => this.sendViewed(), SEND_VIEWED);
    addEventListener("pagehide", () => this.flush());
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.flush(); });
  }

  tick() {
    const now = performance.now(), passed = Math.min(now - this.lastTick, 5000) / 1000;
    this.lastTick = now;
    if (document.hidden) return; // another page is looked at
    if (this.playing() || now - this.lastInput < IDLE) this.active += passed; else this.idle += passed;
  }

  /** @param {number} from @param {number} to @param {number | null} rate */
  shown(from, to, rate) {
    const spans = this.viewed.get(rate) ?? [];
    const last = spans[spans.length - 1];
    if (last && from <= last[1] && to >= last[0]) { last[0] = Math.min(last[0], from); last[1] = Math.max(last[1], to); } else spans.push([from, to]);
    this.viewed.set(rate, spans);
  }

  /** @param {boolean} [last] */
  async sendTime(last = false) {
    const active = Math.round(this.active * 10) / 10, idle = Math.round(this.idle * 10) / 10;
    if (active + idle < 0.5) return;
    this.active = this.idle = 0;
    try { await this.review.note({ kind: "time", active, idle }, last); } catch { this.active += active; this.idle += idle; }
  }

  /** @param {boolean} [last] */
  async sendViewed(last = false) {
    const waiting = this.viewed;
    this.viewed = new Map();
    for (const [rate, spans] of waiting) {
      const intervals = spans.slice(0, 1000).map(([from, to]) => [this.frameAt(from), this.frameAt(to)]).filter(([start, stop]) => stop > start);
      if (!intervals.length) continue;
      try { await this.review.note({ kind: "viewed", intervals, rate }, last); } catch { for (const [from, to] of spans) this.shown(from, to, rate); }
    }
  }

  flush() { this.tick(); this.sendTime(true); this.sendViewed(true); }
}
