// Landmarks, transit times and completeness.

import { grouped, timestamp } from "./curves.js";
import { $, h, percent } from "./dom.js";

export const LANDMARKS = [["G", "first gastric image"], ["D", "first duodenal image"], ["C", "first caecal image"]];

/**
 * @param {import("./review.js").Review} review @param {import("./curves.js").Study} study
 * @param {{ go: (frame: number) => void, set: (name: string) => void, pictureOf: (frame: number) => string }} page
 */
export const makeLandmarks = (review, study, page) => {
  const showMeasures = () => {
    const { gastric_transit: gastric, small_bowel_transit: bowel, completeness, completeness_confirmed: sure, small_bowel_viewed: viewed, study_viewed: all } = review.answer.summary.measures;
    /** @param {string} id @param {string} text @param {boolean} confirmed */
    const show = (id, text, confirmed) => { $(id).textContent = text + (confirmed ? "" : " (proposed)"); $(id).classList.toggle("is-proposed", !confirmed); };
    show("gastric-transit", gastric.text, gastric.confirmed);
    show("bowel-transit", bowel.text, bowel.confirmed);
    show("completeness", completeness, sure);
    $("bowel-viewed").textContent = viewed === null ? `${percent(all)} of the study` : percent(viewed);
    $("viewed-share").textContent = viewed === null ? `${percent(all)} of the study viewed` : `${percent(viewed)} of the small bowel viewed`;
  };
  const update = () => {
    $("landmarks-list").replaceChildren(...LANDMARKS.map(([key, name]) => {
      const { frame, status, confidence, by } = review.state.landmarks[name];
      const time = frame === null ? null : study.seconds(frame);
      return h("li", { class: `landmark is-${status}` },
        frame === null ? h("p", { class: "no-picture" }, status === "absent" ? "not reached" : "unknown") : h("img", { src: page.pictureOf(frame), alt: name, loading: "lazy", on: { click: () => page.go(frame) } }),
        h("div", {}, h("h4", {}, name, " ", h("span", { class: `badge is-${status}` }, status)),
          h("p", { class: "small" }, frame === null ? "" : `${study.word} ${grouped(frame)}${time === null ? "" : ` · ${timestamp(time)}`}`,
            status === "proposed" && confidence !== null ? ` · confidence ${confidence.toFixed(2)}` : by ? ` · ${by}` : ""),
          h("p", { class: "small" },
            h("button", { type: "button", disabled: frame === null, on: { click: () => frame !== null && page.go(frame) } }, "Go ", h("kbd", {}, key)), " ",
            h("button", { type: "button", on: { click: () => page.set(name) } }, "Set here ", h("kbd", {}, `Shift ${key}`)), " ",
            status !== "proposed" ? null : h("button", { type: "button", on: { click: () => review.act({ kind: "confirm-landmark", landmark: name }, `The ${name} is confirmed.`) } }, "Confirm"), " ",
            h("button", { type: "button", disabled: status === "absent", on: { click: () => review.act({ kind: "clear-landmark", landmark: name }, `The ${name} is marked as not reached.`) } }, "Not reached"))));
    }));
    showMeasures();
  };
  review.listeners.add(update);
  review.noted.add(showMeasures);
  update();
  return update;
};
