// A signed version of the report, as it was signed; printed, it is the PDF.

import { get, studyOfPage, studyPath } from "./api.js";
import { timestamp } from "./curves.js";
import { $, counted, h, localTime, percent } from "./dom.js";
import { exportLinks } from "./draft.js";
import "./theme.js";

const study = studyOfPage(), path = studyPath(study);
const asked = new URLSearchParams(location.search).get("version");
const HEADINGS = ["lumen", "contents", "mucosa", "flat", "protruding", "excavated"];

/** @param {string} title @param {...(Node | string | null | false)} content */
const section = (title, ...content) => h("section", {}, h("h2", {}, title), ...content);
/** @param {string[][]} rows */
const facts = (rows) => h("dl", { class: "facts" }, ...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

const start = async () => {
  const version = asked && /^\d{1,6}$/.test(asked) ? `?version=${asked}` : "";
  /** @type {import("./review.js").Answer & { versions: number, about: string[], pictures: Record<string, number> }} */
  const answer = await get(`${path}/signed${version}`);
  const { state, summary, versions } = answer;
  const signature = state.signatures[state.signatures.length - 1];
  document.title = `Report of study ${study}, version ${signature.version}`;
  $("study").textContent = study;
  $("bar-study").textContent = `Study ${study}`;
  $("notice").textContent = summary.notice;
  $("to-reader").href = `/read/${encodeURIComponent(study)}`;
  $("version").replaceChildren(...Array.from({ length: versions }, (_, index) => h("option", { value: String(index + 1), selected: index + 1 === signature.version }, String(index + 1))));
  $("version").addEventListener("change", () => location.assign(`?version=${$("version").value}`));
  $("signature").textContent = `Version ${signature.version}, signed by ${signature.user} on ${localTime(signature.time)}.${signature.meaning ? ` ${signature.meaning}` : ""}`;
  $("superseded").hidden = signature.version === versions;
  $("superseded").textContent = `Version ${versions} has replaced this one.`;

  /** @param {string} field @param {string} title */
  const text = (field, title) => state.report[field] ? section(title, ...state.report[field].split(/\n+/).map((line) => h("p", {}, line))) : null;
  const { gastric_transit: gastric, small_bowel_transit: bowel, completeness, completeness_confirmed: sure, small_bowel_viewed: viewed, active_seconds: seconds } = summary.measures;
  /** @param {string} value @param {boolean} confirmed */
  const marked = (value, confirmed) => confirmed ? value : `${value} (proposed by the model, not confirmed)`;
  const passage = facts([
    ["Completeness", marked(completeness, sure)], ["Gastric transit", marked(gastric.text, gastric.confirmed)], ["Small-bowel transit", marked(bowel.text, bowel.confirmed)],
    ...(viewed === null ? [] : [["Small bowel viewed", percent(viewed)]]), ["Active reading", `${(seconds / 60).toFixed(1)} min`],
  ]);
  const landmarks = h("ul", { class: "report-pictures" }, ...Object.entries(state.landmarks).flatMap(([name, { frame, status, by }]) => frame === null ? [] : [
    h("li", {}, h("img", { src: `${path}/picture?placeholder=1&frame=${frame}`, alt: name }), h("p", {}, name), h("p", { class: "small" }, `frame ${frame}, ${status}${by ? ` by ${by}` : ""}`)),
  ]));
  const groups = HEADINGS.flatMap((heading) => {
    const found = summary.findings.filter((finding) => finding.heading === heading);
    return found.length ? [h("h3", {}, heading), h("ul", { class: "report-pictures" }, ...found.map((finding) => card(finding, answer.pictures[finding.id])))] : [];
  });
  const scores = [
    ...(summary.lewis === null ? [] : [["Lewis score", `${summary.lewis}: ${summary.lewis_category}`]]),
    ...(summary.cecdai === null ? [] : [["CECDAI", String(summary.cecdai)]]),
    ...(summary.koda === null ? [] : [["KODA (cleanliness, 0 to 3)", summary.koda.toFixed(2)]]),
  ];
  $("sections").replaceChildren(...[
    text("indication", "Indication"), text("preparation", "Preparation"),
    section("Completeness and transit", passage, landmarks),
    section("Findings", ...(groups.length ? groups : [h("p", {}, "No finding was confirmed.")]), summary.undecided ? h("p", { class: "small" }, `${counted(summary.undecided, "finding")} of the model ${summary.undecided === 1 ? "was" : "were"} not decided and ${summary.undecided === 1 ? "is" : "are"} not listed.`) : null),
    text("findings", "Description"),
    scores.length ? section("Scores", facts(scores)) : null,
    text("conclusion", "Conclusion"), text("recommendation", "Recommendation"),
    answer.about.length ? section("About the proposals", ...answer.about.map((sentence) => h("p", { class: "small" }, sentence))) : null,
  ].filter((part) => part !== null));
  // Exports are of the last signed version.
  $("exports-box").hidden = signature.version !== versions;
  $("exports").replaceChildren(...exportLinks(study));
  $("paper").hidden = false;
};

/** @param {import("./review.js").Finding} finding @param {number} frame */
const card = (finding, frame) => h("li", { data: { event: finding.id } },
  h("img", { src: `${path}/picture?placeholder=1&frame=${frame}`, alt: finding.term }),
  h("p", {}, h("b", {}, finding.term)),
  h("p", { class: "small" }, [finding.seconds === null ? `frame ${finding.start}` : `${timestamp(finding.seconds)}, frame ${finding.start}`,
    finding.region ?? "", finding.transit_share === null ? "" : `${percent(finding.transit_share)} of small-bowel transit`,
    finding.tertile === null ? "" : `tertile ${finding.tertile}`, finding.saurin ?? "", finding.origin === "person" ? "added by the reader" : finding.changed ? "changed by the reader" : "", frame === finding.start ? "" : `picture: frame ${frame}`].filter(Boolean).join(" · ")));

start().catch((error) => { $("failure").hidden = false; $("failure").textContent = error.message; });
