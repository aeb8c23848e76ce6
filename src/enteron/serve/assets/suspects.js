// The page of suspicious frames: ranked, near-duplicates folded, one key to accept or to reject.

import { grouped, timestamp } from "./curves.js";
import { $, confidence, counted, h } from "./dom.js";

/**
 * @typedef {object} Suspect
 * @property {number} rank
 * @property {number} frame
 * @property {string} label
 * @property {number} confidence
 * @property {string | null} region
 * @property {number | null} event number of the machine's event
 * @property {number} folded frames that look like it, or lie in the same event
 */

const SIZES = [30, 100, 300];

export class Suspects {
  /**
   * @param {any} facts @param {import("./review.js").Review} review @param {import("./curves.js").Study} study
   * @param {{ pictureOf: (frame: number) => string, neighbours: (frame: number) => number[], open: (frame: number) => void,
   *   relabel: (id: string) => Promise<unknown>, add: (label: string, frame: number, region: string | null) => Promise<boolean> }} page
   */
  constructor(facts, review, study, page) {
    this.facts = facts;
    this.review = review;
    this.study = study;
    this.page = page;
    this.columns = new Map(facts.labels.map((/** @type {{label: string, column: number}} */ { label, column }) => [label, column]));
    this.most = SIZES[0];
    this.selected = 0;
    this.all = this.fold();
    /** @type {HTMLElement[]} */
    this.cards = [];
    $("suspects-size").replaceChildren(...SIZES.map((size) => h("option", { value: String(size) }, `first ${size}`)));
    $("suspects-size").addEventListener("change", () => { this.most = Number($("suspects-size").value); this.build(); });
    review.listeners.add(() => this.update());
    this.build();
  }

  /** Frames of one event are one suspect: the most suspicious of them stands for all. */
  fold() {
    /** @type {Suspect[]} */
    const suspects = [];
    const byEvent = new Map();
    for (const listed of this.facts.suspicious) {
      const known = listed.event === null ? undefined : byEvent.get(`${listed.event}`);
      if (known) { known.folded += 1 + listed.similar; continue; }
      const suspect = { rank: suspects.length + 1, frame: listed.frame, label: listed.label, confidence: listed.confidence, region: listed.region, event: listed.event, folded: listed.similar };
      suspects.push(suspect);
      if (listed.event !== null) byEvent.set(`${listed.event}`, suspect);
    }
    return suspects;
  }

  get open() { return !$("suspects").hidden; }

  get shown() { return this.all.slice(0, this.most); }

  get current() { return this.shown[this.selected]; }

  /**
   * The reviewed event that a suspect stands for: the machine's, or one that was added at its frame.
   * @param {Suspect} suspect
   */
  eventOf(suspect) {
    const events = Object.values(this.review.state.events);
    if (suspect.event !== null) {
      const [label, start, stop] = this.facts.events[suspect.event];
      return events.find(({ machine }) => machine && machine.label === label && machine.start === start && machine.stop === stop);
    }
    return events.find(({ origin, start, stop }) => origin === "person" && start <= suspect.frame && suspect.frame < stop);
  }

  /** @param {Suspect} suspect */
  decisionOf(suspect) {
    const event = this.eventOf(suspect);
    if (event) return event.decision;
    return (this.review.state.dismissed ?? []).some(({ frame, label }) => frame === suspect.frame && label === suspect.label) ? "rejected" : "open";
  }

  /** @param {boolean} on */
  toggle(on = !this.open) {
    $("suspects").hidden = !on;
    $("reader").classList.toggle("with-suspects", on);
    if (on) this.select(this.selected);
  }

  build() {
    const empty = this.all.length === 0;
    $("suspects-none").hidden = !empty;
    const promise = this.facts.promise;
    $("suspects-promise").textContent = `${promise ? `${promise.headline} ${promise.sentence} ` : ""}${empty ? "" : "Ranked by what a frame adds to those before it, so that kinds that are rare here come early."}`;
    this.cards = this.shown.map((suspect, index) => {
      const time = this.study.seconds(suspect.frame);
      return h("li", { class: `suspect-card l-${this.columns.get(suspect.label)}`, data: { rank: String(suspect.rank) }, on: {
        click: () => this.select(index), dblclick: () => this.page.open(suspect.frame), pointerenter: () => this.showNeighbours(suspect),
      } },
      h("img", { src: this.page.pictureOf(suspect.frame), alt: "", loading: "lazy", width: 160, height: 160 }),
      h("p", { class: "suspect-label" }, h("b", {}, String(suspect.rank)), h("i", { class: "swatch" }), h("span", { class: "label-text" }, suspect.label)),
      h("p", { class: "small" }, `${confidence(suspect.confidence, this.facts.unlike)} · ${time === null ? `${this.study.word} ${grouped(suspect.frame)}` : timestamp(time)}${suspect.folded ? ` · +${suspect.folded}` : ""}`),
      h("p", { class: "verdict" }));
    });
    $("suspects-list").replaceChildren(...this.cards);
    this.selected = Math.min(this.selected, Math.max(0, this.shown.length - 1));
    this.update();
  }

