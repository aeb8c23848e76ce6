// The one place that talks to the server.

export class Refusal extends Error {
  /** @param {number} status @param {{problem?: string, remedy?: string, changes?: string[]}} body */
  constructor(status, body) {
    super(body.problem ? `${body.problem[0].toUpperCase()}${body.problem.slice(1)}${body.remedy ? `; ${body.remedy}` : ""}.` : `The server answered ${status}.`);
    this.status = status;
    this.changes = body.changes ?? [];
  }
}

/** @param {Response} answer */
const checked = async (answer) => {
  if (answer.ok) return answer;
  if (answer.status === 401) location.assign("/login");
  let body = {};
  try { body = await answer.json(); } catch { /* no sentence came with it */ }
  throw new Refusal(answer.status, body);
};

/** @param {string} path @returns {Promise<any>} null where there is nothing new */
export const get = async (path) => {
  const answer = await checked(await fetch(path, { headers: { "x-enteron": "1" } }));
  return answer.status === 204 ? null : answer.json();
};

/** @param {string} path */
export const getBytes = async (path) => new Uint8Array(await (await checked(await fetch(path))).arrayBuffer());

/** @param {string} path @param {unknown} body @param {boolean} [last] the page is about to go away */
export const post = async (path, body, last = false) => {
  const answer = await checked(await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-enteron": "1" },
    body: JSON.stringify(body),
    keepalive: last,
  }));
  return answer.json();
};

/** An action that is sent twice is recorded once. */
export const newKey = () => crypto.randomUUID ? crypto.randomUUID() : [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {string} study */
export const studyPath = (study) => `/api/studies/${encodeURIComponent(study)}`;

/** The study that a page's address names. */
export const studyOfPage = () => decodeURIComponent(location.pathname.split("/")[2] ?? "");
