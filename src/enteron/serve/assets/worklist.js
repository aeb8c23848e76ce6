// The worklist: every reading with its state; filtered and sorted here.

import { get, post } from "./api.js";
import { $, h, localTime } from "./dom.js";
import "./theme.js";

/** @typedef {{ study: string, frames: number | null, read: number, machine: Record<string, number>, confirmed: number, status: string, readers: string[], last: string | null, versions: number, minutes: number }} Row */

const ORDER = ["unread", "in progress", "signed"];
/** @type {{ name: string, value: (row: Row) => string | number }[]} */
const COLUMNS = [
  { name: "Study", value: (row) => row.study },
  { name: "State", value: (row) => ORDER.indexOf(row.status) },
  { name: "Findings of the model", value: (row) => -Object.values(row.machine).reduce((sum, count) => sum + count, 0) },
  { name: "Confirmed", value: (row) => -row.confirmed },
  { name: "Frames", value: (row) => -(row.frames ?? 0) },
  { name: "Who", value: (row) => row.readers.join() },
  { name: "Last change", value: (row) => -(row.last ? Date.parse(row.last) : 0) },
  { name: "Minutes", value: (row) => -row.minutes },
  { name: "Read by the model", value: (row) => -row.read },
];
/** @type {Row[]} */
let rows = [];
let sorted = 1, descending = false, selected = 0;

const shown = () => {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean), state = $("state").value;
  const { value } = COLUMNS[sorted];
  const natural = new Intl.Collator("en", { numeric: true });
  return rows
    .filter((row) => (!state || row.status === state) && words.every((/** @type {string} */ word) => `${row.study} ${row.readers.join(" ")} ${Object.keys(row.machine).join(" ")}`.toLowerCase().includes(word)))
    .sort((a, b) => {
      const x = value(a), y = value(b);
      const order = typeof x === "string" ? natural.compare(x, String(y)) : x - Number(y);
      return (descending ? -order : order) || natural.compare(a.study, b.study);
    });
};

const draw = () => {
  const list = shown();
  selected = Math.max(0, Math.min(list.length - 1, selected));
  $("count").textContent = `${list.length} of ${rows.length} shown`;
  $("none").hidden = rows.length > 0;
  $("table").querySelector("thead tr").replaceChildren(...COLUMNS.map(({ name }, index) => h("th", { aria: index === sorted ? { sort: descending ? "descending" : "ascending" } : {} },
    h("button", { type: "button", class: "link", on: { click: () => { descending = index === sorted && !descending; sorted = index; draw(); } } }, name, index === sorted ? (descending ? " ▼" : " ▲") : ""))));
  $("rows").replaceChildren(...list.map((row, index) => h("tr", { class: index === selected ? "is-selected" : "", data: { study: row.study }, on: { click: () => location.assign(`/read/${encodeURIComponent(row.study)}`) } },
    h("td", {}, h("a", { href: `/read/${encodeURIComponent(row.study)}` }, row.study)),
    h("td", {}, h("span", { class: `badge is-${row.status.replace(" ", "-")}` }, row.status), row.versions ? h("a", { class: "small", href: `/report/${encodeURIComponent(row.study)}` }, ` version ${row.versions}`) : null),
    h("td", { class: "small" }, Object.entries(row.machine).map(([label, count]) => `${label} ${count}`).join(", ") || "none"),
    h("td", {}, String(row.confirmed)), h("td", {}, row.frames === null ? "" : row.frames.toLocaleString("en-US")),
    h("td", {}, row.readers.join(", ")), h("td", { class: "small" }, localTime(row.last)), h("td", {}, row.minutes ? row.minutes.toFixed(1) : ""),
    h("td", { class: "small" }, localTime(new Date(1000 * row.read).toISOString())))));
};

const load = async () => {
  const answer = await get("/api/studies");
  rows = answer.studies;
  $("user").textContent = `${answer.user.name}${answer.user.role === "viewer" ? " (viewer)" : ""}`;
  $("logout").hidden = !answer.needs_login;
  $("problems-box").hidden = answer.problems.length === 0;
  $("problems").replaceChildren(...answer.problems.map((/** @type {{folder: string, sentence: string}} */ { folder, sentence }) => h("li", {}, h("b", {}, folder), `: ${sentence}`)));
  draw();
};

for (const id of ["filter", "state"]) $(id).addEventListener("input", draw);
$("logout").addEventListener("click", async () => { await post("/api/logout", {}); location.assign("/login"); });
document.addEventListener("keydown", (event) => {
  const writing = /** @type {HTMLElement} */ (event.target).matches("input, select");
  if (event.key === "Escape" && writing) /** @type {HTMLElement} */ (event.target).blur();
  if (event.key === "/" && !writing) { event.preventDefault(); $("filter").focus(); }
  if (event.key === "ArrowDown") { selected += 1; draw(); event.preventDefault(); }
  if (event.key === "ArrowUp") { selected -= 1; draw(); event.preventDefault(); }
  if (event.key === "Enter" && !/** @type {HTMLElement} */ (event.target).matches("a, button, select")) { const row = shown()[selected]; if (row) location.assign(`/read/${encodeURIComponent(row.study)}`); }
});
load().catch((error) => { $("failure").hidden = false; $("failure").textContent = error.message; });
setInterval(() => { if (!document.hidden) load().catch(() => { /* the next look may find the server */ }); }, 10_000);
