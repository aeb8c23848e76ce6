// Small pieces that every page uses: making elements, and words for figures.

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [properties] properties; `class`, `data`, `aria` and `on` are special
 * @param {...(Node | string | null | false)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export const h = (tag, properties = {}, ...children) => {
  const element = document.createElement(tag);
  // First, since an image whose address is known before is fetched at once, hidden or not.
  if ("loading" in properties) Reflect.set(element, "loading", properties.loading);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name === "class") element.className = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "aria") for (const [key, text] of Object.entries(value)) element.setAttribute(key === "role" ? key : `aria-${key}`, String(text));
    else if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, /** @type {EventListener} */ (listener));
    else if (name === "vars") for (const [key, number] of Object.entries(value)) element.style.setProperty(`--${key}`, String(number));
    else Reflect.set(element, name, value);
  }
  // Text only: nothing that a person or a file says ever becomes markup.
  for (const child of children) if (child !== null && child !== false) element.append(child);
  return element;
};

/**
 * @param {string} id
 * @returns {any} an element that the page has
 */
export const $ = (id) => document.getElementById(id);

/** @param {number} share */
export const percent = (share) => share > 0 && share < 0.001 ? "<\u00a00.1\u00a0%" : `${(100 * share).toFixed(share < 0.1 && share > 0 ? 1 : 0)}\u00a0%`;

/** A confidence; in brackets where the study is unlike all that the model knows. @param {number} value @param {boolean} unlike */
export const confidence = (value, unlike) => {
  const text = value > 0 && value < 0.005 ? "< 0.01" : value.toFixed(2);
  return unlike ? `(${text})` : text;
};

/** @param {number} count @param {string} noun */
export const counted = (count, noun) => `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;

/** @param {string | null} time ISO 8601 */
export const localTime = (time) => {
  if (!time) return "";
  const date = new Date(time);
  /** @param {number} number */
  const two = (number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
};

/** @param {string} sentence @param {"good" | "bad"} [kind] */
export const toast = (sentence, kind = "good") => {
  const line = h("p", { class: `toast is-${kind}` }, sentence);
  $("toasts").append(line);
  while ($("toasts").childElementCount > 2) $("toasts").firstElementChild.remove(); // they cover the time bar
  setTimeout(() => line.remove(), kind === "bad" ? 9000 : 3000);
};
