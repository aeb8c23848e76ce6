// The reader: joins player, time bar, lists and forms, and the keyboard that moves all of them.

import { Activity } from "./activity.js";
import { get, getBytes, studyOfPage, studyPath } from "./api.js";
import { makeBar } from "./bar.js";
import { grouped, makeStudy, timestamp } from "./curves.js";
import { $, counted, h, localTime, percent, toast } from "./dom.js";
import { makeDraft } from "./draft.js";
import { makeDrawing } from "./drawing.js";
import { Findings } from "./findings.js";
import { FrameStore } from "./frames.js";
import { Keys, askText, chooseLabel } from "./keys.js";
import { LANDMARKS, makeLandmarks } from "./landmarks.js";
import { FAST, Player, SPEEDS } from "./player.js";
import { Review } from "./review.js";
import { makeScores } from "./scores.js";
import { Suspects } from "./suspects.js";
import "./theme.js";

const study = studyOfPage();
const path = studyPath(study);
document.title = `Study ${study} · enteron reader`;
$("study-name").textContent = `Study ${study}`;

const start = async () => {
  // The picture comes first: curves and lists follow while it is decoded.
  const [facts, answer] = await Promise.all([get(path), get(`${path}/review`)]);
  const axis = makeStudy({ ...facts.frames, rows: facts.frames.count, bucket: 1, high: new Uint8Array(0), low: null, times: null, word: facts.word });
  const count = facts.frames.count;
  /** @param {number} position */
  const frameAt = (position) => position >= count ? facts.frames.end : axis.frameOf(position);
  /** The position of a frame, or of the nearest one that is there. @param {number} frame */
  const positionOf = (frame) => {
    const [position] = axis.rowsIn(frame, frame + 1);
    return Math.max(0, Math.min(count - 1, position));
  };
  /** @param {number} frame */
  const pictureOf = (frame) => `${path}/picture?placeholder=1&frame=${frameAt(positionOf(frame))}${found ? "&study=1" : ""}`;
  let found = false; // the study itself: images that were not stored can be asked for again

  const review = new Review(path, answer, new Set(facts.labels.flatMap((/** @type {{label: string, kind: string}} */ { label, kind }) => kind === "finding" ? [label] : [])));
  const frames = new FrameStore(path, count);
  /** @type {{ showPlace: (frame: number, words: boolean) => void, timeline: import("./timeline.js").Timeline } | null} */
  let bar = null;
  /** @type {Activity | null} */
  let activity = null;
  // Times are needed at once, curves are not.
  let timed = makeStudy({ ...facts.curves, high: new Uint8Array(0), low: null });
  let opening = 0; // the position at which the page opened, once that is known
  let asked = false;
  const refresh = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; finish(); });
  };
  const player = new Player($("stage"), frames, count, {
    onMove: refresh,
    onShown: (from, to, rate) => activity?.shown(from, to, rate),
  });
  activity = new Activity(review, () => player.playing, frameAt);
  const frame = () => frameAt(player.position);
  const finish = () => {
    const time = timed.seconds(frame());
    const last = Math.min(count, player.position + player.up) - 1;
    $("place").textContent = `${facts.word} ${grouped(frame())}${last > player.position ? `–${grouped(frameAt(last))}` : ""}${time === null ? "" : ` · ${timestamp(time)}`}`;
    $("speed-text").textContent = `${player.rate()}/s${player.rate() < player.speed ? ", slowed" : ""}`;
    $("speed-text").classList.toggle("is-fast", player.rate() > FAST);
    $("fast").hidden = player.rate() <= FAST;
    $("speed").value = String(SPEEDS.indexOf(SPEEDS.find((speed) => speed >= player.speed) ?? 8));
    $("play").textContent = player.playing ? "Pause" : "Play";
    $("auto").checked = player.auto;
    for (const button of document.querySelectorAll("button[data-up]")) button.setAttribute("aria-pressed", String(Number(/** @type {HTMLElement} */ (button).dataset.up) === player.up));
    $("opened").hidden = opening === 0 || player.position !== opening;
    bar?.showPlace(frame(), !player.playing);
    showEvents();
  };

  /** What is reported at the frame that is shown. */
  const showEvents = () => {
    const here = frame();
    const events = review.findings.filter((event) => event.start <= here && here < event.stop && event.decision !== "rejected");
    const key = events.map(({ id, label, decision }) => `${id} ${label} ${decision}`).join();
    if ($("here").dataset.key === key) return;
    $("here").dataset.key = key;
    $("here").replaceChildren(...events.map((event) => h("span", { class: `chip l-${columns.get(event.label)} is-${event.decision}` }, h("i", { class: "swatch" }), event.label, event.decision === "open" ? " ?" : "")));
  };
  const columns = new Map(facts.labels.map((/** @type {{label: string, column: number}} */ { label, column }) => [label, column]));
  const findingLabels = facts.labels.filter((/** @type {{kind: string}} */ { kind }) => kind === "finding");

  /** @param {number} to */
  const go = (to) => { player.pause(); player.show(positionOf(to)); };
  /** @param {string} id */
  const select = (id) => {
    const event = review.state.events[id];
    if (!event) return;
    findings.select(id);
    bar?.timeline.highlight(id);
    go(event.start);
  };
  // What is suspected is passed slowly with automatic speed.
  const markSlow = () => {
    player.slow.fill(0);
    for (const event of review.findings) if (event.decision !== "rejected") player.slow.fill(1, Math.max(0, positionOf(event.start) - 4), positionOf(event.stop - 1) + 5);
    for (const listed of facts.suspicious.slice(0, 100)) player.slow.fill(1, Math.max(0, positionOf(listed.frame) - 2), positionOf(listed.frame) + 3);
  };

  /** @param {string} label @param {number} from @param {number} to @param {string | null} [region] */
  const add = (label, from, to, region = null) => review.act({ kind: "add", label, start: from, stop: to, region }, `Added: ${label}.`);
  /** The frame after a frame. @param {number} at */
  const after = (at) => frameAt(positionOf(at) + 1);
  /** @param {string} id */
  const relabel = async (id) => {
    const event = review.state.events[id];
    const label = await chooseLabel(`What is it, if not ${event.label}?`, findingLabels.filter((/** @type {{label: string}} */ { label }) => label !== event.label));
    if (label) await review.act({ kind: "relabel", event: id, label }, `Now ${label}.`);
  };
  const current = () => {
    if (findings.current) return findings.current;
    const here = frame();
    return review.findings.find((event) => event.start <= here && here < event.stop);
  };
  /** @param {(event: import("./review.js").ReviewEvent) => void} run */
  const withCurrent = (run) => {
    const event = current();
    if (event) run(event); else toast("No finding is selected here: N goes to the next one.", "bad");
  };
  /** @param {string} name */
  const setLandmark = (name) => {
    const known = review.state.landmarks[name];
    if (known.frame === frame() && known.status === "proposed") review.act({ kind: "confirm-landmark", landmark: name }, `The ${name} is confirmed.`);
    else review.act({ kind: "move-landmark", landmark: name, frame: frame() }, `The ${name} is here now.`);
  };

  const findings = new Findings(facts, review, timed, { select });
  const suspects = new Suspects(facts, review, timed, {
    pictureOf,
    neighbours: (at) => [-3, -2, -1, 1, 2, 3].map((by) => positionOf(at) + by).filter((position) => position >= 0 && position < count).map(frameAt),
    open: (at) => { suspects.toggle(false); go(at); },
    relabel,
    add: (label, at, region) => add(label, at, after(at), region),
  });
  const showLandmarks = makeLandmarks(review, timed, { go, set: setLandmark, pictureOf });
  makeScores(review, timed, { pictureOf, go });
  const draft = makeDraft(study, review);

  // ---- tabs
  /** @param {string} name */
  const showTab = (name) => {
    for (const tab of document.querySelectorAll("[role=tab]")) {
      const on = /** @type {HTMLElement} */ (tab).dataset.tab === name;
      tab.setAttribute("aria-selected", String(on));
      $(`panel-${/** @type {HTMLElement} */ (tab).dataset.tab}`).hidden = !on;
    }
    if (name === "record") showRecord();
    suspects.toggle(false);
  };
  for (const tab of document.querySelectorAll("[role=tab]")) tab.addEventListener("click", () => showTab(/** @type {HTMLElement} */ (tab).dataset.tab ?? ""));
  /** @param {string | null} id of an event, in words that somebody can find it by */
  const nameOf = (id) => {
    const event = id === null ? undefined : review.state.events[id];
    return event ? ` (${event.label}, ${facts.word} ${grouped(event.start)})` : "";
  };
  const showRecord = async () => {
    const { entries } = await get(`${path}/history`);
    $("record-list").replaceChildren(...entries.reverse().map((/** @type {{time: string, sentence: string, event: string | null}} */ entry) => h("li", {}, h("span", { class: "small" }, `${localTime(entry.time)} `), entry.sentence, nameOf(entry.event))));
    $("comments-list").replaceChildren(...review.state.comments.map((remark) => h("li", {}, h("b", {}, remark.user), h("span", { class: "small" }, ` ${localTime(remark.time)}${remark.frame === null ? "" : ` · ${facts.word} ${grouped(remark.frame)}`} `), remark.text)));
  };

  // ---- keys
  const keys = new Keys();
  keys.layers.push((event, name) => suspects.pressed(event, name));
  keys.add("Playing", ["Space"], "play or pause", () => player.toggle());
  keys.add("Playing", ["ArrowRight"], "one frame on", () => player.step(player.up));
  keys.add("Playing", ["ArrowLeft"], "one frame back", () => player.step(-player.up));
  keys.add("Playing", ["Shift+ArrowRight"], "ten frames on", () => player.step(10 * player.up));
  keys.add("Playing", ["Shift+ArrowLeft"], "ten frames back", () => player.step(-10 * player.up));
  keys.add("Playing", ["B"], "play backwards", () => player.playing ? player.pause() : player.play(-1));
  keys.add("Playing", ["ArrowUp"], "faster", () => player.faster(1));
  keys.add("Playing", ["ArrowDown"], "slower", () => player.faster(-1));
  keys.add("Playing", ["U"], "automatic speed: slower where something is suspected", () => { player.auto = !player.auto; refresh(); });
  for (const up of [1, 2, 4]) keys.add("Playing", [String(up)], `${up === 1 ? "one frame" : `${up} frames`} at once`, () => player.setUp(up));
  keys.add("Playing", ["J"], "jump to a frame or a time", () => { $("jump").focus(); $("jump").select(); });
  keys.add("Playing", ["V"], "this frame in full size, also one that was withheld", async () => {
    player.pause();
    const position = player.position, withheld = frames.get(position)?.flag === 4;
    try {
      const jpeg = await getBytes(`${path}/picture?frame=${frameAt(position)}&${withheld ? "withheld" : "whole"}=1`);
      await frames.replace(position, new Blob([jpeg], { type: "image/jpeg" }));
      if (withheld && player.position === position) player.show(position); // now it is looked at
    } catch { toast("There is no picture of this frame.", "bad"); }
  });
  keys.add("Playing", ["Home"], "to the first frame", () => player.step(-count));
  keys.add("Playing", ["End"], "to the last frame", () => player.step(count));
  keys.add("Findings", ["S"], "suspicious frames, the most suspicious first", () => suspects.toggle());
  keys.add("Findings", ["N"], "next finding", () => { const event = findings.beside(frame(), 1); if (event) select(event.id); });
  keys.add("Findings", ["P"], "previous finding", () => { const event = findings.beside(frame(), -1); if (event) select(event.id); });
  keys.add("Findings", ["A"], "accept: it is real", () => withCurrent((event) => review.act({ kind: "confirm", event: event.id }, `Confirmed: ${event.label}.`)));
  keys.add("Findings", ["X"], "reject: it is not", () => withCurrent((event) => review.act({ kind: "reject", event: event.id }, `Rejected: ${event.label}.`)));
  keys.add("Findings", ["R"], "it is something else", () => withCurrent((event) => { relabel(event.id); }));
  keys.add("Findings", ["["], "it begins here", () => withCurrent((event) => review.act({ kind: "trim", event: event.id, start: frame(), stop: Math.max(event.stop, after(frame())) }, "Trimmed.")));
  keys.add("Findings", ["]"], "it ends here", () => withCurrent((event) => review.act({ kind: "trim", event: event.id, start: Math.min(event.start, frame()), stop: after(frame()) }, "Trimmed.")));
  keys.add("Findings", ["Q"], "bleeding potential: P0, P1, P2, none", () => withCurrent((event) => {
    const next = { P0: "P1", P1: "P2", P2: null }[event.saurin ?? ""];
    review.act({ kind: "grade", event: event.id, saurin: event.saurin ? next : "P0" }, event.saurin && !next ? "No bleeding potential given." : `Bleeding potential ${next ?? "P0"}.`);
  }));
  keys.add("Findings", ["M"], "add a finding that was missed, at this frame", async () => {
    player.pause();
    const at = frame();
    const label = await chooseLabel(`What does ${facts.word} ${grouped(at)} show?`, findingLabels);
    if (label) await add(label, at, after(at));
  });
  keys.add("Findings", ["/"], "comment on this frame or finding", async () => {
    player.pause();
    const at = frame(), event = findings.current;
    const text = await askText(`Comment on ${event ? event.label : `${facts.word} ${grouped(at)}`}`);
    if (text) { await review.act({ kind: "comment", text, frame: at, ...(event ? { event: event.id } : {}) }, "The comment is recorded."); }
  });
  keys.add("Findings", ["Escape"], "nothing selected", () => { findings.select(null); bar?.timeline.highlight(undefined); });
  for (const [key, name] of LANDMARKS) {
    keys.add("Landmarks", [key], `go to the ${name}`, () => { const at = review.state.landmarks[name].frame; if (at !== null) go(at); else toast(`The ${name} is not known.`, "bad"); });
    keys.add("Landmarks", [`Shift+${key}`], `the ${name} is here (confirms it where it was proposed)`, () => setLandmark(name));
  }
  keys.add("Review", ["Z", "Ctrl+Z"], "undo", () => review.undo());
  keys.add("Review", ["Y", "Ctrl+Y", "Ctrl+Shift+Z"], "redo", () => review.redo());
  for (const [key, tab, what] of [["E", "findings", "findings"], ["L", "landmarks", "landmarks and transit"], ["O", "scores", "scores"], ["W", "report", "report"], ["H", "record", "comments and record"]]) keys.add("Review", [key], `show ${what}`, () => showTab(tab));
  keys.add("Review", ["Ctrl+Enter"], "sign the report", () => { /** @type {HTMLElement} */ (document.activeElement)?.blur(); draft.open(); });
  keys.add("Time bar", ["+", "="], "zoom in", () => bar?.timeline.actions.in());
  keys.add("Time bar", ["-"], "zoom out", () => bar?.timeline.actions.out());
  keys.add("Time bar", ["0"], "the whole study", () => bar?.timeline.actions.whole());
  keys.add("Help", ["?"], "these shortcuts", () => keys.showHelp());
  $("help-open").addEventListener("click", () => keys.showHelp());

  // ---- controls
  $("play").addEventListener("click", () => player.toggle());
  $("back").addEventListener("click", () => player.step(-player.up));
  $("on").addEventListener("click", () => player.step(player.up));
  $("speed").max = String(SPEEDS.length - 1);
  $("speed").addEventListener("input", () => { player.speed = SPEEDS[Number($("speed").value)]; refresh(); });
  $("auto").addEventListener("change", () => { player.auto = $("auto").checked; refresh(); });
  for (const button of document.querySelectorAll("button[data-up]")) button.addEventListener("click", () => player.setUp(Number(/** @type {HTMLElement} */ (button).dataset.up)));
  $("jump").placeholder = facts.curves.times ? `${facts.word} or h:mm:ss` : facts.word;
  $("jump-form").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    const text = $("jump").value.trim();
    const parts = text.split(":").map(Number);
    let to = null;
    if (/^\d+$/.test(text)) to = Number(text);
    else if (/^\d+(:\d{1,2}){1,2}$/.test(text)) to = timed.frameAtTime(parts.reduce((/** @type {number} */ sum, /** @type {number} */ part) => 60 * sum + part, 0));
    if (to === null) toast(`Give a ${facts.word} such as 1200${facts.curves.times ? ", or a time such as 1:02:30" : ""}.`, "bad");
    else { go(Math.round(to)); $("jump").blur(); }
  });
  $("undo").addEventListener("click", () => review.undo());
  $("redo").addEventListener("click", () => review.redo());
  $("suspects-open").addEventListener("click", () => suspects.toggle());
  $("suspects-close").addEventListener("click", () => suspects.toggle(false));

  const status = () => {
    $("undo").disabled = !review.answer.can_undo;
    $("redo").disabled = !review.answer.can_redo;
    $("user").textContent = `${review.answer.user.name}${review.answer.user.role === "viewer" ? " (viewer)" : ""}`;
    $("here").dataset.key = "?";
    markSlow();
    refresh();
  };
  const noted = () => {
    $("status").textContent = review.state.status;
    $("status").className = `badge is-${review.state.status.replace(" ", "-")}`;
    $("minutes").textContent = `${(review.answer.summary.measures.active_seconds / 60).toFixed(1)} min read`;
    const { comments, version } = review.state, key = `${version} ${comments.length}`;
    if (!$("panel-record").hidden && $("panel-record").dataset.key !== key) { $("panel-record").dataset.key = key; showRecord(); }
  };
  review.listeners.add(status);
  review.noted.add(noted);
  status();
  noted();
  $("cautions").replaceChildren(...facts.cautions.map((/** @type {string} */ sentence) => h("p", {}, sentence)));
  $("cautions").hidden = facts.cautions.length === 0;
  $("notes").replaceChildren(...facts.notes.map((/** @type {string} */ note) => h("li", {}, note)));
  $("reader").classList.add("is-ready");

  // Where pictures come from; asked again until it is settled.
  let kind = "", openedOnce = false;
  const lookForSource = async () => {
    const source = await get(`${path}/source`);
    $("source").textContent = source.share === null ? (source.kind === "study" ? "" : source.sentence) : `${source.sentence} ${percent(source.share)}`;
    if (source.kind !== kind && kind && ["study", "packing"].includes(source.kind) && !["study", "packing"].includes(kind)) { found = true; frames.forget(); player.show(player.position); suspects.build(); showLandmarks(); }
    kind = source.kind;
    if (source.first !== null && !openedOnce) {
      openedOnce = true;
      // A study often begins with cards that may hold a name: whoever has not moved yet starts behind them.
      if (source.first > 0 && player.position === 0 && !player.playing) {
        opening = source.first;
        const before = `${counted(opening, facts.word)} before this one`;
        $("opened").textContent = kind === "stored" ? `Of the ${before} no picture is stored.` : `Opened here: the ${before} may hold a name, or cannot be read. Home goes there, V shows one.`;
        player.show(opening);
      }
    }
    if (["searching", "checking", "packing"].includes(kind) || source.first === null) setTimeout(lookForSource, source.first === null ? 300 : 3000);
  };
  lookForSource();

  const bytes = await getBytes(`${path}/curves`);
  const half = bytes.length / (facts.curves.bucket === 1 ? 1 : 2);
  timed = makeStudy({ ...facts.curves, high: bytes.subarray(0, half), low: facts.curves.bucket === 1 ? null : bytes.subarray(half) });
  bar = makeBar(timed, makeDrawing(timed), facts, review, { pick: go, pictureOf, select });
  refresh();
  // For benchmarks and tests, which drive the page as a person would and read what it measured.
  Reflect.set(window, "enteron", { player, frames, review, suspects, findings, activity, frameAt, positionOf });
  $("reader").classList.add("is-complete");
};

start().catch((error) => { $("failure").hidden = false; $("failure").textContent = error.message; });