  update() {
    const decided = this.shown.filter((suspect) => this.decisionOf(suspect) !== "open").length;
    $("suspects-count").textContent = `${decided} of ${counted(this.shown.length, "suspect")} decided`;
    this.shown.forEach((suspect, index) => {
      const decision = this.decisionOf(suspect), event = this.eventOf(suspect), card = this.cards[index];
      card.classList.toggle("is-confirmed", decision === "confirmed");
      card.classList.toggle("is-rejected", decision === "rejected");
      card.classList.toggle("is-selected", index === this.selected);
      const text = card.querySelector(".label-text"), verdict = card.querySelector(".verdict");
      if (text) text.textContent = event?.label ?? suspect.label;
      card.className = card.className.replace(/l-\d+/, `l-${this.columns.get(event?.label ?? suspect.label)}`);
      if (verdict) verdict.textContent = decision === "confirmed" ? "✓ accepted" : decision === "rejected" ? "✗ rejected" : "";
    });
  }

  /** @param {number} index */
  select(index) {
    if (!this.shown.length) return;
    this.selected = Math.max(0, Math.min(this.shown.length - 1, index));
    this.update();
    this.cards[this.selected].scrollIntoView({ block: "nearest" });
    this.showNeighbours(this.current);
  }

  /** @param {Suspect} suspect */
  showNeighbours(suspect) {
    const time = this.study.seconds(suspect.frame);
    $("neighbours-title").textContent = `${suspect.label}, ${this.study.word} ${grouped(suspect.frame)}${time === null ? "" : ` (${timestamp(time)})`}${suspect.region ? `, ${suspect.region}` : ""}`;
    $("neighbours-large").src = this.page.pictureOf(suspect.frame);
    $("neighbours-list").replaceChildren(...this.page.neighbours(suspect.frame).map((frame) => h("img", { src: this.page.pictureOf(frame), alt: `${this.study.word} ${grouped(frame)}`, title: `${this.study.word} ${grouped(frame)}`, on: { click: () => this.page.open(frame) } })));
  }

  /** @param {boolean} yes */
  async decide(yes) {
    const suspect = this.current;
    if (!suspect) return;
    const event = this.eventOf(suspect);
    let done = false;
    if (event) done = await this.review.act({ kind: yes ? "confirm" : "reject", event: event.id });
    else if (yes) done = await this.page.add(suspect.label, suspect.frame, suspect.region);
    else done = await this.review.act({ kind: "dismiss", frame: suspect.frame, label: suspect.label });
    if (done) this.next();
  }

  /** On to the next one that nobody decided about. */
  next() {
    const after = this.shown.findIndex((suspect, index) => index > this.selected && this.decisionOf(suspect) === "open");
    this.select(after >= 0 ? after : this.selected + 1);
  }

  async relabel() {
    const suspect = this.current;
    if (!suspect) return;
    const event = this.eventOf(suspect);
    if (event) await this.page.relabel(event.id);
  }

  /** Keys while the page is open. @param {KeyboardEvent} _ @param {string} name */
  pressed(_, name) {
    if (!this.open || document.querySelector("dialog[open]")) return false;
    const columns = Math.max(1, Math.floor($("suspects-list").clientWidth / Math.max(1, (this.cards[0]?.offsetWidth ?? 170) + 8)));
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowRight: () => this.select(this.selected + 1), ArrowLeft: () => this.select(this.selected - 1),
      ArrowDown: () => this.select(this.selected + columns), ArrowUp: () => this.select(this.selected - columns),
      Home: () => this.select(0), End: () => this.select(this.shown.length - 1),
      A: () => { this.decide(true); }, X: () => { this.decide(false); }, R: () => { this.relabel(); },
      N: () => this.next(), Enter: () => this.current && this.page.open(this.current.frame), Escape: () => this.toggle(false),
    };
    if (!keys[name]) return false;
    keys[name]();
    return true;
  }
}
