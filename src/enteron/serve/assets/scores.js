// Forms of the clinical scores. The arithmetic is the server's; a proposal is marked as one.

import { grouped, timestamp } from "./curves.js";
import { $, h, percent } from "./dom.js";

const EXTENT = [["", "extent"], ["short", "short (≤ 10 %)"], ["long", "long (11–50 %)"], ["whole", "whole (> 50 %)"]];
const VILLI = [["", "villi normal"], ["yes", "villi oedematous"]];
const DISTRIBUTION = [["", "distribution"], ["single", "single"], ["patchy", "patchy"], ["diffuse", "diffuse"]];
const ULCERS = [["none", "no ulcers"], ["single", "single ulcer"], ["few", "few (2–7)"], ["multiple", "multiple (≥ 8)"]];
const SIZE = [["", "size"], ["under a quarter", "< ¼ of the circumference"], ["quarter to half", "¼–½"], ["over half", "> ½"]];
const STENOSIS = [["none", "no stenosis"], ["single", "single stenosis"], ["multiple", "multiple stenoses"]];
const ULCERATED = [["", "ulcerated?"], ["yes", "ulcerated"], ["no", "not ulcerated"]];
const TRAVERSED = [["", "traversed?"], ["yes", "traversed"], ["no", "not traversed"]];
const INFLAMMATION = ["0 none", "1 mild to moderate oedema, hyperaemia or denudation", "2 the same, severe", "3 bleeding, exudate, aphthae, erosion or small ulcer (≤ 0.5 cm)", "4 moderate ulcer (0.5–2 cm) or pseudopolyp", "5 large ulcer (> 2 cm)"];
const HALF_EXTENT = ["0 none", "1 focal (one segment)", "2 patchy (two or three)", "3 diffuse (more)"];
const STRICTURE = ["0 none", "1 single, passed", "2 multiple, passed", "3 obstruction"];

