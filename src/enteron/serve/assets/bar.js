// The time bar: the report's timeline with what people decided, what was looked at, and a preview.

import { grouped, timestamp } from "./curves.js";
import { $, h } from "./dom.js";
import { makeTimeline } from "./timeline.js";

/** @typedef {{ label: string, column: number, kind: string }} Label */

/**
 * @param {import("./curves.js").Study} study @param {import("./drawing.js").Drawing} drawing
 * @param {any} facts @param {import("./review.js").Review} review
 * @param {{ pick: (frame: number) => void, pictureOf: (frame: number) => string, select: (id: string) => void }} page
 */
export const makeBar = (study, drawing, facts, review, page) => {
  /** @type {Label[]} */
  const labels = facts.labels;
  const columns = new Map(labels.map(({ label, column }) => [label, column]));
  const length = study.length;
  /** @param {number} start @param {number} stop */
  const place = (start, stop) => {
    const left = Math.max(0, Math.min(1, (start - study.first) / length));
    return { start: left, width: Math.max(0, Math.min(1, (stop - study.first) / length) - left) };
  };
  /** @param {string} kind @param {Node | null} content @param {string} laneClass @param {string} name @param {number} [column] */
  const row = (kind, content, laneClass, name, column) => h("div", { class: `row ${kind}${column === undefined ? "" : ` l-${column}`}` },
    h("div", { class: "name" }, column === undefined ? null : h("i", { class: "swatch" }), name),
    h("div", { class: `lane ${laneClass}` }, content, h("div", { class: "field" })));

  // Rows: axis, region, what was looked at, landmarks, and findings that occur.
  const tracks = $("tracks");
  const axisCanvas = h("canvas");
  axisCanvas.dataset.axis = "";
  const axisRow = row("axis", axisCanvas, "", study.times === null ? study.word : "time");
  const regionRow = row("transit-row", null, "transit-lane", "region");
  const viewedRow = row("viewed-row", null, "viewed-lane", "looked at");
  const landmarkRow = row("landmark-row", null, "short", "landmarks");
  // Blood has its lane always: that there is none is a result.
  const occurring = () => labels.filter(({ label, kind }) => label === "blood" || kind === "finding" && review.findings.some((event) => event.label === label));
  /** @type {Map<string, HTMLElement>} */
  const findingRows = new Map();
  const findingsBox = h("div", { class: "finding-rows" });
  tracks.prepend(axisRow, regionRow, viewedRow, landmarkRow, findingsBox);
  /** @param {HTMLElement} within @returns {HTMLElement} */
  const field = (within) => /** @type {HTMLElement} */ (within.querySelector(".field"));

  for (const [start, stop] of facts.gaps) field(axisRow).append(h("i", { class: "gap", vars: place(start, stop), title: `${study.word}s ${grouped(start)} to ${grouped(stop - 1)} are missing` }));
  for (const frame of facts.unreadable) field(axisRow).append(h("i", { class: "unreadable", vars: place(frame, frame + 1), title: `${study.word} ${grouped(frame)} cannot be read` }));

  const makeRows = () => {
    const wanted = occurring().map(({ label }) => label);
    if (wanted.length === findingRows.size && wanted.every((label) => findingRows.has(label))) return false;
    findingRows.clear();
    for (const { label, column } of occurring()) {
      const canvas = h("canvas");
      canvas.dataset.column = String(column);
      findingRows.set(label, row("label-row", canvas, "finding", label, column));
    }
    findingsBox.replaceChildren(...findingRows.values());
    return true;
  };

  /** @param {import("./review.js").ReviewEvent} event */
  const describe = (event) => {
    const score = event.score === null ? "" : `, confidence ${event.score.toFixed(2)}`;
    const decided = event.decision === "open" ? "" : `, ${event.decision}${event.by ? ` by ${event.by}` : ""}`;
    return `${event.label}, ${study.word} ${grouped(event.start)}${event.stop - event.start > 1 ? ` to ${grouped(event.stop - 1)}` : ""}${score}${decided}`;
  };
  /** @param {import("./review.js").ReviewEvent} event @param {string} kind */
  const mark = (event, kind) => h("a", {
    class: `mark ${kind}-mark l-${columns.get(event.label)} is-${event.decision} is-${event.origin}`,
    href: "#", data: { event: event.id }, aria: { label: describe(event) },
    vars: { ...place(event.start, event.stop), score: event.score ?? 1 },
  }, kind === "region" ? h("span", {}, event.label) : null);

  // Regions follow the landmarks that people confirmed or moved.
  const regionMarks = () => {
    const borders = [["stomach", "first gastric image"], ["small intestine", "first duodenal image"], ["colon", "first caecal image"]];
    const decided = borders.some(([, name]) => ["moved", "absent"].includes(review.state.landmarks[name].status));
    const machine = Object.values(review.state.events).filter((event) => columns.get(event.label) !== undefined && /** @type {number} */ (columns.get(event.label)) < 5);
    if (!decided) return machine.map((event) => mark(event, "region"));
    const known = borders.map(([region, name]) => ({ region, frame: review.state.landmarks[name].frame })).filter(({ frame }) => frame !== null);
    const first = known.length ? /** @type {number} */ (known[0].frame) : study.end;
    const marks = machine.filter((event) => event.start < first && !["stomach", "small intestine", "colon"].includes(event.label))
      .map((event) => mark({ ...event, stop: Math.min(event.stop, first) }, "region"));
    known.forEach(({ region, frame }, index) => {
      const stop = index + 1 < known.length ? /** @type {number} */ (known[index + 1].frame) : study.end;
      marks.push(mark({ id: `region-${region}`, label: region, start: /** @type {number} */ (frame), stop, score: null, region: null, origin: "person", machine: null, decision: "confirmed", saurin: null, by: null, at: null }, "region"));
    });
    return marks;
  };

  const showViewed = () => field(viewedRow).replaceChildren(...review.state.viewed.map(([start, stop]) => h("i", { class: "viewed", vars: place(start, stop) })));
  /** @type {import("./timeline.js").Timeline} */
  let timeline;
  const update = () => {
    const rebuilt = makeRows();
    field(regionRow).replaceChildren(...regionMarks());
    showViewed();
    const seen = Object.values(review.state.events).filter(({ label }) => labels.some((known) => known.label === label && known.kind === "landmark"));
    field(landmarkRow).replaceChildren(...seen.map((event) => mark(event, "landmark")), ...Object.entries(review.state.landmarks).flatMap(([name, { frame, status }], index) => frame === null ? [] : [
      h("a", { class: `mark landmark-mark l-${[2, 3, 4][index]} is-${status}`, href: "#", data: { event: name, frame: String(frame) }, aria: { label: `${name}, ${study.word} ${grouped(frame)}, ${status}` }, vars: place(frame, frame + 1) }),
    ]));
    for (const [label, line] of findingRows) {
      field(line).replaceChildren(...review.findings.filter((event) => event.label === label).map((event) => mark(event, "finding")));
    }
    if (timeline) { timeline.collect(); if (rebuilt) timeline.curvesChanged(); }
  };
  update();

  // A picture of the place that is pointed at.
  const preview = $("preview");
  const previewImage = $("preview-image");
  let pointed = -1, asked = -1, busy = false;
  const ask = () => {
    if (busy || pointed === asked || pointed < 0) return;
    busy = true;
    asked = pointed;
    previewImage.src = page.pictureOf(asked);
  };
  for (const kind of ["load", "error"]) previewImage.addEventListener(kind, () => { busy = false; previewImage.hidden = kind === "error"; ask(); });
  tracks.addEventListener("pointerleave", () => { preview.hidden = true; pointed = -1; });

  timeline = makeTimeline(study, drawing, {
    ownKeys: true,
    names: labels.map(({ label }) => label),
    onPick: page.pick,
    onPoint: (frame, clientX) => {
      pointed = frame;
      const time = study.seconds(frame);
      $("preview-text").textContent = `${study.word} ${grouped(frame)}${time === null ? "" : ` · ${timestamp(time)}`}`;
      preview.hidden = false;
      const box = tracks.getBoundingClientRect();
      preview.style.left = `${Math.max(0, Math.min(box.width - preview.offsetWidth, clientX - box.left - preview.offsetWidth / 2))}px`;
      ask();
    },
  });
  document.addEventListener("show-card", (event) => {
    const id = /** @type {CustomEvent} */ (event).detail;
    const landmark = review.state.landmarks[id];
    if (landmark && landmark.frame !== null) page.pick(landmark.frame);
    else page.select(id);
  });
  review.listeners.add(update);
  review.noted.add(showViewed);

  return {
    timeline,
    /** @param {number} frame @param {boolean} words whether to say what the model thinks of it */
    showPlace: (frame, words) => timeline.showPlace((frame + 0.5 - study.first) / length, words),
  };
};
