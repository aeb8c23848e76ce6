// Shows 1, 2 or 4 neighbouring frames, still or running, and tells what was looked at.

import { h } from "./dom.js";

export const SPEEDS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40];
export const FAST = 15; // pictures per second above which the speed is marked
const SLOW = 4; // pictures per second where something is suspected, with automatic speed
const AHEAD = 32; // frames that are fetched ahead while playing
const WORDS = ["", "This frame cannot be read.", "No picture of this frame is stored.", "The file of this frame has changed since it was read.", "This frame does not look like the gut and may hold a name. Press V to show it."];

/**
 * @typedef {object} Watcher
 * @property {() => void} onMove the place has changed
 * @property {(from: number, to: number, rate: number | null) => void} onShown positions [from, to) were shown
 */

export class Player {
  /**
   * @param {HTMLElement} stage @param {import("./frames.js").FrameStore} frames @param {number} count
   * @param {Watcher} watcher
   */
  constructor(stage, frames, count, watcher) {
    this.stage = stage;
    this.frames = frames;
    this.count = count;
    this.watcher = watcher;
    this.position = 0;
    this.up = 1;
    this.speed = 8;
    this.auto = false;
    this.direction = 1;
    this.playing = false;
    /** @type {Uint8Array} 1 where something is suspected */
    this.slow = new Uint8Array(count);
    this.due = 0; // when the next picture is to be shown, ms
    this.waiting = false; // a picture is due and has not arrived
    this.stats = { first: 0, shown: 0, late: 0, worst: 0, jumps: /** @type {number[]} */ ([]) };
    this.jumpedAt = 0;
    this.dirty = true;
    /** @type {HTMLCanvasElement[]} */
    this.canvases = [];
    /** @type {HTMLElement[]} */
    this.words = [];
    this.setUp(1);
    frames.listeners.add(() => { this.dirty = true; this.schedule(); });
    this.scheduled = false;
    new ResizeObserver(() => { this.dirty = true; this.schedule(); }).observe(stage);
  }

  /** @param {number} up 1, 2 or 4 frames side by side */
  setUp(up) {
    this.up = up;
    this.stage.dataset.up = String(up);
    this.canvases = [];
    this.words = [];
    this.stage.replaceChildren(...Array.from({ length: up }, () => {
      const canvas = h("canvas", { class: "frame" });
      const word = h("p", { class: "frame-word" });
      this.canvases.push(canvas);
      this.words.push(word);
      return h("div", { class: "cell" }, canvas, word);
    }));
    this.show(this.position);
  }

  /** @param {number} position */
  clamp(position) { return Math.max(0, Math.min(this.count - 1, Math.round(position))); }

  /** Go to a place at once. @param {number} position */
  show(position) {
    this.position = this.clamp(position);
    this.jumpedAt = performance.now();
    this.dirty = true;
    const visible = this.visible();
    if (!visible.every((place) => this.frames.has(place))) this.frames.want(visible, true);
    this.due = performance.now() + 1000 * this.up / this.rate();
    this.watcher.onMove();
    this.schedule();
  }

  /** @param {number} by */
  step(by) { this.pause(); this.show(this.position + by); }

  visible() {
    return Array.from({ length: this.up }, (_, index) => this.position + index).filter((place) => place < this.count);
  }

  toggle() { if (this.playing) this.pause(); else this.play(); }

  /** @param {number} [direction] */
  play(direction = 1) {
    this.direction = direction;
    if (direction > 0 && this.position + this.up >= this.count) this.show(0);
    this.playing = true;
    this.due = performance.now() + 1000 * this.up / this.rate();
    this.watcher.onMove();
    this.schedule();
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    this.waiting = false;
    this.watcher.onMove();
    this.schedule();
  }

  /** Pictures per second here: slower where something is suspected, if that is asked for. */
  rate() {
    if (!this.auto) return this.speed;
    return this.slow[this.position] || this.slow[this.clamp(this.position + this.up * this.direction)] ? Math.min(SLOW, this.speed) : this.speed;
  }

  /** @param {number} by */
  faster(by) {
    const index = SPEEDS.findIndex((speed) => speed >= this.speed);
    this.speed = SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, index + by))];
    this.watcher.onMove();
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame((now) => { this.scheduled = false; this.tick(now); });
  }

  /** @param {number} now */
  tick(now) {
    if (this.playing) {
      const next = this.position + this.up * this.direction;
      if (next >= this.count || next < 0) {
        this.pause();
      } else if (now >= this.due - 4) {
        const places = Array.from({ length: this.up }, (_, index) => next + index).filter((place) => place < this.count && place >= 0);
        if (places.every((place) => this.frames.has(place))) {
          const rate = this.rate(), interval = 1000 * this.up / rate;
          this.tell(rate);
          this.stats.shown += this.up;
          const lateness = now - this.due;
          this.stats.worst = Math.max(this.stats.worst, lateness);
          if (lateness > 500 / rate) this.stats.late += this.up;
          this.due = lateness > interval ? now + interval : this.due + interval;
          this.waiting = false;
          this.position = next;
          this.dirty = true;
          this.watcher.onMove();
        } else {
          this.waiting = true;
        }
      }
      this.ahead();
      this.schedule();
    }
    if (this.dirty) this.draw(now);
  }

  /** Tell what was seen: a frame without a picture (withheld, unreadable, not stored) was not. @param {number | null} rate */
  tell(rate) {
    for (const place of this.visible()) if (this.frames.get(place)?.bitmap) this.watcher.onShown(place, place + 1, rate);
  }

  /** Ask for what comes next, nearest first. */
  ahead() {
    const first = this.direction > 0 ? this.position : this.position + this.up - 1;
    const places = Array.from({ length: this.up + AHEAD }, (_, index) => first + index * this.direction);
    this.frames.want(places);
  }

  /** @param {number} now */
  draw(now) {
    this.dirty = false;
    const visible = this.visible();
    let complete = true;
    this.canvases.forEach((canvas, index) => {
      const place = visible[index];
      const shown = place === undefined ? undefined : this.frames.get(place);
      const word = this.words[index];
      if (!shown) {
        complete = complete && place === undefined;
        if (place === undefined) { word.textContent = ""; canvas.hidden = true; }
        return; // the frame before stays until this one is there
      }
      canvas.hidden = !shown.bitmap;
      word.textContent = shown.bitmap ? "" : WORDS[shown.flag];
      canvas.dataset.position = String(place);
      if (!shown.bitmap) return;
      if (canvas.width !== shown.bitmap.width || canvas.height !== shown.bitmap.height) {
        canvas.width = shown.bitmap.width;
        canvas.height = shown.bitmap.height;
      }
      /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false })).drawImage(shown.bitmap, 0, 0);
    });
    if (complete && this.jumpedAt) {
      this.stats.first ||= now; // ms since the page was asked for
      this.stats.jumps.push(now - this.jumpedAt);
      if (this.stats.jumps.length > 1000) this.stats.jumps.shift();
      this.jumpedAt = 0;
      if (!this.playing) {
        this.tell(null);
        const around = [1, 2, 3, 4, 5, 6, 7, 8].map((by) => this.position + this.up - 1 + by);
        this.frames.want(around);
      }
    } else if (!complete) {
      this.frames.want(visible);
      setTimeout(() => { this.dirty = true; this.schedule(); }, 400);
    }
  }
}
