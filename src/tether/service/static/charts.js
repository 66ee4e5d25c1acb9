// Small charts in SVG: lines, areas and marks over a common x axis, with a cursor for the mouse, the finger and the keys.
// Colours come from the style sheet by class, so that light and dark need no redrawing.

const SPACE = { left: 54, right: 14, top: 12, bottom: 26 };
const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Round values that cut [low, high] into about `wanted` parts. */
export function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at += 1) found.push(at * step);
  return found;
}

/** The path of a line through the points; a gap where a value is missing. */
function linePath(xs, ys) {
  let path = "", open = false;
  ys.forEach((y, i) => {
    if (y === null) { open = false; return; }
    path += `${open ? "L" : "M"}${xs[i].toFixed(1)} ${y.toFixed(1)}`;
    open = true;
  });
  return path;
}

/** The area between a line and a level, one closed piece per stretch without gaps. */
function areaPath(xs, ys, level) {
  let path = "", start = null;
  for (let i = 0; i <= ys.length; i += 1) {
    const missing = i === ys.length || ys[i] === null;
    if (!missing && start === null) { start = i; path += `M${xs[i].toFixed(1)} ${level.toFixed(1)}`; }
    if (!missing) path += `L${xs[i].toFixed(1)} ${ys[i].toFixed(1)}`;
    if (missing && start !== null) { path += `L${xs[i - 1].toFixed(1)} ${level.toFixed(1)}Z`; start = null; }
  }
  return path;
}

/** One path of marks, drawn as strokes without length: round caps make dots, a little width makes ticks. */
function marksPath(xs, ys, chosen, width) {
  let path = "";
  ys.forEach((y, i) => {
    if (y !== null && chosen(i)) path += `M${(xs[i] - width / 2).toFixed(1)} ${y.toFixed(1)}h${width}`;
  });
  return path;
}

export class Chart {
  /** host: an empty element; name: what a screen reader calls the chart; open(i): called by Enter or click on point i. */
  constructor(host, { name, format, open = null }) {
    Object.assign(this, { host, name, format, open, model: null, at: null });
    this.plot = shape("svg", { "aria-hidden": "true", focusable: "false" });
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    this.heard = document.createElement("p");
    this.heard.className = "unseen";
    this.heard.setAttribute("role", "status");
    this.blank = document.createElement("p");
    this.blank.className = "empty";
    host.append(this.plot, this.tip, this.heard, this.blank);
    host.tabIndex = 0;
    host.setAttribute("role", "group");
    host.setAttribute("aria-roledescription", "chart");
    host.addEventListener("pointermove", (event) => this.follow(event));
    host.addEventListener("pointerdown", (event) => this.follow(event));
    host.addEventListener("pointerleave", () => this.point(null));
    host.addEventListener("blur", () => this.point(null));
    host.addEventListener("click", () => this.choose());
    host.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(host);
  }

  /**
   * model: x (numbers, rising), layers [{kind: "line"|"area"|"dots"|"ticks"|"whiskers", values, to?, only?, style, name?}],
   * include (values that the y axis must show), floor/ceiling (fixed ends), lines [{at, style, label}],
   * shade [{from, to, style}], tell(i) -> [string], summary (for screen readers), empty (text when there is no point).
   */
  show(model) {
    const kept = this.at !== null && this.model ? this.model.x[this.at] : null;
    this.model = model;
    this.host.setAttribute("aria-label", `${this.name}. ${model.x.length ? model.summary : model.empty}`);
    this.draw();
    const again = kept === null ? -1 : model.x.indexOf(kept);
    this.point(again < 0 ? null : again, false);
  }

  draw() {
    const { model, host } = this;
    const width = host.clientWidth, height = host.clientHeight;
    if (!model || width < 60) return;
    const empty = model.x.length === 0;
    this.blank.textContent = model.empty;
    this.blank.hidden = !empty;
    this.plot.toggleAttribute("hidden", empty);
    if (empty) return;
    this.frame(width, height);
    const parts = [...this.shading(), ...this.grid(), ...this.rules(), ...model.layers.flatMap((layer) => this.layer(layer))];
    this.cursor = shape("g", { class: "cursor" });
    this.plot.replaceChildren(...parts, this.cursor);
  }

  /** Scales from data to pixels. */
  frame(width, height) {
    const { model } = this;
    const seen = model.layers.flatMap((layer) => [...layer.values, ...(layer.to ?? [])]).filter((value) => value !== null);
    let low = Math.min(...seen, ...(model.include ?? [])), high = Math.max(...seen, ...(model.include ?? []));
    if (!Number.isFinite(low)) [low, high] = [0, 1];
    const spare = 0.06 * (high - low || Math.abs(high) || 1);
    low = model.floor ?? low - spare;
    high = model.ceiling ?? high + spare;
    const first = model.x[0], last = model.x.at(-1), span = last - first || 1;
    const inner = { width: width - SPACE.left - SPACE.right, height: height - SPACE.top - SPACE.bottom };
    Object.assign(this, { width, height, low, high, inner });
    this.toX = (x) => SPACE.left + (model.x.length === 1 ? 0.5 : (x - first) / span) * inner.width;
    this.toY = (y) => SPACE.top + (1 - (y - low) / (high - low)) * inner.height;
    this.xs = model.x.map(this.toX);
    this.plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.plot.setAttribute("width", width);
    this.plot.setAttribute("height", height);
  }

