// The table of recent decisions: rows stay in place while others arrive, so that focus and reading are not lost.

import { kindBadge } from "./certificate.js";
import { action, because, brief, clock, count, fixed, make, margin, placesFor } from "./format.js";

const PAGE = 15, LARGEST = 200;

export class Decisions {
  /** openDecision(id): opens a certificate. */
  constructor(openDecision) {
    this.openDecision = openDecision;
    this.body = document.querySelector("#decisions tbody");
    this.rows = [];
    this.kind = "all";
    this.next = null;
    this.most = PAGE;
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !String(getSelection())) openDecision(row.dataset.id);
    });
    this.body.addEventListener("keydown", (event) => this.walk(event));
  }

  /** Rows of one more page. */
  step = PAGE;

  /** How many rows to ask for so that all that are shown get their newest values. */
  get wanted() {
    return Math.min(LARGEST, this.most);
  }

  /** Shows decisions of another kind, from the newest on. */
  choose(kind) {
    this.kind = kind;
    this.most = PAGE;
    this.show([]);
  }

  /** Shows the newest page, joined to the older rows below it where nothing is missing between them; as many rows as
   * were asked for, however many arrive. */
  refresh(page) {
    const oldest = page.decisions.at(-1)?.seq ?? 0;
    const older = this.rows.filter((row) => row.seq < oldest);
    const joined = older.length > 0 && page.decisions.some((row) => this.rows.some((known) => known.id === row.id));
    if (!joined) this.next = page.next;
    const rows = [...page.decisions, ...(joined ? older : [])];
    if (rows.length > this.most) this.next = rows[this.most - 1].seq;
    this.show(rows.slice(0, this.most));
  }

  /** Adds a page of older rows at the end. */
  extend(page) {
    this.next = page.next;
    this.most = this.rows.length + PAGE;
    this.show([...this.rows, ...page.decisions.filter((row) => !this.rows.some((known) => known.id === row.id))]);
  }

  show(rows) {
    this.rows = rows;
    const known = new Map([...this.body.children].map((node) => [node.dataset.id, node]));
    const had = known.size > 0;
    const nodes = rows.map((row) => {
      const old = known.get(row.id), text = JSON.stringify(row);
      if (old?.content === text) return old;
      const node = this.row(row);
      node.content = text;
      if (had && !old) node.classList.add("fresh");
      if (old?.contains(document.activeElement)) queueMicrotask(() => node.querySelector("button").focus());
      return node;
    });
    const kept = new Set(nodes);
    for (const node of [...this.body.children]) if (!kept.has(node)) node.remove();
    nodes.forEach((node, i) => { if (this.body.children[i] !== node) this.body.insertBefore(node, this.body.children[i] ?? null); });
    document.getElementById("older").hidden = this.next === null || this.next === undefined;
    const none = document.getElementById("no-decisions");
    none.hidden = rows.length > 0;
    none.textContent = this.kind === "all"
      ? "No decision yet. The first POST to /v1/decisions will appear here." : "No decision of this kind yet.";
  }

  row(row) {
    const places = placesFor(Math.abs(row.threshold)) + 1, shadow = row.mode === "shadow";
    const proposed = shadow && !row.proposed_is_baseline;
    const what = row.is_baseline && !proposed ? kindBadge(true) : kindBadge(!proposed && row.is_baseline, action(shadow ? row.proposed : row.played));
    const why = proposed ? "would be played in live mode; a₀ acts" : because(row);
    const of = (what) => (proposed ? make("small", {}, what) : null), label = `Entry ${row.seq}: open the certificate`;
    const costs = row.outcome?.cost, cost = costs?.[row.constraint ?? 0] ?? costs?.[0];
    const seen = row.outcome ? (costs ? fixed(cost, places) : "not measured") : "–";
    const over = typeof cost === "number" && cost > row.threshold;
    return make("tr", { "data-id": row.id, class: row.margin !== null && row.margin < 0 ? "over" : "" },
      make("th", { scope: "row" }, make("button", { type: "button", class: "open", "aria-label": label, "aria-haspopup": "dialog" }, count(row.seq)),
        make("small", {}, clock(row.time))),
      make("td", { class: "wide-only state" }, row.place ?? brief(row.state, 42)),
      make("td", {}, what, row.bounds !== "cost" ? make("small", {}, row.bounds) : null),
      make("td", { class: "mid-only why", title: why }, why),
      make("td", { class: "number mid-only" }, fixed(row.bound, places), of("of the proposal")),
      make("td", { class: "number" }, make("b", {}, margin(row.margin, row.threshold)), of("of the proposal"),
        row.radius_origin === "theorem" || (row.is_baseline && !proposed) ? null : make("small", { class: "warn-text" }, `⚠ ${row.radius_origin} β`)),
      make("td", { class: "number mid-only" }, seen, row.outcome && costs ? of("of a₀") : null, over ? make("small", {}, "above τ") : null),
      make("td", { class: "number wide-only" }, row.outcome ? fixed(row.outcome.reward, 3) : "–", row.outcome ? of("of a₀") : null));
  }

  /** Arrow keys go from row to row. */
  walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], row = event.target.closest("tr");
    if (!step || !row) return;
    const other = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    other?.querySelector("button").focus();
    event.preventDefault();
  }
}
