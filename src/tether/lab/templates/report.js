"use strict";
// Draws the panels with plotly, in the reader's colours; one legend toggles an agent in all panels of its chart.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)");
  const plots = [];

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const hexToRgba = (hex, alpha) =>
    `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${alpha})`;
  const readable = (value) =>
    Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));

  // A count axis is log10(1 + y/unit): zero has a place, and so has one violation in all runs.
  const place = (panel, scale, value) =>
    value === null ? null : scale === "count" ? Math.log10(1 + Math.max(value, 0) / panel.unit) : value;

  function lines(panel, scale, hidden) {
    const traces = [];
    for (const guide of scale === panel.yScale ? panel.guides : []) {
      traces.push({
        x: guide.x, y: guide.y.map((v) => place(panel, scale, v)), mode: "lines", hoverinfo: "skip",
        line: { color: colour("--quiet"), width: 1.3, dash: "7px,4px" },
      });
    }
    panel.series.forEach((curve, index) => {
      const shade = dark.matches ? curve.dark : curve.light;
      const visible = !hidden.has(index);
      const at = (values) => values.map((v) => place(panel, scale, v));
      const whole = scale !== "log" || curve.low.every((v) => v > 0);
      if (whole) {
        traces.push({
          x: [...curve.x, ...[...curve.x].reverse()], y: [...at(curve.high), ...at(curve.low).reverse()],
          mode: "lines", line: { width: 0 }, fill: "toself", fillcolor: hexToRgba(shade, dark.matches ? 0.2 : 0.15),
          hoverinfo: "skip", visible,
        });
      }
      traces.push({
        x: curve.x, y: at(curve.y), visible, name: curve.name, meta: curve.name,
        mode: curve.symbol ? "lines+markers" : "lines",
        line: { color: shade, width: curve.width + 0.3, dash: curve.dash },
        marker: { symbol: curve.symbol || "circle", size: 7, maxdisplayed: 7, color: shade },
        customdata: curve.y.map((v, i) => [readable(v), readable(curve.low[i]), readable(curve.high[i])]),
        hovertemplate: `<b>${curve.name}</b><br>${curve.note}<br>${panel.xTitle} %{x:,}: %{customdata[0]}` +
          "<br>95%: %{customdata[1]} to %{customdata[2]}<extra></extra>",
      });
    });
    return traces;
  }

  function axis(title, scale) {
    return {
      title: { text: title, standoff: 12 }, type: scale === "log" ? "log" : "linear", automargin: true,
      gridcolor: colour("--rule"), linecolor: colour("--quiet"), zeroline: false, ticks: "outside", ticklen: 4,
      tickcolor: colour("--rule"), ...(scale === "log" ? { dtick: 1, tickformat: ",~g" } : { tickformat: ",~g" }),
    };
  }

  function countTicks(panel) {
    const top = Math.max(1, ...panel.series.flatMap((curve) => curve.high));
    const values = [0];
    for (let power = Math.ceil(Math.log10(panel.unit)); 10 ** power <= top; power += 1) values.push(10 ** power);
    return {
      tickmode: "array", tickvals: values.map((v) => place(panel, "count", v)), ticktext: values.map(readable),
      range: [-0.15, place(panel, "count", 2 * top)],
    };
  }

  function layout(panel, scale) {
    const y = axis(panel.yTitle, scale);
    const xScale = scale === "linear" && panel.yScale === "log" ? "linear" : panel.xScale;
    if (scale === "count") Object.assign(y, countTicks(panel));
    const guides = panel.guides.map((guide) => {
      const rises = guide.y[guide.y.length - 1] > guide.y[0];
      const log = (value, kind) => (kind === "log" ? Math.log10(value) : value);
      return {
        text: guide.name, showarrow: false, font: { size: 12, color: colour("--quiet") }, xanchor: "left",
        yanchor: rises ? "top" : "bottom", x: log(guide.x[0], xScale), y: log(guide.y[0], scale), xshift: rises ? 8 : 2,
      };
    });
    return {
      xaxis: axis(panel.xTitle, xScale), yaxis: y, annotations: scale === panel.yScale ? guides : [],
      showlegend: false, hovermode: "closest", dragmode: coarse.matches ? false : "zoom",
      margin: { l: 8, r: 14, t: coarse.matches ? 36 : 12, b: 8 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--quiet"), activecolor: colour("--ink") }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("--ink") },
      hoverlabel: { bgcolor: colour("--page"), bordercolor: colour("--quiet"), font: { color: colour("--ink"), size: 13 }, align: "left" },
      uirevision: scale,
    };
  }

  // plotly offers to share charts through its own server unless told not to: the buttons are listed one by one.
  const config = {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "", doubleClickDelay: 400,
    displayModeBar: coarse.matches ? true : "hover", toImageButtonOptions: { format: "svg" },
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
  };

  function show(plot) {
    return Plotly.react(plot.node, lines(plot.panel, plot.scale, plot.hidden), layout(plot.panel, plot.scale), config);
  }

  function addScaleButton(plot) {
    const button = document.querySelector(`[data-scale-of="${plot.node.id}"]`);
    if (!button) return;
    const own = plot.panel.yScale;
    button.addEventListener("click", () => {
      plot.scale = plot.scale === own ? "linear" : own;
      button.textContent = plot.scale === own ? "Linear axes" : "Log axes";
      show(plot);
    });
  }

  function addLegend(chart, own, hidden) {
    const buttons = [...document.querySelectorAll(`[data-legend="${chart.name}"] button[data-series]`)];
    const all = document.querySelector(`[data-legend="${chart.name}"] .all`);
    const refresh = () => {
      buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(!hidden.has(index))));
      all.hidden = hidden.size === 0;
      own.forEach(show);
    };
    buttons.forEach((button, index) => {
      button.addEventListener("click", () => {
        if (!hidden.delete(index)) hidden.add(index);
        refresh();
      });
    });
    all.addEventListener("click", () => {
      hidden.clear();
      refresh();
    });
  }

  for (const chart of charts) {
    const hidden = new Set();
    const own = chart.panels.map((panel) => {
      const node = document.getElementById(`${chart.name}-${panel.key}`);
      return { node, panel, hidden, scale: panel.yScale };
    });
    own.forEach(addScaleButton);
    addLegend(chart, own, hidden);
    plots.push(...own);
  }
  Promise.all(plots.map(show)).then(() => { document.documentElement.dataset.ready = "true"; });
  dark.addEventListener("change", () => plots.forEach(show));

  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((entry) => { entry.open = true; });
  });
  window.addEventListener("afterprint", () => closed.forEach((entry) => { entry.open = false; }));
})();