/** @param {string} name @param {string} label @param {string[][]} options @param {string} value */
const choice = (name, label, options, value) => h("select", { name, aria: { label } },
  ...options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
/** @param {string} name @param {string} label @param {string[]} options @param {number} value */
const numbers = (name, label, options, value) => choice(name, label, options.map((text, index) => [String(index), text]), String(value));
/** @param {boolean | null | undefined} value */
const yesNo = (value) => value === true ? "yes" : value === false ? "no" : "";
/** @param {string} value */
const truth = (value) => value === "yes" ? true : value === "no" ? false : null;

/**
 * @param {import("./review.js").Review} review @param {import("./curves.js").Study} study
 * @param {{ pictureOf: (frame: number) => string, go: (frame: number) => void }} page
 */
export const makeScores = (review, study, page) => {
  const lewis = /** @type {HTMLFormElement} */ ($("lewis")), cecdai = /** @type {HTMLFormElement} */ ($("cecdai")), koda = /** @type {HTMLFormElement} */ ($("koda"));
  /** @param {HTMLFormElement} form @param {string} name */
  const value = (form, name) => /** @type {HTMLSelectElement} */ (form.elements.namedItem(name)).value;

  const buildLewis = () => {
    const { tertiles, proposals } = review.answer.summary;
    const entered = review.state.lewis;
    $("lewis-reason").textContent = proposals.lewis_reason ? `${proposals.lewis_reason[0].toUpperCase()}${proposals.lewis_reason.slice(1)}.` : "";
    const rows = [0, 1, 2].map((index) => {
      const part = entered?.tertiles[index], proposed = proposals.lewis_ulcers?.[index];
      const ulcers = part?.ulcers ?? { count: "none", extent: null, size: null };
      const range = tertiles?.[index];
      const note = proposed ? `proposed: ${proposed.count === "none" ? "no ulcers" : `${proposed.events} confirmed, ${percent(proposed.share)} of the tertile`}` : "";
      return h("fieldset", {}, h("legend", {}, `Tertile ${index + 1}`, range ? h("span", { class: "small" }, ` ${study.word}s ${grouped(range[0])}–${grouped(range[1] - 1)}`) : null),
        choice(`villi${index}`, `villi of tertile ${index + 1}`, VILLI, part?.villi.oedematous ? "yes" : ""),
        choice(`villi-extent${index}`, "extent", EXTENT, part?.villi.extent ?? ""), choice(`villi-distribution${index}`, "distribution", DISTRIBUTION, part?.villi.distribution ?? ""),
        choice(`ulcers${index}`, `ulcers of tertile ${index + 1}`, ULCERS, ulcers.count), choice(`ulcers-extent${index}`, "extent", EXTENT, ulcers.extent ?? ""), choice(`ulcers-size${index}`, "size", SIZE, ulcers.size ?? ""),
        h("span", { class: "proposal" }, note, proposed && proposed.count !== "none" && !entered ? h("button", { type: "button", on: { click: () => {
          /** @type {HTMLSelectElement} */ (lewis.elements.namedItem(`ulcers${index}`)).value = proposed.count;
          /** @type {HTMLSelectElement} */ (lewis.elements.namedItem(`ulcers-extent${index}`)).value = proposed.extent ?? "";
        } } }, "take over") : null));
    });
    const stenosis = entered?.stenosis ?? { count: "none", ulcerated: null, traversed: null };
    rows.push(h("fieldset", {}, h("legend", {}, "Stenosis (whole study)"), choice("stenosis", "stenosis", STENOSIS, stenosis.count), choice("ulcerated", "ulcerated", ULCERATED, yesNo(stenosis.ulcerated)), choice("traversed", "traversed", TRAVERSED, yesNo(stenosis.traversed))));
    $("lewis-rows").replaceChildren(...rows);
  };
  lewis.addEventListener("submit", (event) => {
    event.preventDefault();
    /** @param {string} name */
    const or = (name) => value(lewis, name) || null;
    const tertiles = [0, 1, 2].map((index) => ({
      villi: { oedematous: value(lewis, `villi${index}`) === "yes", extent: or(`villi-extent${index}`), distribution: or(`villi-distribution${index}`) },
      ulcers: { count: value(lewis, `ulcers${index}`), extent: or(`ulcers-extent${index}`), size: or(`ulcers-size${index}`) },
    }));
    const stenosis = { count: value(lewis, "stenosis"), ulcerated: truth(value(lewis, "ulcerated")), traversed: truth(value(lewis, "traversed")) };
    review.act({ kind: "set-score", score: { name: "lewis", tertiles, stenosis } }, "The Lewis score is recorded.");
  });

  const buildCecdai = () => {
    const entered = review.state.cecdai;
    $("cecdai-rows").replaceChildren(...["proximal", "distal"].map((half) => {
      const part = entered?.[half] ?? { inflammation: 0, extent: 0, stricture: 0 };
      return h("fieldset", {}, h("legend", {}, `${half} half`), numbers(`${half}-inflammation`, "inflammation", INFLAMMATION, part.inflammation), numbers(`${half}-extent`, "extent", HALF_EXTENT, part.extent), numbers(`${half}-stricture`, "stricture", STRICTURE, part.stricture));
    }));
  };
  cecdai.addEventListener("submit", (event) => {
    event.preventDefault();
    const halves = Object.fromEntries(["proximal", "distal"].map((half) => [half, Object.fromEntries(["inflammation", "extent", "stricture"].map((item) => [item, Number(value(cecdai, `${half}-${item}`))]))]));
    review.act({ kind: "set-score", score: { name: "cecdai", ...halves } }, "The CECDAI is recorded.");
  });

  const GRADES = ["0", "1", "2", "3"];
  const buildKoda = () => {
    const { koda_frames: frames, koda_reason: reason } = review.answer.summary.proposals;
    const rated = new Map((review.state.koda?.frames ?? []).map((/** @type {{frame: number, mucosa: number, view: number}} */ item) => [item.frame, item]));
    $("koda-reason").textContent = reason ? `${reason[0].toUpperCase()}${reason.slice(1)}.` : "";
    koda.hidden = frames.length === 0;
    $("koda-rows").replaceChildren(...frames.map((frame) => {
      const time = study.seconds(frame), known = rated.get(frame);
      return h("fieldset", { class: "koda-frame" }, h("legend", { class: "small" }, time === null ? grouped(frame) : timestamp(time)),
        h("img", { src: page.pictureOf(frame), alt: "", loading: "lazy", on: { click: () => page.go(frame) } }),
        choice(`mucosa${frame}`, "mucosa seen", [["", "mucosa"], ...GRADES.map((grade) => [grade, `mucosa ${grade}`])], known ? String(known.mucosa) : ""),
        choice(`view${frame}`, "free view", [["", "view"], ...GRADES.map((grade) => [grade, `view ${grade}`])], known ? String(known.view) : ""));
    }));
  };
  koda.addEventListener("submit", (event) => {
    event.preventDefault();
    const frames = review.answer.summary.proposals.koda_frames.flatMap((frame) => {
      const mucosa = value(koda, `mucosa${frame}`), view = value(koda, `view${frame}`);
      return mucosa === "" || view === "" ? [] : [{ frame, mucosa: Number(mucosa), view: Number(view) }];
    });
    review.act({ kind: "set-score", score: { name: "koda", frames } }, "The KODA score is recorded.");
  });
  for (const button of document.querySelectorAll("button[data-clear]")) {
    button.addEventListener("click", () => review.act({ kind: "clear-score", name: /** @type {HTMLElement} */ (button).dataset.clear }, "The score is taken back."));
  }

  /** @param {import("./review.js").Answer} [before] */
  const update = (before) => {
    const { lewis: points, lewis_category: category, cecdai: index, koda: mean } = review.answer.summary;
    $("lewis-value").textContent = points === null ? "not entered" : `${points}: ${category}`;
    $("cecdai-value").textContent = index === null ? "not entered" : String(index);
    $("koda-value").textContent = mean === null ? "not entered" : mean.toFixed(2);
    /** @param {(answer: import("./review.js").Answer) => unknown} part */
    const changed = (part) => !before || JSON.stringify(part(before)) !== JSON.stringify(part(review.answer));
    // A form is made again only where what it shows has changed: somebody may be filling it in.
    if (changed(({ state, summary }) => [state.lewis, summary.tertiles, summary.proposals.lewis_ulcers, summary.proposals.lewis_reason])) buildLewis();
    if (changed(({ state }) => state.cecdai)) buildCecdai();
    if (changed(({ state, summary }) => [state.koda, summary.proposals.koda_frames])) buildKoda();
  };
  review.listeners.add(update);
  update();
};
