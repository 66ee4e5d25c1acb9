// The page: who is logged in, what is shown, and when it is asked for again.

import { api, Refused, token } from "./api.js";
import { certificateParts } from "./certificate.js";
import { Ask, showBanners, showMode, statusBanners } from "./controls.js";
import { clock, count, make, nameActions } from "./format.js";
import { showOverview } from "./overview.js";
import { Panels } from "./panels.js";
import { Decisions } from "./table.js";

const MARKS = 1000, RUNS = 300, WAIT = 20, PAUSE_BETWEEN = 1000, LONGEST_RETRY = 15;
const THEMES = ["auto", "light", "dark"], THEME_KEY = "tether-theme";

const $ = (id) => document.getElementById(id);
const page = { status: null, series: null, window: 1000, paused: false, lost: null, run: null, decision: null };
const panels = new Panels(openDecision), table = new Decisions(openDecision), ask = new Ask();

const isAdmin = () => (page.status?.you?.roles ?? []).includes("admin");
const sleep = (milliseconds) => new Promise((done) => { setTimeout(done, milliseconds); });

// Log-in ------------------------------------------------------------------------------------------------------------

function showLogIn(message = "") {
  page.run?.abort();
  page.status = null;
  token.forget();
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  for (const id of ["loading", "board", "link", "pause", "who", "log-out"]) $(id).hidden = true;
  $("problem").textContent = "";
  $("log-in").hidden = false;
  $("log-in-error").textContent = message;
  $("token").value = "";
  $("token").toggleAttribute("aria-invalid", message !== "");
  $("token").focus();
  document.title = "Log in · Tether dashboard";
}

function refusal(error) {
  if (error.status === 401) return "This token is not valid: it is mistyped, expired or revoked.";
  if (error.status === 403) return "This token may not read. Use one with the role read.";
  return error.message;
}

async function logIn(event) {
  event.preventDefault();
  const secret = $("token").value.trim();
  if (!secret) return showLogIn("Please paste a token.");
  if (!/^[\x21-\x7e]+$/.test(secret)) return showLogIn("This is not a token: it holds spaces or letters that no token has.");
  token.keep(secret);
  try {
    await start();
  } catch (error) {
    showLogIn(refusal(error));
  }
}

/** Shows the board with everything on it, then keeps it up to date until somebody logs out. */
async function start() {
  const status = await api.status();
  $("loading").hidden = $("log-in").hidden = true;
  $("board").hidden = false;
  $("link").hidden = $("pause").hidden = $("who").hidden = false;
  $("log-out").hidden = status.open === true;
  page.run?.abort();
  page.run = new AbortController();
  showStatus(status);
  await refresh();
  $("content").focus({ preventScroll: true });
  follow(page.run.signal);
  openFromAddress();
}

// What is shown -----------------------------------------------------------------------------------------------------

function showStatus(status) {
  page.status = status;
  nameActions(status.actions);
  const you = status.you ?? {}, roles = you.roles ?? [];
  const role = status.open ? "open" : roles.includes("admin") ? "admin" : roles.join(", ");
  $("who").textContent = you.name ? `${you.name} · ${role}` : role;
  $("problem").textContent = status.problem ?? "";
  const sign = status.alarm ? "⚠ Alarm · " : status.stopped ? "■ Stopped · " : "";
  document.title = `${sign}${status.problem ?? "Tether"} · Tether dashboard`;
  showMode(status, isAdmin());
  banners();
  showOverview(status, page.series);
}

function banners() {
  const status = page.status;
  if (!status) return;
  const retry = make("button", { type: "button", onclick: () => page.retry?.() }, "Retry now");
  const lost = page.lost && { key: "lost", style: "warn", title: "Connection lost.", buttons: [retry],
    text: `${page.lost} The page shows what was known at ${clock(page.seen)} and keeps trying.` };
  showBanners([lost, ...statusBanners(status, isAdmin(), askReset)]);
}

// Staying up to date ------------------------------------------------------------------------------------------------

/** Up to so many decisions each gets its own mark; beyond, they are drawn as runs. */
const points = () => ((page.window || page.status.counts.decisions) <= MARKS ? MARKS : RUNS);

async function refresh() {
  const [status, series, decisions] = await Promise.all(
    [api.status(), api.series(page.window, points()), api.decisions(table.wanted, table.kind)]);
  page.series = series;
  page.seen = Date.now() / 1000;
  page.lost = null;
  showStatus(status);
  panels.show(series, status);
  table.refresh(decisions);
  showLink();
}

function showLink() {
  const [style, text] = page.lost ? ["lost", "Connection lost"] : page.paused ? ["paused", "Paused"] : ["live", "Online"];
  $("link").className = `link-state ${style}`;
  if ($("link").textContent !== text) $("link").textContent = text;
}

const readable = () => new Promise((done) => {
  const ready = () => !page.paused && !document.hidden;
  if (ready()) return done();
  const look = () => { if (ready()) { document.removeEventListener("visibilitychange", look); $("pause").removeEventListener("click", look); done(); } };
  document.addEventListener("visibilitychange", look);
  $("pause").addEventListener("click", look);
});

/** Waits for news and shows it, at most once per second and for a fifth of the time, so that a busy service is not
 * kept busy by its onlookers; after a failure, tries again with growing patience. */
