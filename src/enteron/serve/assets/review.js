// What people decided about the study: held here as the server derived it, changed only by actions.

import { Refusal, get, newKey, post } from "./api.js";
import { toast } from "./dom.js";

/**
 * @typedef {object} ReviewEvent
 * @property {string} id
 * @property {string} label
 * @property {number} start
 * @property {number} stop
 * @property {number | null} score
 * @property {string | null} region
 * @property {"machine" | "person"} origin
 * @property {{ label: string, start: number, stop: number } | null} machine
 * @property {"open" | "confirmed" | "rejected"} decision
 * @property {string | null} saurin
 * @property {string | null} by
 * @property {string | null} at
 */
/** @typedef {{ frame: number | null, proposed: number | null, confidence: number | null, status: string, by: string | null }} Landmark */
/** @typedef {{ title: string, text: string, confirmed: boolean }} Passage */
/** @typedef {{ version: number, number: number, user: string, time: string, meaning: string }} Signature */
/** @typedef {{ number: number, user: string, time: string, text: string, event: string | null, frame: number | null }} Remark */
/**
 * @typedef {object} State
 * @property {string} study
 * @property {number} number
 * @property {number} version
 * @property {number} first
 * @property {number} end
 * @property {string} status
 * @property {Record<string, ReviewEvent>} events
 * @property {Record<string, Landmark>} landmarks
 * @property {any} lewis
 * @property {any} cecdai
 * @property {any} koda
 * @property {Record<string, number | null>} values
 * @property {Record<string, string>} report
 * @property {Remark[]} comments
 * @property {[number, number][]} viewed
 * @property {{ frame: number, label: string, by: string }[]} [dismissed]
 * @property {Signature[]} signatures
 * @property {string[]} readers
 */
/**
 * @typedef {object} Measures
 * @property {Passage} gastric_transit
 * @property {Passage} small_bowel_transit
 * @property {string} completeness
 * @property {boolean} completeness_confirmed
 * @property {number | null} small_bowel_viewed
 * @property {number} study_viewed
 * @property {number} active_seconds
 */
/**
 * @typedef {object} Finding
 * @property {string} id
 * @property {string} label
 * @property {string} heading
 * @property {string} term
 * @property {number} start
 * @property {number} stop
 * @property {number | null} seconds
 * @property {string | null} region
 * @property {number | null} transit_share
 * @property {number | null} tertile
 * @property {string | null} saurin
 * @property {string | null} proposed_saurin
 * @property {"machine" | "person"} origin
 * @property {boolean} changed
 * @property {string | null} by
 */
/**
 * @typedef {object} Summary
 * @property {string} notice
 * @property {Measures} measures
 * @property {[number, number][] | null} tertiles
 * @property {Finding[]} findings
 * @property {number} undecided
 * @property {number | null} lewis
 * @property {string | null} lewis_category
 * @property {number | null} cecdai
 * @property {number | null} koda
 * @property {{ lewis_ulcers: { events: number, count: string, share: number, extent: string | null }[] | null, lewis_reason: string, koda_frames: number[], koda_reason: string }} proposals
 */
/**
 * @typedef {object} Answer
 * @property {State} state
 * @property {Summary} summary
 * @property {{ name: string, role: string }} user
 * @property {boolean} can_undo
 * @property {boolean} can_redo
 */

const LOOK = 2500; // ms between two looks for what others did

export class Review {
  /** @param {string} path of the study @param {Answer} answer @param {Set<string>} labels that are findings */
  constructor(path, answer, labels) {
    this.path = path;
    this.labels = labels;
    this.answer = answer;
    /** @type {Set<(before: Answer) => void>} told when something was decided */
    this.listeners = new Set();
    /** @type {Set<() => void>} told when frames, time or a comment were noted, too */
    this.noted = new Set();
    /** @type {Promise<unknown>} actions are sent one after the other, in the order of the keys */
    this.queue = Promise.resolve();
    this.sent = 0; // actions of this page
    this.waiting = 0; // those that are not answered yet
    setInterval(() => { if (!this.waiting) this.look(); }, LOOK);
  }

  get state() { return this.answer.state; }

  get canDecide() { return this.answer.user.role === "reader"; }

  /** Findings in the order of time; rejected ones too. */
  get findings() {
    return Object.values(this.state.events).filter((event) => this.labels.has(event.label)).sort((a, b) => a.start - b.start || a.stop - b.stop);
  }

  /** @param {Answer} answer */
  take(answer) {
    const before = this.answer;
    if (answer.state.number < before.state.number) return; // an older answer came late
    this.answer = answer;
    // Notes come every few seconds: only what shows them is drawn again.
    if (answer.state.version !== before.state.version) for (const listener of this.listeners) listener(before);
    for (const listener of this.noted) listener();
  }

  async look() {
    if (document.hidden) return;
    const sent = this.sent;
    try {
      const answer = await get(`${this.path}/review?after=${this.state.number}`);
      if (!answer) return;
      // What this page sent meanwhile is no news.
      const others = answer.state.version > this.state.version && sent === this.sent;
      this.take(answer);
      if (others) toast("Somebody else has changed the review of this study.");
    } catch { /* the server is away: the next look may find it */ }
  }

  /**
   * Send an action; the state afterwards is shown, a refusal as a sentence.
   * @param {Record<string, unknown>} action @param {string} [said] what to tell once it is recorded
   * @returns {Promise<boolean>}
   */
  act(action, said) {
    return this.send("actions", () => ({ action, expected: this.state.version, key: newKey() }), said);
  }

  /** A note needs no version: it only adds. @param {Record<string, unknown>} action @param {boolean} [last] */
  async note(action, last = false) {
    if (!this.canDecide) return;
    const answer = await post(`${this.path}/actions`, { action, expected: null, key: newKey() }, last);
    if (!last) this.take(answer);
  }

  undo() { return this.send("undo", () => ({ expected: this.state.version, key: newKey() }), "Undone."); }

  redo() { return this.send("redo", () => ({ expected: this.state.version, key: newKey() }), "Done again."); }

  /** @param {string} what @param {() => unknown} body @param {string} [said] @returns {Promise<boolean>} */
  send(what, body, said) {
    this.sent += 1;
    this.waiting += 1;
    const sent = this.queue.then(async () => {
      try {
        if (!this.canDecide) { toast("Viewers can look at everything and change nothing.", "bad"); return false; }
        this.take(await post(`${this.path}/${what}`, body()));
        if (said) toast(said);
        return true;
      } catch (error) {
        if (!(error instanceof Refusal)) { toast("The server cannot be reached: nothing was recorded. Try again.", "bad"); return false; }
        toast(error.message, "bad");
        if (error.status === 409) await this.look();
        return false;
      } finally {
        this.waiting -= 1;
      }
    });
    this.queue = sent;
    return sent;
  }
}
