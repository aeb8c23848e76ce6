import { grouped, timestamp } from "./curves.js";

// The timeline. All rows and curves share one view: it begins at share x of the study and is enlarged
// z times.
//
// A page may ask to be told when a place is pointed at or picked, and may handle keys by itself.
/**
 * @typedef {object} Hooks
 * @property {(frame: number, clientX: number) => void} [onPoint]
 * @property {(frame: number) => void} [onPick]
 * @property {boolean} [ownKeys] the page handles the keyboard
 * @property {string[]} [names] of the labels, where not every one has a row
 */
/** @typedef {ReturnType<typeof makeTimeline>} Timeline */

/**
 * @param {import("./curves.js").Study} study
 * @param {import("./drawing.js").Drawing} drawing
 * @param {Hooks} hooks
 */
export const makeTimeline = (study, drawing, hooks = {}) => {
  /** @param {string} id */
  const element = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
  /** @param {EventTarget | null} target @param {string} selector */
  const closest = (target, selector) => /** @type {HTMLElement | null} */ (/** @type {Element} */ (target).closest(selector));
  const tracks = element("tracks");
  const readout = element("readout");
  const tip = element("tip");
  const strip = element("strip");
  const stripWindow = element("strip-window");
  const needle = element("strip-needle");
  /** @type {HTMLCanvasElement[]} */
  let curves = [];
  /** @type {Record<string, string>} */
  const names = Object.fromEntries((hooks.names ?? []).entries());
  const collectCurves = () => {
    /** @type {NodeListOf<HTMLCanvasElement>} */
    const canvases = document.querySelectorAll(".label-row canvas[data-column]");
    curves = [...canvases];
    for (const canvas of curves) names[canvas.dataset.column ?? ""] = (closest(canvas, ".row")?.querySelector(".name")?.textContent ?? "").trim();
  };
  collectCurves();
  const axis = /** @type {HTMLCanvasElement} */ (tracks.querySelector("canvas[data-axis]"));
  const cursorLine = element("cursor");
  const lane = /** @type {HTMLElement} */ (tracks.querySelector(".transit-lane"));
  // Deepest zoom: eight rows across, and no field wider than browsers can lay out.
  const deepest = Math.max(1, Math.min(study.length / (8 * study.step), 1.5e7 / Math.max(600, screen.width)));
  let x = 0, z = 1, cursor = -1, scheduled = false;

  /** @param {HTMLElement} mark @param {string} name */
  const property = (mark, name) => Number(mark.style.getPropertyValue(name));
  /** @param {HTMLElement} mark */
  const extent = (mark) => ({ start: property(mark, "--start"), width: property(mark, "--width") });
  // What stands in the lanes; collected again where a page has changed it.
  /** @type {HTMLElement[]} */
  let marks = [];
  /** @type {HTMLElement[]} */
  let fields = [];
  /** @type {Map<string | undefined, HTMLElement>} */
  let markByEvent = new Map();
  /** @type {{ start: number, width: number, name: string, text: HTMLElement, textWidth: number }[]} */
  let regions = [];
  const collect = () => {
    marks = [...tracks.querySelectorAll(".mark")].map((mark) => /** @type {HTMLElement} */ (mark));
    fields = [...tracks.querySelectorAll(".field")].map((field) => /** @type {HTMLElement} */ (field));
    markByEvent = new Map(marks.map((mark) => [mark.dataset.event, mark]));
    regions = marks.filter((mark) => mark.matches(".region-mark")).map((mark) => {
      const text = /** @type {HTMLElement} */ (mark.firstElementChild);
      return { ...extent(mark), name: mark.textContent ?? "", text, textWidth: text.offsetWidth };
    });
    // One stop for the Tab key per lane.
    for (const row of tracks.querySelectorAll(".lane")) {
      row.querySelectorAll(".mark").forEach((mark, index) => { /** @type {HTMLElement} */ (mark).tabIndex = index === 0 ? 0 : -1; });
    }
    schedule();
  };
  /** @param {number} value @param {number} low @param {number} high */
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const view = () => ({ x, z });
  /** @param {number} left @param {number} zoom */
  const setView = (left, zoom) => {
    z = clamp(zoom, 1, deepest);
    x = clamp(left, 0, 1 - 1 / z);
    schedule();
  };
  /** @param {number} factor @param {number} share */
  const zoomAt = (factor, share) => {
    const next = clamp(z * factor, 1, deepest);
    setView(share - (share - x) * z / next, next);
  };
  const schedule = () => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => { scheduled = false; draw(); });
  };

  const draw = (scale = window.devicePixelRatio || 1) => {
    for (const field of fields) {
      field.style.left = `${-100 * x * z}%`;
      field.style.width = `${100 * z}%`;
    }
    // A region's name stays in sight while enough of the region does.
    const wide = lane.clientWidth;
    for (const { start, width, text, textWidth } of regions) {
      const room = (Math.min(start + width, x + 1 / z) - Math.max(start, x)) * z * wide;
      text.style.visibility = room < textWidth ? "hidden" : "";
      text.style.transform = start < x ? `translateX(${(x - start) * z * wide}px)` : "";
    }
    placeCursor();
    if (strip) {
      stripWindow.style.display = z > 1.001 ? "block" : "none";
      stripWindow.style.left = `${100 * x}%`;
      stripWindow.style.width = `${100 / z}%`;
    }
    drawing.axis(axis, scale, { x, z });
    drawing.curves(curves, scale, { x, z });
  };

  // The cursor, and above the timeline its frame, time, region and most probable labels.
  /** @param {number} frame */
  const moment = (frame) => {
    const time = study.seconds(frame);
    return `${study.word} ${grouped(frame)}` + (time === null ? "" : ` · ${timestamp(time)}`);
  };
  const placeCursor = () => {
    const position = (cursor - x) * z;
    cursorLine.hidden = cursor < 0 || position < 0 || position > 1;
    if (!cursorLine.hidden) cursorLine.style.transform = `translateX(${lane.offsetLeft + position * lane.clientWidth}px)`;
  };
  /** @param {number} position */
  const moveCursor = (position) => {
    cursor = clamp(position, 0, 1);
    placeCursor();
    describeCursor();
  };
  const describeCursor = () => {
    const frame = Math.min(study.end - 1, Math.floor(study.first + cursor * study.length));
    const row = study.rowAt(frame);
    readout.replaceChildren();
    const strong = document.createElement("b");
    strong.textContent = moment(row < 0 ? frame : study.frameOf(row));
    readout.append(strong);
    if (row < 0) { readout.append(` · this ${study.word} is missing or could not be read`); return; }
    /** @type {{ label: number, value: number }[]} */
    const probabilities = [];
    for (let label = 0; label < study.LABELS; label++) {
      probabilities.push({ label, value: study.range(label, row, row + 1, study.levels[0])[1] / 255 });
    }
    /** @param {number} from @param {number} [to] */
    const descending = (from, to) => probabilities.slice(from, to).sort((a, b) => b.value - a.value);
    const [probable] = descending(0, 5); // the first five labels are the regions
    const region = regions.find(({ start, width }) => start <= cursor && cursor < start + width);
    readout.append(` · ${region ? region.name : "no region"} (this ${study.word} alone: ${names[probable.label]} ${probable.value.toFixed(2)})`);
    for (const { label, value } of descending(5).slice(0, 3)) {
      if (value >= 0.05) readout.append(` · ${names[label]} ${value.toFixed(2)}`);
    }
  };

  /** @param {number} clientX */
  const shareAt = (clientX) => {
    const box = lane.getBoundingClientRect();
    return x + clamp((clientX - box.left) / box.width, 0, 1) / z;
  };

  /** @param {number} clientX */
  const frameAt = (clientX) => Math.min(study.end - 1, Math.floor(study.first + shareAt(clientX) * study.length));

  // Pointers: one that is pressed drags, two pinch, one that is not pressed moves the cursor.
  /** @type {Map<number, PointerEvent>} */
  const pressed = new Map();
  let dragged = 0;
  /** @type {{ distance: number, z: number, share: number } | null} */
  let pinch = null;
  tracks.addEventListener("pointerdown", (event) => {
    if (!closest(event.target, ".lane") || event.button > 0) return;
    pressed.set(event.pointerId, event);
    dragged = 0;
    if (pressed.size === 2) {
      const [a, b] = [...pressed.values()];
      pinch = { distance: Math.abs(a.clientX - b.clientX) || 1, z, share: shareAt((a.clientX + b.clientX) / 2) };
    }
  });
  tracks.addEventListener("pointermove", (event) => {
    const before = pressed.get(event.pointerId);
    if (!before) {
      if (!closest(event.target, ".lane")) return;
      if (hooks.onPoint) hooks.onPoint(frameAt(event.clientX), event.clientX); else moveCursor(shareAt(event.clientX));
      hover(event);
      return;
    }
    pressed.set(event.pointerId, event);
    if (pinch && pressed.size === 2) {
      const [a, b] = [...pressed.values()];
      const next = clamp(pinch.z * Math.abs(a.clientX - b.clientX) / pinch.distance, 1, deepest);
      const box = lane.getBoundingClientRect();
      const middle = ((a.clientX + b.clientX) / 2 - box.left) / box.width;
      dragged = 99;
      setView(pinch.share - middle / next, next);
      return;
    }
    const moved = event.clientX - before.clientX;
    dragged += Math.abs(moved);
    if (dragged > 4) {
      if (!tracks.hasPointerCapture(event.pointerId)) tracks.setPointerCapture(event.pointerId);
      tip.hidden = true;
      setView(x - moved / lane.getBoundingClientRect().width / z, z);
    }
  });
  /** @param {PointerEvent} event */
  const release = (event) => {
    pressed.delete(event.pointerId);
    if (pressed.size < 2) pinch = null;
    if (event.type === "pointerup" && dragged <= 4 && closest(event.target, ".lane")) {
      if (hooks.onPick && !closest(event.target, ".mark:not(.region-mark)")) hooks.onPick(frameAt(event.clientX));
      moveCursor(shareAt(event.clientX));
    }
  };
  tracks.addEventListener("pointerup", release);
  tracks.addEventListener("pointercancel", release);
  tracks.addEventListener("pointerleave", () => { tip.hidden = true; });
  tracks.addEventListener("dragstart", (event) => event.preventDefault());
  tracks.addEventListener("wheel", (event) => {
    if (!closest(event.target, ".lane")) return;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (sideways && z > 1) {
      event.preventDefault();
      setView(x + (event.deltaX || event.deltaY) / lane.clientWidth / z, z);
    } else if (event.ctrlKey || event.metaKey || tracks.contains(document.activeElement)) {
      event.preventDefault();
      zoomAt(Math.exp(-clamp(event.deltaY, -120, 120) / 240), shareAt(event.clientX));
    }
  }, { passive: false });

  /** @type {Record<string, () => void>} */
  const actions = {
    in: () => zoomAt(1.7, cursor >= x && cursor <= x + 1 / z ? cursor : x + 0.5 / z),
    out: () => zoomAt(1 / 1.7, cursor >= x && cursor <= x + 1 / z ? cursor : x + 0.5 / z),
    left: () => setView(x - 0.3 / z, z),
    right: () => setView(x + 0.3 / z, z),
    whole: () => setView(0, 1),
  };
  element("controls").hidden = false;
  element("controls").addEventListener("click", (event) => {
    const button = closest(event.target, "button[data-action]");
    if (button) actions[button.dataset.action ?? ""]?.();
  });
  /** @param {number} share */
  const stepTo = (share) => {
    moveCursor(share);
    if (cursor < x) setView(cursor - 0.1 / z, z);
    if (cursor > x + 1 / z) setView(cursor - 0.9 / z, z);
  };
  tracks.addEventListener("keydown", (event) => {
    if (hooks.ownKeys || event.ctrlKey || event.metaKey || event.altKey) return;
    const mark = closest(event.target, ".mark");
    if (mark && ["ArrowLeft", "ArrowRight"].includes(event.key) && !event.shiftKey) {
      const inLane = marks.filter((other) => other.parentElement === mark.parentElement).sort((a, b) => property(a, "--start") - property(b, "--start"));
      const next = inLane[inLane.indexOf(mark) + (event.key === "ArrowRight" ? 1 : -1)];
      if (next) { for (const other of inLane) other.tabIndex = -1; next.tabIndex = 0; reveal(next); next.focus({ preventScroll: true }); }
      event.preventDefault();
      return;
    }
    const start = cursor < 0 ? x : cursor;
    const step = Math.max(1 / z / lane.clientWidth, study.step / study.length); // a pixel, or a row if that is wider
    /** @type {Record<string, () => void>} */
    const keys = {
      "+": actions.in, "=": actions.in, "-": actions.out, "0": actions.whole,
      ArrowLeft: () => event.shiftKey ? actions.left() : stepTo(start - step),
      ArrowRight: () => event.shiftKey ? actions.right() : stepTo(start + step),
      PageUp: () => stepTo(start - 0.1 / z), PageDown: () => stepTo(start + 0.1 / z),
      Home: () => stepTo(0), End: () => stepTo(1),
    };
    if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
  });

  // Marks: a tooltip with the picture, a way to the card.
  /** @param {HTMLElement} mark */
  const reveal = (mark) => {
    const { start, width } = extent(mark);
    if (start + width < x || start > x + 1 / z) setView(start + width / 2 - 0.5 / z, z);
  };
  /** @param {HTMLElement} mark */
  const showTip = (mark) => {
    tip.replaceChildren();
    const card = document.getElementById(`event-${mark.dataset.event}`);
    const picture = card && card.querySelector("img");
    if (picture) { const copy = new Image(); copy.src = picture.src; copy.alt = ""; tip.append(copy); }
    tip.append(mark.getAttribute("aria-label") ?? "");
    tip.hidden = false;
    const box = tracks.getBoundingClientRect(), target = mark.getBoundingClientRect();
    const left = Math.max(target.left, lane.getBoundingClientRect().left), right = Math.min(target.right, box.right);
    tip.style.left = `${clamp((left + right) / 2 - box.left - tip.offsetWidth / 2, 0, box.width - tip.offsetWidth)}px`;
    // Above the mark, or below it where the bar at the top of the page would cover the tip.
    const fitsAbove = target.top - tip.offsetHeight - 60 > 0;
    tip.style.top = `${fitsAbove ? target.top - box.top - tip.offsetHeight - 8 : target.bottom - box.top + 8}px`;
  };
  /** @param {PointerEvent} event */
  const hover = (event) => {
    const mark = closest(event.target, ".mark");
    if (mark && event.pointerType === "mouse") showTip(mark); else tip.hidden = true;
  };
  tracks.addEventListener("focusin", (event) => {
    const mark = closest(event.target, ".mark");
    if (mark && mark.matches(":focus-visible")) { reveal(mark); showTip(mark); }
  });
  tracks.addEventListener("focusout", (event) => { if (closest(event.target, ".mark")) tip.hidden = true; });
  tracks.addEventListener("click", (event) => {
    const mark = closest(event.target, ".mark");
    if (!mark) return;
    event.preventDefault();
    // Regions fill their lane: where places are picked, a click there means the place.
    if (dragged > 4 || (hooks.onPick && event.detail > 0 && mark.matches(".region-mark"))) return;
    tip.hidden = true;
    document.dispatchEvent(new CustomEvent("show-card", { detail: mark.dataset.event }));
  });

  // Highlight an event's mark and show where it lies; none if the number is unknown.
  /** @param {string | number | undefined} number */
  const highlight = (number) => {
    for (const mark of tracks.querySelectorAll(".mark.is-lit")) mark.classList.remove("is-lit");
    const mark = markByEvent.get(String(number));
    if (needle) needle.hidden = !mark;
    if (!mark) return;
    mark.classList.add("is-lit");
    const { start, width } = extent(mark);
    if (needle) needle.style.left = `${100 * (start + width / 2)}%`;
    reveal(mark);
    moveCursor(start + width / 2);
  };
  // Centre an event and enlarge it until it stands apart from its neighbours.
  /** @param {string | number} number */
  const focusOn = (number) => {
    const mark = markByEvent.get(String(number));
    if (!mark) return;
    const { start, width } = extent(mark);
    const zoom = clamp(Math.max(z, Math.min(0.15 / Math.max(width, 1e-9), 24)), 1, deepest);
    setView(start + width / 2 - 0.5 / zoom, zoom);
    highlight(number);
  };

  /** @param {PointerEvent} event */
  const jump = (event) => {
    const box = strip.getBoundingClientRect();
    setView((event.clientX - box.left) / box.width - 0.5 / z, z);
    moveCursor(clamp((event.clientX - box.left) / box.width, 0, 1));
  };
  strip?.addEventListener("pointerdown", (event) => { strip.setPointerCapture(event.pointerId); jump(event); });
  strip?.addEventListener("pointermove", (event) => { if (strip.hasPointerCapture(event.pointerId)) jump(event); });

  document.addEventListener("themechange", () => { drawing.forgetColours(); schedule(); });
  new ResizeObserver(() => schedule()).observe(tracks);
  const more = /** @type {HTMLDetailsElement | null} */ (document.getElementById("more-curves"));
  more?.addEventListener("toggle", () => schedule());
  // On paper: the whole study, every curve, in three times the resolution.
  /** @type {{ x: number, z: number, cursor: number, open: boolean } | null} */
  let before = null;
  addEventListener("beforeprint", () => {
    before = { x, z, cursor, open: more?.open ?? false };
    x = 0; z = 1; cursor = -1;
    if (more) more.open = true;
    drawing.forgetColours();
    draw(3);
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    ({ x, z, cursor } = before);
    if (more) more.open = before.open;
    before = null;
    drawing.forgetColours();
    schedule();
  });
  collect();
  draw();
  // The cursor at a place that is shown elsewhere; the view follows it. Words take time: not while playing.
  /** @param {number} share @param {boolean} words */
  const showPlace = (share, words) => {
    cursor = clamp(share, 0, 1);
    if (z > 1 && (cursor < x || cursor > x + 1 / z)) setView(cursor - 0.1 / z, z);
    placeCursor();
    if (words) describeCursor(); else if (readout.firstChild) readout.replaceChildren();
  };
  const curvesChanged = () => { collectCurves(); schedule(); };
  return { view, setView, zoomAt, highlight, focusOn, draw, collect, curvesChanged, showPlace, frameAt, actions };
};
