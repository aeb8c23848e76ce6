// The draft of the report, signing, and exports.

import { studyPath } from "./api.js";
import { $, counted, h, localTime, toast } from "./dom.js";

const FIELDS = ["indication", "preparation", "findings", "conclusion", "recommendation"];
const FORMATS = [["json", "events, JSON"], ["csv", "events, CSV"], ["labels", "labels for training"], ["label-studio", "Label Studio"], ["fhir", "FHIR"], ["dicom", "DICOM SR"]];

/** Downloads of the last signed version, or of the draft. @param {string} study */
export const exportLinks = (study) => FORMATS.map(([format, text]) => h("a", { class: "button", href: `${studyPath(study)}/export/${format}`, download: "" }, text));

/** @param {string} study @param {import("./review.js").Review} review */
export const makeDraft = (study, review) => {
  const areas = new Map(FIELDS.map((field) => [field, /** @type {HTMLTextAreaElement} */ ($(`report-${field}`))]));
  for (const [field, area] of areas) {
    area.value = review.state.report[field] ?? "";
    area.addEventListener("change", () => { if (area.value !== (review.state.report[field] ?? "")) review.act({ kind: "edit-report", field, text: area.value }, "The draft is saved."); });
  }
  $("exports").replaceChildren(...exportLinks(study));

  const dialog = /** @type {HTMLDialogElement} */ ($("sign"));
  /** Whatever is still in a field is saved first: what is signed is what is seen. */
  const save = async () => {
    for (const [field, area] of areas) if (area.value !== (review.state.report[field] ?? "")) await review.act({ kind: "edit-report", field, text: area.value });
  };
  const open = async () => {
    await save();
    const { summary, state } = review.answer;
    const open = Object.entries(state.landmarks).filter(([, { status }]) => status === "proposed").map(([name]) => name);
    const warnings = [
      summary.undecided ? `${counted(summary.undecided, "finding")} of the model ${summary.undecided === 1 ? "is" : "are"} not decided.` : "",
      open.length ? `Not confirmed: ${open.join(", ")}.` : "",
      summary.measures.small_bowel_viewed !== null && summary.measures.small_bowel_viewed < 0.999 ? `${Math.round(100 * summary.measures.small_bowel_viewed)} % of the small bowel was viewed.` : "",
    ].filter(Boolean);
    $("sign-title").textContent = `Sign version ${state.signatures.length + 1} as ${review.answer.user.name}`;
    $("sign-warnings").replaceChildren(...warnings.map((warning) => h("li", {}, warning)));
    dialog.showModal();
    $("sign-done").focus();
  };
  const sign = async () => {
    dialog.close();
    if (await review.act({ kind: "sign", meaning: $("sign-meaning").value.trim() })) {
      toast(`Version ${review.state.signatures.length} is signed.`);
      location.assign(`/report/${encodeURIComponent(study)}`);
    }
  };
  $("sign-open").addEventListener("click", open);
  $("sign-done").addEventListener("click", sign);
  $("sign-cancel").addEventListener("click", () => dialog.close());

  const update = () => {
    for (const [field, area] of areas) if (document.activeElement !== area) area.value = review.state.report[field] ?? "";
    $("versions").replaceChildren(...review.state.signatures.map(({ version, user, time, meaning }) => h("li", {},
      h("a", { href: `/report/${encodeURIComponent(study)}?version=${version}` }, `Version ${version}`), ` signed by ${user}, ${localTime(time)}${meaning ? `: ${meaning}` : ""}`)));
    $("draft-state").textContent = review.state.status === "signed" ? "Signed. Any change makes a new draft." : review.state.signatures.length ? "Changed since it was signed: sign again to make a new version." : "Draft, not signed.";
  };
  review.listeners.add(update);
  update();
  return { open };
};