  grid() {
    const parts = [], end = this.width - SPACE.right, foot = this.height - SPACE.bottom;
    for (const value of ticks(this.low, this.high, this.height > 260 ? 6 : 4)) {
      const y = this.toY(value);
      parts.push(shape("path", { class: "grid", d: `M${SPACE.left} ${y.toFixed(1)}H${end}` }));
      parts.push(shape("text", { class: "tick", x: SPACE.left - 8, y: y + 4, "text-anchor": "end" }, this.format(value)));
    }
    const { x } = this.model, wanted = Math.max(3, Math.floor(this.inner.width / 100));
    const whole = ticks(x[0], x.at(-1), wanted).filter(Number.isInteger), ends = x.length === 1 ? x : [x[0], x.at(-1)];
    for (const value of whole.length > 1 || this.inner.width < 100 ? whole : ends) {
      const label = value.toLocaleString("en"), at = this.toX(value), half = label.length * 3.6;
      const anchor = at + half > this.width ? "end" : at - half < 0 ? "start" : "middle";
      parts.push(shape("text", { class: "tick", x: at, y: foot + 18, "text-anchor": anchor }, label));
    }
    return parts;
  }

  shading() {
    return (this.model.shade ?? []).flatMap(({ from, to, style }) => {
      const top = this.toY(Math.min(to, this.high)), bottom = this.toY(Math.max(from, this.low));
      if (bottom <= top) return [];
      return [shape("rect", { class: style, x: SPACE.left, y: top, width: this.inner.width, height: bottom - top })];
    });
  }

  rules() {
    return (this.model.lines ?? []).flatMap(({ at, style, label }) => {
      const y = this.toY(at), end = this.width - SPACE.right;
      const rule = shape("path", { class: `rule ${style}`, d: `M${SPACE.left} ${y.toFixed(1)}H${end}` });
      return label ? [rule, shape("text", { class: `rule-label ${style}`, x: end - 4, y: y + 15, "text-anchor": "end" }, label)] : [rule];
    });
  }

  layer({ kind, values, to, only, style, level = 0 }) {
    const pixel = (value) => (value === null ? null : this.toY(value));
    const ys = values.map(pixel), chosen = only ?? (() => true);
    if (kind === "area") {
      const base = this.toY(Math.min(Math.max(level, this.low), this.high));
      return [shape("path", { class: `area ${style}`, d: areaPath(this.xs, ys, base) })];
    }
    if (kind === "whiskers") {
      const ends = to.map(pixel);
      const d = ys.map((y, i) => (y === null || ends[i] === null ? "" : `M${this.xs[i].toFixed(1)} ${y.toFixed(1)}V${ends[i].toFixed(1)}`));
      return [shape("path", { class: `whiskers ${style}`, d: d.join("") })];
    }
    if (kind === "line") return [shape("path", { class: `line ${style}`, d: linePath(this.xs, ys) })];
    const crowded = this.xs.length > 400 ? "crowded" : "";
    const d = marksPath(this.xs, ys, chosen, kind === "dots" ? 0.01 : 5);
    return [shape("path", { class: `${kind} ${style} ${crowded}`, d })];
  }

  /** Puts the cursor on the point that is nearest to the pointer. */
  follow(event) {
    if (!this.model?.x.length || !this.xs) return;
    const x = event.clientX - this.host.getBoundingClientRect().left;
    let best = 0;
    this.xs.forEach((at, i) => { if (Math.abs(at - x) < Math.abs(this.xs[best] - x)) best = i; });
    this.point(best, false);
  }

  key(event) {
    const last = (this.model?.x.length ?? 0) - 1;
    if (last < 0) return;
    const here = this.at ?? last + (event.key === "ArrowLeft" ? 1 : 0);
    const jump = { ArrowLeft: here - 1, ArrowRight: here + 1, PageUp: here - 25, PageDown: here + 25, Home: 0, End: last }[event.key];
    if (jump !== undefined) this.point(Math.min(last, Math.max(0, jump)));
    else if (event.key === "Escape" && this.at !== null) this.point(null);
    else if (event.key === "Enter" && this.at !== null) this.choose();
    else return;
    event.preventDefault();
  }

  choose() {
    if (this.open && this.at !== null) this.open(this.at);
  }

  /** Moves the cursor to point i (null hides it) and says what is there. */
  point(i, aloud = true) {
    this.at = i;
    if (!this.cursor) return;
    this.tip.hidden = i === null;
    if (i === null) { this.cursor.replaceChildren(); return; }
    const x = this.xs[i], lines = this.model.tell(i);
    const dots = this.model.layers.filter((layer) => layer.kind !== "area" && layer.kind !== "whiskers" && (layer.only?.(i) ?? true))
      .filter((layer) => layer.values[i] !== null)
      .map((layer) => shape("circle", { class: layer.style, cx: x, cy: this.toY(layer.values[i]), r: 4.5 }));
    const rule = shape("path", { d: `M${x.toFixed(1)} ${SPACE.top}V${this.height - SPACE.bottom}` });
    this.cursor.replaceChildren(rule, ...dots);
    this.tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("span"), { textContent: line })));
    const room = this.width - this.tip.offsetWidth - 4;
    const left = x + 14 > room ? x - this.tip.offsetWidth - 14 : x + 14;
    this.tip.style.transform = `translate(${Math.max(2, Math.min(room, left)).toFixed(0)}px, ${SPACE.top}px)`;
    if (aloud) this.heard.textContent = lines.join(", ");
  }
}
