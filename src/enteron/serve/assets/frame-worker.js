// Fetches batches of pictures and decodes them, away from the page's own thread.
// In: { id, url } or { cancel: id }. Out: { id, frames: [{ position, flag, bitmap }] } or { id, failed }.

/** @type {Map<number, AbortController>} */
const running = new Map();

/** @param {number} id @param {string} url */
const fetchBatch = async (id, url) => {
  const stop = new AbortController();
  running.set(id, stop);
  try {
    const answer = await fetch(url, { signal: stop.signal });
    if (!answer.ok) throw new Error(String(answer.status));
    const buffer = await answer.arrayBuffer();
    const view = new DataView(buffer);
    const count = view.getUint32(0, true);
    let offset = 4 + 12 * count;
    const frames = await Promise.all(Array.from({ length: count }, async (_, index) => {
      const [position, flag, length] = [0, 4, 8].map((field) => view.getUint32(4 + 12 * index + field, true));
      const start = offset;
      offset += length;
      if (!length) return { position, flag, bitmap: null };
      const bitmap = await createImageBitmap(new Blob([new Uint8Array(buffer, start, length)], { type: "image/jpeg" }));
      return { position, flag, bitmap };
    }));
    postMessage({ id, frames }, { transfer: frames.flatMap(({ bitmap }) => bitmap ? [bitmap] : []) });
  } catch (error) {
    postMessage({ id, failed: stop.signal.aborted ? "cancelled" : String(error) });
  } finally {
    running.delete(id);
  }
};

addEventListener("message", ({ data }) => {
  if (data.cancel !== undefined) running.get(data.cancel)?.abort();
  else fetchBatch(data.id, data.url);
});
