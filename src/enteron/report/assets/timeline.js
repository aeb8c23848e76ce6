// The timeline: one view, from share x of the study, z times enlarged, for all rows and curves.
const timeline = (() => {
  const tracks = document.getElementById("tracks");
  const readout = document.getElementById("readout");
  const tip = document.getElementById("tip");
  const strip = document.getElementById("strip");
  const stripWindow = document.getElementById("strip-window");
  const needle = document.getElementById("strip-needle");
  const labels = [...document.querySelectorAll(".label-row canvas[data-column]")];
  const names = {};
  for (const canvas of labels) names[canvas.dataset.column] = canvas.closest(".row").querySelector(".name").textContent.trim();
  const axis = tracks.querySelector("canvas[data-axis]");
  const marks = [...tracks.querySelectorAll(".mark")];
  const markOf = new Map(marks.map((mark) => [mark.dataset.event, mark]));
  const fields = [...tracks.querySelectorAll(".field")];
  const line = document.getElementById("cursor");
  const lane = tracks.querySelector(".transit-lane");
  // Deepest zoom: eight rows across, and no field wider than browsers can lay out.
  const reach = Math.max(1, Math.min(study.length / (8 * study.step), 1.5e7 / Math.max(600, screen.width)));
  let x = 0, z = 1, cursor = -1, waiting = false;

  const place = (mark) => ({ a: Number(mark.style.getPropertyValue("--a")), w: Number(mark.style.getPropertyValue("--w")) });
  const stays = marks.filter((mark) => mark.matches(".stay")).map((mark) => ({ ...place(mark), name: mark.textContent, text: mark.firstElementChild, needed: mark.firstElementChild.offsetWidth }));
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const view = () => ({ x, z });
  const setView = (left, zoom) => {
    z = clamp(zoom, 1, reach);
    x = clamp(left, 0, 1 - 1 / z);
    schedule();
  };
  const zoomAt = (factor, share) => {
    const next = clamp(z * factor, 1, reach);
    setView(share - (share - x) * z / next, next);
  };
  const schedule = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  };

  const fitted = (canvas, scale) => {
    const box = canvas.getBoundingClientRect();
    const width = Math.max(1, Math.round(box.width * scale)), height = Math.max(1, Math.round(box.height * scale));
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    const pen = canvas.getContext("2d");
    return { pen, width, height, visible: box.width > 0 };
  };

  // For every pixel of a canvas the rows [from, to) that it shows; from is -1 in a gap.
  const columns = new Map();
  const rowsOf = (width) => {
    if (columns.has(width)) return columns.get(width);
    const from = new Int32Array(width), to = new Int32Array(width);
    const perPixel = study.length / z / width;
    for (let p = 0; p < width; p++) {
      const start = study.first + x * study.length + p * perPixel;
      const [first, last] = study.rowsIn(start, start + perPixel);
      from[p] = first < last ? first : -1;
      to[p] = last;
    }
    columns.set(width, { from, to });
    return columns.get(width);
  };

  // Pixels are written one by one: filling a path of a thousand corners takes ten times as long.
  const colours = new Map();
  const colourOf = (canvas) => {
    if (!colours.has(canvas)) {
      const hex = getComputedStyle(canvas).getPropertyValue("--line").trim();
      const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
      colours.set(canvas, (blue << 16) | (green << 8) | red);
    }
    return colours.get(canvas);
  };
  const drawCurve = (canvas, scale) => {
    const { pen, width, height, visible } = fitted(canvas, scale);
    if (!visible) return;
    const { from, to } = rowsOf(width);
    const level = study.levelFor(study.rows / z / width);
    const { size, count, low, high } = level;
    const base = Number(canvas.dataset.column) * count;
    const picture = pen.createImageData(width, height);
    const pixels = new Uint32Array(picture.data.buffer); // 0xAABBGGRR on every machine in use
    const colour = colourOf(canvas);
    const dark = (0xe6000000 | colour) >>> 0, pale = (0x6b000000 | colour) >>> 0;
    for (let p = 0; p < width; p++) {
      if (from[p] < 0) continue;
      const first = Math.min(count - 1, Math.floor(from[p] / size));
      const last = Math.min(count, Math.max(first + 1, Math.ceil(to[p] / size)));
      let least = 255, most = 0;
      for (let i = base + first; i < base + last; i++) {
        if (low[i] < least) least = low[i];
        if (high[i] > most) most = high[i];
      }
      const top = height - Math.round(height * most / 255), middle = height - Math.round(height * least / 255);
      let at = top * width + p, row = top;
      for (; row < middle; row++, at += width) pixels[at] = pale;
      for (; row < height; row++, at += width) pixels[at] = dark;
    }
    pen.putImageData(picture, 0, 0);
  };

  const STEPS_TIME = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800];
  const drawAxis = (scale) => {
    const { pen, width, height, visible } = fitted(axis, scale);
    if (!visible) return;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.scale(scale, scale);
    const wide = width / scale, tall = height / scale;
    const style = getComputedStyle(axis);
    pen.font = "12px " + style.fontFamily;
    pen.fillStyle = style.getPropertyValue("--soft");
    pen.strokeStyle = style.getPropertyValue("--soft");
    const first = study.first + x * study.length, span = study.length / z;
    const timed = study.times !== null;
    const begin = timed ? study.seconds(first) : first;
    const end = timed ? study.seconds(first + span) : first + span;
    const want = (end - begin) / Math.max(2, wide / 110);
    let step = timed ? STEPS_TIME.find((s) => s >= want) : undefined;
    if (step === undefined) {
      const power = 10 ** Math.floor(Math.log10(Math.max(want, 1)));
      step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= want) || 10 * power;
    }
    pen.beginPath();
    for (let value = Math.ceil(begin / step) * step; value <= end; value += step) {
      const at = (value - begin) / (end - begin) * wide;
      pen.moveTo(Math.round(at) + 0.5, tall - 5); pen.lineTo(Math.round(at) + 0.5, tall);
      const text = timed ? (step % 60 === 0 ? clockText(value).slice(0, -3) + " h" : clockText(value)) : grouped(value);
      const half = pen.measureText(text).width / 2;
      pen.fillText(text, clamp(at - half, 0, wide - 2 * half), tall - 9);
    }
    pen.stroke();
  };

  const draw = (scale = window.devicePixelRatio || 1) => {
    columns.clear();
    for (const field of fields) {
      field.style.left = `${-100 * x * z}%`;
      field.style.width = `${100 * z}%`;
    }
    // A region's name stays in sight while enough of the region does.
    const wide = lane.clientWidth;
    for (const { a, w, text, needed } of stays) {
      const room = (Math.min(a + w, x + 1 / z) - Math.max(a, x)) * z * wide;
      text.style.visibility = room < needed ? "hidden" : "";
      text.style.transform = a < x ? `translateX(${(x - a) * z * wide}px)` : "";
    }
    placeCursor();
    stripWindow.style.display = z > 1.001 ? "block" : "none";
    stripWindow.style.left = `${100 * x}%`;
    stripWindow.style.width = `${100 / z}%`;
    drawAxis(scale);
    for (const canvas of labels) drawCurve(canvas, scale);
  };

  // Cursor: which frame, when, where, and what the model gives it.
  const moment = (frame) => {
    const time = study.seconds(frame);
    return `${study.word} ${grouped(frame)}` + (time === null ? "" : ` · ${clockText(time)}`);
  };
  const placeCursor = () => {
    const at = (cursor - x) * z;
    line.hidden = cursor < 0 || at < 0 || at > 1;
    if (!line.hidden) line.style.transform = `translateX(${lane.offsetLeft + at * lane.clientWidth}px)`;
  };
  const read = (share) => {
    cursor = clamp(share, 0, 1);
    placeCursor();
    const frame = Math.min(study.end - 1, Math.floor(study.first + cursor * study.length));
    const row = study.rowAt(frame);
    readout.replaceChildren();
    const strong = document.createElement("b");
    strong.textContent = moment(row < 0 ? frame : study.frameOf(row));
    readout.append(strong);
    if (row < 0) { readout.append(" · not part of the study"); return; }
    const here = [];
    for (let label = 0; label < study.LABELS; label++) {
      here.push([study.range(label, row, row + 1, study.levels[0])[1] / 255, label]);
    }
    const region = here.slice(0, 5).sort((a, b) => b[0] - a[0])[0];
    const stay = stays.find(({ a, w }) => a <= cursor && cursor < a + w);
    const where = stay ? stay.name : "no region";
    const top = here.slice(5).sort((a, b) => b[0] - a[0]).slice(0, 3).filter((pair) => pair[0] >= 0.05);
    readout.append(` · ${where} (likeliest here: ${names[region[1]]} ${region[0].toFixed(2)})`);
    for (const [value, label] of top) readout.append(` · ${names[label]} ${value.toFixed(2)}`);
  };

  const shareAt = (clientX) => {
    const box = lane.getBoundingClientRect();
    return x + clamp((clientX - box.left) / box.width, 0, 1) / z;
  };

  // Pointers: one drags, two pinch, none pressed moves the cursor.
  const held = new Map();
  let dragged = 0, pinch = null;
  tracks.addEventListener("pointerdown", (event) => {
    if (!event.target.closest(".lane") || event.button > 0) return;
    held.set(event.pointerId, event);
    dragged = 0;
    if (held.size === 2) {
      const [a, b] = [...held.values()];
      pinch = { distance: Math.abs(a.clientX - b.clientX) || 1, z, share: shareAt((a.clientX + b.clientX) / 2) };
    }
  });
  tracks.addEventListener("pointermove", (event) => {
    const before = held.get(event.pointerId);
    if (!before) { if (event.target.closest(".lane")) { read(shareAt(event.clientX)); hover(event); } return; }
    held.set(event.pointerId, event);
    if (pinch && held.size === 2) {
      const [a, b] = [...held.values()];
      const next = clamp(pinch.z * Math.abs(a.clientX - b.clientX) / pinch.distance, 1, reach);
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
  const release = (event) => {
    held.delete(event.pointerId);
    if (held.size < 2) pinch = null;
    if (event.type === "pointerup" && dragged <= 4 && event.target.closest(".lane")) read(shareAt(event.clientX));
  };
  tracks.addEventListener("pointerup", release);
  tracks.addEventListener("pointercancel", release);
  tracks.addEventListener("pointerleave", () => { tip.hidden = true; });
  tracks.addEventListener("dragstart", (event) => event.preventDefault());
  tracks.addEventListener("wheel", (event) => {
    if (!event.target.closest(".lane")) return;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (sideways && z > 1) {
      event.preventDefault();
      setView(x + (event.deltaX || event.deltaY) / lane.clientWidth / z, z);
    } else if (event.ctrlKey || event.metaKey || tracks.contains(document.activeElement)) {
      event.preventDefault();
      zoomAt(Math.exp(-clamp(event.deltaY, -120, 120) / 240), shareAt(event.clientX));
    }
  }, { passive: false });

  const act = {
    in: () => zoomAt(1.7, cursor >= x && cursor <= x + 1 / z ? cursor : x + 0.5 / z),
    out: () => zoomAt(1 / 1.7, cursor >= x && cursor <= x + 1 / z ? cursor : x + 0.5 / z),
    left: () => setView(x - 0.3 / z, z),
    right: () => setView(x + 0.3 / z, z),
    whole: () => setView(0, 1),
  };
  document.getElementById("controls").hidden = false;
  document.getElementById("controls").addEventListener("click", (event) => {
    const button = event.target.closest("button[data-do]");
    if (button) act[button.dataset.do]();
  });
  const stepTo = (share) => {
    read(share);
    if (cursor < x) setView(cursor - 0.1 / z, z);
    if (cursor > x + 1 / z) setView(cursor - 0.9 / z, z);
  };
  tracks.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const mark = event.target.closest(".mark");
    if (mark && ["ArrowLeft", "ArrowRight"].includes(event.key) && !event.shiftKey) {
      const beside = [...mark.parentElement.querySelectorAll(".mark")].sort((a, b) => a.style.getPropertyValue("--a") - b.style.getPropertyValue("--a"));
      const next = beside[beside.indexOf(mark) + (event.key === "ArrowRight" ? 1 : -1)];
      if (next) { for (const one of beside) one.tabIndex = -1; next.tabIndex = 0; reveal(next); next.focus({ preventScroll: true }); }
      event.preventDefault();
      return;
    }
    const start = cursor < 0 ? x : cursor;
    const one = Math.max(1 / z / lane.clientWidth, study.step / study.length);
    const keys = {
      "+": act.in, "=": act.in, "-": act.out, "0": act.whole,
      ArrowLeft: () => event.shiftKey ? act.left() : stepTo(start - one),
      ArrowRight: () => event.shiftKey ? act.right() : stepTo(start + one),
      PageUp: () => stepTo(start - 0.1 / z), PageDown: () => stepTo(start + 0.1 / z),
      Home: () => stepTo(0), End: () => stepTo(1),
    };
    if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
  });

  // Marks: one stop for the Tab key per lane, a tooltip with the picture, a way to the card.
  for (const row of tracks.querySelectorAll(".lane")) {
    [...row.querySelectorAll(".mark")].forEach((mark, place) => { mark.tabIndex = place === 0 ? 0 : -1; });
  }
  const reveal = (mark) => {
    const { a, w } = place(mark);
    if (a + w < x || a > x + 1 / z) setView(a + w / 2 - 0.5 / z, z);
  };
  const showTip = (mark) => {
    tip.replaceChildren();
    const card = document.getElementById(`event-${mark.dataset.event}`);
    const picture = card && card.querySelector("img");
    if (picture) { const copy = new Image(); copy.src = picture.src; copy.alt = ""; tip.append(copy); }
    tip.append(mark.getAttribute("aria-label"));
    tip.hidden = false;
    const box = tracks.getBoundingClientRect(), at = mark.getBoundingClientRect();
    const middle = clamp((Math.max(at.left, lane.getBoundingClientRect().left) + Math.min(at.right, box.right)) / 2 - box.left - tip.offsetWidth / 2, 0, box.width - tip.offsetWidth);
    tip.style.left = `${middle}px`;
    const above = at.top - box.top - tip.offsetHeight - 8;
    tip.style.top = `${at.top - tip.offsetHeight - 60 > 0 ? above : at.bottom - box.top + 8}px`;
  };
  const hover = (event) => {
    const mark = event.target.closest(".mark");
    if (mark && event.pointerType === "mouse") showTip(mark); else tip.hidden = true;
  };
  for (const mark of marks) {
    mark.addEventListener("focus", () => { if (mark.matches(":focus-visible")) { reveal(mark); showTip(mark); } });
    mark.addEventListener("blur", () => { tip.hidden = true; });
    mark.addEventListener("click", (event) => {
      event.preventDefault();
      if (dragged > 4) return;
      tip.hidden = true;
      document.dispatchEvent(new CustomEvent("showcard", { detail: mark.dataset.event }));
    });
  }

  const light = (number) => {
    for (const mark of tracks.querySelectorAll(".mark.is-lit")) mark.classList.remove("is-lit");
    const mark = markOf.get(String(number));
    needle.hidden = !mark;
    if (!mark) return;
    mark.classList.add("is-lit");
    const { a, w } = place(mark);
    needle.style.left = `${100 * (a + w / 2)}%`;
    reveal(mark);
    read(a + w / 2);
  };
  // Centre an event and enlarge it until it can be told from its neighbours.
  const focusOn = (number) => {
    const mark = markOf.get(String(number));
    if (!mark) return;
    const { a, w } = place(mark);
    const zoom = clamp(Math.max(z, Math.min(0.15 / Math.max(w, 1e-9), 24)), 1, reach);
    setView(a + w / 2 - 0.5 / zoom, zoom);
    light(number);
  };

  const jump = (event) => {
    const box = strip.getBoundingClientRect();
    setView((event.clientX - box.left) / box.width - 0.5 / z, z);
    read(clamp((event.clientX - box.left) / box.width, 0, 1));
  };
  strip.addEventListener("pointerdown", (event) => { strip.setPointerCapture(event.pointerId); jump(event); });
  strip.addEventListener("pointermove", (event) => { if (strip.hasPointerCapture(event.pointerId)) jump(event); });

  document.addEventListener("themechange", () => { colours.clear(); schedule(); });
  new ResizeObserver(() => schedule()).observe(tracks);
  const more = document.getElementById("more-curves");
  more.addEventListener("toggle", () => schedule());
  // On paper: the whole study, every curve, sharp.
  let before = null;
  addEventListener("beforeprint", () => {
    before = { x, z, cursor, open: more.open };
    x = 0; z = 1; cursor = -1; more.open = true;
    colours.clear();
    draw(3);
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    ({ x, z, cursor } = before); more.open = before.open; before = null;
    colours.clear();
    schedule();
  });
  draw();
  return { view, setView, zoomAt, light, focusOn, draw };
})();
