import { axisTime, grouped } from "./curves.js";

// Draws curves and the axis on their canvases, for a view that begins at share x of the study and is
// enlarged z times.
/** @typedef {{ x: number, z: number }} View */
/** @typedef {ReturnType<typeof makeDrawing>} Drawing */

/** @param {import("./curves.js").Study} study */
export const makeDrawing = (study) => {
  /** @param {HTMLCanvasElement} canvas @param {number} scale */
  const fitted = (canvas, scale) => {
    const box = canvas.getBoundingClientRect();
    const width = Math.max(1, Math.round(box.width * scale)), height = Math.max(1, Math.round(box.height * scale));
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    return { pen, width, height, visible: box.width > 0 };
  };

  // For every pixel of a width the rows [from, to) that it shows; from is -1 in a gap.
  /** @type {Map<number, { from: Int32Array, to: Int32Array }>} */
  const rowsByWidth = new Map();
  /** @param {number} width @param {View} view */
  const rowsPerPixel = (width, { x, z }) => {
    const known = rowsByWidth.get(width);
    if (known) return known;
    const from = new Int32Array(width), to = new Int32Array(width);
    const framesPerPixel = study.length / z / width;
    for (let p = 0; p < width; p++) {
      const start = study.first + x * study.length + p * framesPerPixel;
      const [first, last] = study.rowsIn(start, start + framesPerPixel);
      from[p] = first < last ? first : -1;
      to[p] = last;
    }
    rowsByWidth.set(width, { from, to });
    return { from, to };
  };

  // Pixels are written one by one: filling a path of a thousand corners takes ten times as long.
  /** @type {Map<HTMLCanvasElement, number>} */
  const colours = new Map();
  /** @param {HTMLCanvasElement} canvas */
  const colourOf = (canvas) => {
    if (!colours.has(canvas)) {
      const hex = getComputedStyle(canvas).getPropertyValue("--line").trim();
      const [red, green, blue] = [1, 3, 5].map((index) => parseInt(hex.slice(index, index + 2), 16));
      colours.set(canvas, (blue << 16) | (green << 8) | red);
    }
    return colours.get(canvas) ?? 0;
  };
  /** @param {HTMLCanvasElement} canvas @param {number} scale @param {View} view */
  const drawCurve = (canvas, scale, view) => {
    const { pen, width, height, visible } = fitted(canvas, scale);
    if (!visible) return;
    const { from, to } = rowsPerPixel(width, view);
    const level = study.levelFor(study.rows / view.z / width);
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
      let pixel = top * width + p, y = top;
      for (; y < middle; y++, pixel += width) pixels[pixel] = pale;
      for (; y < height; y++, pixel += width) pixels[pixel] = dark;
    }
    pen.putImageData(picture, 0, 0);
  };

  // Seconds between labels of the time axis.
  const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800];
  /** @param {HTMLCanvasElement} axis @param {number} scale @param {View} view */
  const drawAxis = (axis, scale, { x, z }) => {
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
    const begin = study.seconds(first) ?? first;
    const end = study.seconds(first + span) ?? first + span;
    const leastStep = (end - begin) / Math.max(2, wide / 110); // a label every 110 pixels
    let step = timed ? TIME_STEPS.find((candidate) => candidate >= leastStep) : undefined;
    if (step === undefined) {
      const power = 10 ** Math.floor(Math.log10(Math.max(leastStep, 1)));
      step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= leastStep) || 10 * power;
    }
    pen.beginPath();
    let free = 0; // where the next label may begin: uneven times crowd them in places
    for (let value = Math.ceil(begin / step) * step; value <= end; value += step) {
      const frame = study.frameAtTime(value) ?? value;
      const x = (frame - first) / span * wide;
      pen.moveTo(Math.round(x) + 0.5, tall - 5); pen.lineTo(Math.round(x) + 0.5, tall);
      const text = timed ? axisTime(value, study.seconds(study.end) ?? 0) : grouped(value);
      const width = pen.measureText(text).width;
      const left = Math.min(Math.max(x - width / 2, 0), wide - width);
      if (left < free) continue;
      pen.fillText(text, left, tall - 9);
      free = left + width + 8;
    }
    pen.stroke();
  };

  return {
    axis: drawAxis,
    /** @param {HTMLCanvasElement[]} canvases @param {number} scale @param {View} view */
    curves: (canvases, scale, view) => {
      rowsByWidth.clear();
      for (const canvas of canvases) drawCurve(canvas, scale, view);
    },
    forgetColours: () => colours.clear(),
  };
};
