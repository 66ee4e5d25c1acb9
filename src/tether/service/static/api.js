// Calls to the service: the token, the errors, and the wait for news.

const KEY = "tether-token";

/** An answer that is not a success: its status (0 when nothing answered), what it says, and the unmet criteria, if any. */
export class Refused extends Error {
  constructor(status, message, unmet = []) {
    super(message);
    this.status = status;
    this.unmet = unmet;
  }
}

export const token = {
  read: () => sessionStorage.getItem(KEY),
  keep: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

async function problemOf(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // Not JSON: a proxy answered. The status must do.
  }
  const detail = typeof body.detail === "string" ? body.detail : null;
  return new Refused(response.status, detail ?? body.title ?? `The service answered ${response.status}.`, body.unmet ?? []);
}

async function call(method, path, { body, patience = 15, signal } = {}) {
  const headers = { Accept: "application/json" };
  const secret = token.read();
  if (secret) headers.Authorization = `Bearer ${secret}`;
  if (body) headers["Content-Type"] = "application/json";
  const limit = AbortSignal.timeout(patience * 1000);
  let response;
  try {
    response = await fetch(path, {
      method, headers, body: body && JSON.stringify(body), cache: "no-store", credentials: "omit",
      signal: signal ? AbortSignal.any([limit, signal]) : limit,
    });
    if (response.ok) return await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0, error.name === "TimeoutError" ? "The service did not answer in time." : "The service cannot be reached.");
  }
  throw await problemOf(response);
}

export const api = {
  health: () => call("GET", "healthz"),
  status: () => call("GET", "v1/status"),
  decisions: (limit, kind, before) =>
    call("GET", `v1/decisions?limit=${limit}&kind=${kind}${before ? `&before=${before}` : ""}`),
  decision: (id) => call("GET", `v1/decisions/${encodeURIComponent(id)}`),
  series: (window, points) => call("GET", `v1/series?window=${window}&points=${points}`),
  news: (after, wait, signal) => call("GET", `v1/events?after=${after}&wait=${wait}`, { patience: wait + 10, signal }),
  stop: (why) => call("POST", "v1/stop", { body: { why } }),
  resume: (why) => call("POST", "v1/resume", { body: { why } }),
  resetAlarm: (why) => call("POST", "v1/alarm/reset", { body: { why } }),
  setMode: (mode, why, override) => call("POST", "v1/mode", { body: { mode, why, override } }),
};