async function follow(signal) {
  let patience = 1;
  while (!signal.aborted) {
    try {
      await readable();
      const { head } = page.lost ? { head: -1 } : await api.news(page.status.head.seq, WAIT, signal);
      await readable();
      if (signal.aborted) return;
      const began = Date.now();
      if (head !== page.status.head.seq) await refresh();
      patience = 1;
      await sleep(Math.max(PAUSE_BETWEEN, 4 * (Date.now() - began)));
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401 || error.status === 403) return showLogIn("You were logged out: the token is no longer valid.");
      page.lost = error instanceof Refused ? error.message : "The page could not read the answer.";
      if (!(error instanceof Refused)) console.error(error);
      banners();
      showLink();
      await Promise.race([sleep(patience * 1000), new Promise((now) => { page.retry = now; })]);
      patience = Math.min(LONGEST_RETRY, 2 * patience);
    }
  }
}

/** Runs something the user asked for; a refused token leads to the log-in, anything else is said. */
async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.status === 401) return showLogIn("You were logged out: the token is no longer valid.");
    page.lost = error.message;
    banners();
    return undefined;
  }
}

// Certificates ------------------------------------------------------------------------------------------------------

const addressOf = (id) => `#decision=${encodeURIComponent(id)}`;

async function openDecision(id) {
  page.decision = id;
  const dialog = $("certificate"), body = $("certificate-body");
  $("certificate-title").textContent = "Certificate";
  body.replaceChildren(make("p", { class: "loading", role: "status" }, "Reading the log …"));
  if (!dialog.open) dialog.showModal();
  history.replaceState(null, "", addressOf(id));
  try {
    const row = await api.decision(id);
    if (page.decision !== id) return; // another one was opened meanwhile
    $("certificate-title").textContent = `Certificate of entry ${count(row.seq)}`;
    body.replaceChildren(...certificateParts(row, page.status));
    body.scrollTop = 0;
  } catch (error) {
    if (error.status === 401) return showLogIn("You were logged out: the token is no longer valid.");
    if (page.decision !== id) return;
    const what = error.status === 404 ? `There is no decision ${id} in this log.` : error.message;
    body.replaceChildren(make("p", { class: "banner bad", role: "alert" }, what));
  }
}

function openFromAddress() {
  const id = /^#decision=(.+)$/.exec(location.hash)?.[1];
  if (id) openDecision(decodeURIComponent(id));
}

// What admins do ----------------------------------------------------------------------------------------------------

async function act(call) {
  await call();
  await refresh();
  $("said").textContent = "Done.";
}

const askStop = () => ask.open({
  title: "Stop?", text: "From the next decision on, only the safe action a₀ is played, in every worker, until somebody resumes.",
  yes: "Stop now", style: "danger", why: "stopped from the dashboard", act: (why) => act(() => api.stop(why)),
});
const askResume = () => ask.open({
  title: "Resume?", text: `Learned actions may be played again, in ${page.status.mode} mode.`,
  yes: "Resume", act: (why) => act(() => api.resume(why)),
});
const askReset = () => ask.open({
  title: "Reset the alarm?", text: `${page.status.alarm?.message ?? ""} Reset it only when you know why it tripped: an assumption of the guarantee may be false.`,
  yes: "Reset the alarm", style: "danger", act: (why) => act(() => api.resetAlarm(why)),
});
const askMode = () => ask.open({
  title: "Change the mode", text: "A step up is allowed when its criteria are met. A step down always is.",
  yes: "Change mode", mode: page.status.mode, act: (why, mode, override) => act(() => api.setMode(mode, why, override)),
});

// Wiring ------------------------------------------------------------------------------------------------------------

function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  $("theme").textContent = `Theme: ${name}`;
  localStorage.setItem(THEME_KEY, name);
}

function choose(selector, button) {
  for (const other of document.querySelectorAll(selector)) other.setAttribute("aria-pressed", String(other === button));
}

function wire() {
  const theme = () => localStorage.getItem(THEME_KEY) ?? "auto";
  setTheme(THEMES.includes(theme()) ? theme() : "auto");
  $("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]));
  $("log-in-form").addEventListener("submit", logIn);
  $("log-out").addEventListener("click", () => showLogIn());
  $("pause").addEventListener("click", () => {
    page.paused = !page.paused;
    $("pause").setAttribute("aria-pressed", String(page.paused));
    showLink();
  });
  for (const [id, open] of [["stop", askStop], ["resume", askResume], ["change-mode", askMode]]) $(id).addEventListener("click", open);
  $("older").addEventListener("click", () => attempt(async () => table.extend(await api.decisions(table.step, table.kind, table.next))));
  for (const button of document.querySelectorAll("[data-window]")) {
    button.addEventListener("click", () => { page.window = Number(button.dataset.window); choose("[data-window]", button); attempt(refresh); });
  }
  for (const button of document.querySelectorAll("[data-kind]")) {
    button.addEventListener("click", () => { table.choose(button.dataset.kind); choose("[data-kind]", button); attempt(refresh); });
  }
  const dialog = $("certificate");
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => {
    // The event comes late: by then another certificate may be open, or asked for by the address.
    if (!dialog.open && location.hash === addressOf(page.decision)) history.replaceState(null, "", location.pathname + location.search);
  });
  addEventListener("hashchange", () => { if (page.status) openFromAddress(); });
}

/** Whether to try without a token: there is one from before, or the server needs none. */
async function mayStart() {
  return token.read() !== null || (await api.health()).open !== false;
}

async function begin() {
  try {
    if (await mayStart()) await start();
    else showLogIn();
  } catch (error) {
    if (error.status !== 0) return showLogIn(error.status === 401 && !token.read() ? "" : refusal(error));
    $("loading").textContent = `${error.message} Trying again …`;
    await sleep(3000);
    return begin();
  }
  return undefined;
}

wire();
begin();
