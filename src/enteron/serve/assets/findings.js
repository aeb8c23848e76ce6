// The list of findings: what the model reported and what people decided about it.

import { grouped, timestamp } from "./curves.js";
import { $, confidence, counted, h, percent } from "./dom.js";

/** @param {import("./review.js").ReviewEvent} event */
const verdict = (event) => {
  if (event.origin === "person") return event.decision === "rejected" ? "added, rejected" : "added";
  if (event.decision !== "confirmed") return event.decision === "open" ? "open" : "rejected";
  const said = event.machine;
  if (said && said.label !== event.label) return `was ${said.label}`;
  return said && (said.start !== event.start || said.stop !== event.stop) ? "trimmed" : "confirmed";
};

export class Findings {
  /**
   * @param {any} facts @param {import("./review.js").Review} review @param {import("./curves.js").Study} study
   * @param {{ select: (id: string) => void }} page
   */
  constructor(facts, review, study, page) {
    this.review = review;
    this.study = study;
    this.page = page;
    this.unlike = facts.unlike;
    this.columns = new Map(facts.labels.map((/** @type {{label: string, column: number}} */ { label, column }) => [label, column]));
    /** @type {string | null} */
    this.selected = null;
    this.filter = "all";
    $("findings-filter").addEventListener("change", () => { this.filter = $("findings-filter").value; this.update(); });
    review.listeners.add(() => this.update());
    this.update();
  }

  get listed() {
    return this.review.findings.filter((event) => this.filter === "all" || event.decision === this.filter);
  }

  get current() { return this.selected === null ? undefined : this.review.state.events[this.selected]; }

  /** @param {string | null} id */
  select(id) {
    this.selected = id;
    this.update();
    $("findings-list").querySelector(".is-selected")?.scrollIntoView({ block: "nearest" });
  }

  /** The event after or before a frame. @param {number} frame @param {number} by */
  beside(frame, by) {
    const events = this.listed;
    const at = events.findIndex(({ id }) => id === this.selected);
    if (at >= 0) return events[at + by];
    return by > 0 ? events.find(({ start }) => start > frame) : events.filter(({ start }) => start < frame).pop();
  }

  update() {
    const summary = this.review.answer.summary;
    const places = new Map(summary.findings.map((finding) => [finding.id, finding]));
    $("findings-count").textContent = `${counted(summary.findings.length, "finding")} confirmed, ${summary.undecided} open`;
    $("findings-list").replaceChildren(...this.listed.map((event) => {
      const time = this.study.seconds(event.start);
      const finding = places.get(event.id);
      const place = [finding?.region ?? event.region ?? "", finding?.transit_share != null ? `${percent(finding.transit_share)} of transit` : ""].filter(Boolean).join(", ");
      return h("li", { class: `finding-row l-${this.columns.get(event.label)} is-${event.decision}${event.id === this.selected ? " is-selected" : ""}`, data: { event: event.id }, on: { click: () => this.page.select(event.id) } },
        h("i", { class: "swatch" }), h("span", { class: "what" }, h("b", {}, event.label), ` ${time === null ? `${this.study.word} ${grouped(event.start)}` : timestamp(time)}`, h("span", { class: "small" }, place ? ` · ${place}` : "")),
        h("span", { class: "small score" }, event.score === null ? "" : confidence(event.score, this.unlike)),
        h("span", { class: `badge is-${event.decision}` }, verdict(event)),
        h("span", { class: "badge saurin", title: "Bleeding potential (Saurin); key Q changes it" }, event.saurin ?? (finding?.proposed_saurin ? `${finding.proposed_saurin}?` : "–")));
    }));
  }
}
