// Modes, the kill switch and alarms: what they say, and the dialog that asks for a reason before anything changes.

import { age, clock, count, make } from "./format.js";

export const MODES = {
  shadow: "Decides and logs; a₀ acts. Nothing learned reaches the system.",
  guarded: "Acts only where the margin to τ is wide and the rate caps allow it; a₀ otherwise.",
  live: "Acts on every certified decision; a₀ otherwise.",
};

/** Seconds, or outcomes that wait, after which a decision without an outcome is worth a banner. */
const LATE = 60, MANY = 100;

const $ = (id) => document.getElementById(id);

/** The mode as three steps, the present one marked. */
export function showMode(status, isAdmin) {
  $("modes").replaceChildren(...Object.keys(MODES).map((mode) =>
    make("li", { "aria-current": mode === status.mode ? "step" : null }, mode)));
  const since = status.mode_since ? ` Since ${clock(status.mode_since)}.` : "";
  const halted = status.stopped || status.alarm ? " Now only a₀ is played: see above." : "";
  $("mode-why").textContent = `${MODES[status.mode] ?? ""}${since}${halted}`;
  $("modes").classList.toggle("halted", halted !== "");
  $("admin").hidden = !isAdmin;
  $("not-admin").hidden = isAdmin;
  $("stop").hidden = Boolean(status.stopped);
  $("resume").hidden = !status.stopped;
}

/** What must not be missed, as banners; each element stays while its text does, so that it is read aloud once. One that
 * `changes` keeps its element, and its counts change without a word. */
export function showBanners(list) {
  const host = $("banners");
  const wanted = new Map(list.filter(Boolean).map((banner) => [banner.changes ? banner.key : banner.key + banner.text, banner]));
  for (const node of [...host.children]) if (!wanted.has(node.dataset.key)) node.remove();
  for (const [key, banner] of wanted) {
    const role = banner.style === "bad" ? "alert" : "status", shown = [...host.children].find((node) => node.dataset.key === key);
    const said = make("p", {}, make("b", {}, `${banner.title} `), banner.text);
    if (!shown) host.append(make("div", { class: `banner ${banner.style}`, role, "data-key": key }, said, ...(banner.buttons ?? [])));
    else if (shown.firstChild.textContent !== said.textContent) {
      shown.setAttribute("aria-live", "off");
      shown.firstChild.replaceWith(said);
    }
  }
}

/** A fact as an object, whether the service gave one or only its text. */
const said = (fact, field) => (typeof fact === "string" && fact ? { [field]: fact } : fact || null);

const sentence = (text) => (/[.!?]$/.test(text ?? "") ? text : `${text ?? ""}.`);

/** Learning that one decision without an outcome holds up: nothing is unsafe, but nothing is learned either. */
function waitingBanner({ waiting, counts }) {
  const late = waiting ? Date.now() / 1000 - waiting.since : 0, behind = counts?.waiting ?? 0;
  if (!waiting || !(behind >= MANY || (behind > 0 && late > LATE))) return null;
  const which = waiting.for.includes(", ") ? "decisions" : "decision";
  return { key: "waiting", style: "warn", changes: true,
    title: `Learning waits for the outcome of ${which} ${waiting.for}, made ${age(late)} ago.`,
    text: `${count(behind)} ${behind === 1 ? "outcome waits" : "outcomes wait"} behind it. Report it, or declare it lost.` };
}

/** Banners that follow from the status. */
export function statusBanners(status, isAdmin, resetAlarm) {
  const { radius } = status, alarm = said(status.alarm, "message"), stopped = said(status.stopped, "why");
  const since = (fact) => (fact.time ? ` since ${clock(fact.time)}` : "");
  const reset = isAdmin ? [make("button", { type: "button", onclick: resetAlarm }, "Reset the alarm …")] : [];
  return [
    alarm && { key: "alarm", style: "bad", title: alarm.test ? `Alarm: ${alarm.test}.` : "Alarm.", buttons: reset,
      text: `${sentence(alarm.message)} Only a₀ is played${since(alarm)}.` },
    stopped && { key: "stopped", style: "bad", title: "Stopped.",
      text: `Only a₀ is played${since(stopped)}. ${stopped.by ? `By ${stopped.by}: ` : ""}“${stopped.why}”` },
    radius?.origin && !["theorem", "none"].includes(radius.origin) && { key: "radius", style: "warn", title: `The radius is ${radius.origin}.`,
      text: "The guarantee holds for the theorem's radius only. Treat the bounds on this page as a rule of thumb." },
    status.store_error && { key: "store", style: "bad", title: "The log could not be written.",
      text: `${sentence(status.store_error)} Until it can, decisions are a₀ or refused.` },
    waitingBanner(status),
    status.open && { key: "open", style: "info", title: "No tokens are set up.",
      text: "Everyone who can reach this address may read, decide and stop." },
  ];
}

/** A dialog that asks for a reason. Everything it does is confirmed here first; Escape and Cancel change nothing. */
export class Ask {
  constructor() {
    this.dialog = $("ask");
    $("ask-no").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
    $("ask-form").addEventListener("submit", (event) => this.submit(event));
  }

  /** title, text, yes (the button), style, why (a reason to begin with, where there is no time to write one),
   * mode (present mode, when a new one is to be chosen), act(why, mode, override). */
  open({ title, text, yes, style = "primary", why = "", mode = null, act }) {
    this.act = act;
    $("ask-title").textContent = title;
    $("ask-text").textContent = text;
    $("ask-yes").textContent = yes;
    $("ask-yes").className = style;
    $("ask-why").value = why;
    $("ask-why").removeAttribute("aria-invalid");
    $("ask-error").replaceChildren();
    const choices = Object.entries(MODES).map(([name, what]) => make("label", {},
      make("input", { type: "radio", name: "mode", value: name, checked: name === mode, required: true }), make("span", {}, make("b", {}, name), ` ${what}`)));
    $("ask-modes").hidden = mode === null;
    const override = make("label", {}, make("input", { type: "checkbox" }),
      make("span", {}, "Enter live mode without evidence of a gain over a₀; the reason below is logged."));
    $("ask-modes").replaceChildren(make("legend", {}, "New mode"), ...(mode === null ? [] : [...choices, override]));
    this.dialog.showModal();
    (mode === null ? $("ask-why") : $("ask-modes").querySelector("input:checked")).focus();
    if (why) $("ask-why").select();
  }

  async submit(event) {
    event.preventDefault();
    const why = $("ask-why").value.trim();
    if (!why) {
      $("ask-why").setAttribute("aria-invalid", "true");
      $("ask-error").replaceChildren(make("p", {}, "Please give a reason: it goes into the log."));
      $("ask-why").focus();
      return;
    }
    $("ask-yes").disabled = true;
    try {
      await this.act(why, $("ask-modes").querySelector("input[type=radio]:checked")?.value, $("ask-modes").querySelector("[type=checkbox]:checked") !== null);
      this.dialog.close();
    } catch (error) {
      const list = (error.unmet ?? []).map((line) => make("li", {}, line));
      $("ask-error").replaceChildren(make("p", {}, error.message), ...(list.length ? [make("ul", {}, ...list)] : []));
    } finally {
      $("ask-yes").disabled = false;
    }
  }
}
