// The keyboard: one table of keys, which is also what the help shows.

import { $, h } from "./dom.js";

/** @typedef {{ keys: string[], what: string, run: (event: KeyboardEvent) => void, group: string }} Shortcut */

/** @param {KeyboardEvent} event */
const nameOf = (event) => {
  const control = event.ctrlKey || event.metaKey ? "Ctrl+" : "";
  const key = event.key === " " ? "Space" : event.key;
  const shift = event.shiftKey && (key.length > 1 || /[a-z]/i.test(key)) ? "Shift+" : "";
  return `${control}${shift}${key.length === 1 ? key.toUpperCase() : key}`;
};

/** @param {string} key */
const shown = (key) => ({ ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", "Shift+ArrowLeft": "Shift ←", "Shift+ArrowRight": "Shift →" })[key] ?? key.replace("+", " ");

export class Keys {
  constructor() {
    /** @type {Map<string, Shortcut>} */
    this.table = new Map();
    /** @type {Shortcut[]} */
    this.list = [];
    /** @type {((event: KeyboardEvent, name: string) => boolean)[]} those that come first, the last one of them first */
    this.layers = [];
    document.addEventListener("keydown", (event) => this.pressed(event));
  }

  /** @param {string} group @param {string[]} keys @param {string} what @param {(event: KeyboardEvent) => void} run */
  add(group, keys, what, run) {
    const shortcut = { keys, what, run, group };
    this.list.push(shortcut);
    for (const key of keys) this.table.set(key, shortcut);
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const writing = target.matches("input:not([type=range]):not([type=checkbox]), textarea, select");
    if (event.key === "Escape" && writing) { target.blur(); event.preventDefault(); return; }
    if (event.altKey || (writing && !event.ctrlKey)) return;
    const name = nameOf(event);
    for (const layer of [...this.layers].reverse()) if (layer(event, name)) { event.preventDefault(); return; }
    if (document.querySelector("dialog[open]")) return;
    const shortcut = this.table.get(name);
    if (!shortcut || (writing && name !== "Ctrl+Enter")) return;
    // A button that has the focus is pressed with Space or Enter, as everywhere.
    if (["Space", "Enter"].includes(name) && target.matches("button, a, summary")) return;
    event.preventDefault();
    shortcut.run(event);
  }

  showHelp() {
    const groups = [...new Set(this.list.map(({ group }) => group))];
    $("help-list").replaceChildren(...groups.map((group) => h("section", {}, h("h3", {}, group), h("dl", {},
      ...this.list.filter((shortcut) => shortcut.group === group).flatMap(({ keys, what }) => [
        h("dt", {}, ...keys.flatMap((key, index) => [index ? " " : "", h("kbd", {}, shown(key))])), h("dd", {}, what),
      ])))));
    $("help").showModal();
  }
}

/**
 * Ask for one of the labels: by number, by letters, or by arrows.
 * @param {string} title @param {{ label: string, column: number }[]} labels
 * @returns {Promise<string | null>}
 */
export const chooseLabel = (title, labels) => new Promise((resolve) => {
  const dialog = /** @type {HTMLDialogElement} */ ($("choose"));
  $("choose-title").textContent = title;
  /** @param {string | null} label */
  const close = (label) => { dialog.onclose = null; dialog.onkeydown = null; dialog.close(); resolve(label); };
  const buttons = labels.map(({ label, column }, index) => h("button", { type: "button", class: `choice l-${column}`, on: { click: () => close(label) } },
    h("kbd", {}, index < 9 ? String(index + 1) : ""), h("i", { class: "swatch" }), label));
  $("choose-list").replaceChildren(...buttons);
  dialog.onclose = () => resolve(null);
  dialog.onkeydown = (event) => {
    const number = Number(event.key);
    // The digit is used up here: it would also change how many frames are shown at once.
    if (number >= 1 && number <= Math.min(9, labels.length)) { event.preventDefault(); event.stopPropagation(); close(labels[number - 1].label); return; }
    const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      buttons[(at + (event.key === "ArrowDown" ? 1 : buttons.length - 1)) % buttons.length].focus();
    }
  };
  dialog.showModal();
  buttons[0].focus();
});

/** @param {string} title @param {string} [text] @returns {Promise<string | null>} */
export const askText = (title, text = "") => new Promise((resolve) => {
  const dialog = /** @type {HTMLDialogElement} */ ($("ask"));
  $("ask-title").textContent = title;
  const field = /** @type {HTMLTextAreaElement} */ ($("ask-text"));
  field.value = text;
  /** @param {string | null} answer */
  const close = (answer) => { dialog.onclose = null; dialog.close(); resolve(answer); };
  dialog.onclose = () => resolve(null);
  $("ask-done").onclick = () => close(field.value.trim() || null);
  field.onkeydown = (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); event.stopPropagation(); close(field.value.trim() || null); } };
  dialog.showModal();
  field.focus();
});
