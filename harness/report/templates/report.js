"use strict";
/* Plots, their colours, legends and the table of rows. Everything it needs is in the page. */
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const fine = window.matchMedia("(pointer: fine)").matches;
  const scheme = () => (dark.matches ? "dark" : "light");
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /* ---- plots ---- */
  const figures = read("figures");
  const plots = [...document.querySelectorAll(".plot")];
  const drawn = new Set();

  const paintTrace = (trace) => {
    const colour = trace.meta[scheme()];
    const marker = trace.marker && { ...trace.marker, color: colour, line: { ...trace.marker.line, color: colour } };
    return { ...trace, line: { ...trace.line, color: colour }, ...(marker && { marker }) };
  };
  const paintLayout = (layout) => {
    const axis = { gridcolor: variable("--grid"), linecolor: variable("--axis"), tickcolor: variable("--axis"), zeroline: false,
      showline: true, ticks: "outside", ticklen: 4, automargin: true, fixedrange: !fine };
    const title = (one) => ({ ...one, font: { size: 12, color: variable("--quiet") }, standoff: 8 });
    return {
      ...layout, dragmode: fine ? "zoom" : false,
      font: { family: variable("--sans"), size: 12, color: variable("--text") },
      hoverlabel: { bgcolor: variable("--raised"), bordercolor: variable("--line"), align: "left",
        font: { family: variable("--sans"), size: 12, color: variable("--text") } },
      xaxis: { ...layout.xaxis, ...axis, title: title(layout.xaxis.title) },
      yaxis: { ...layout.yaxis, ...axis, title: title(layout.yaxis.title) },
      annotations: (layout.annotations || []).map((one) => ({ ...one, font: { ...one.font, color: variable("--cliff") } })),
    };
  };
  const hidden = (plot) => new Set([...plot.closest(".chart").querySelectorAll('.key[aria-pressed="false"]')].map((key) => +key.dataset.key));
  const draw = (plot) => {
    const { data, layout } = figures[+plot.dataset.figure];
    const off = hidden(plot);
    const traces = data.map((trace) => ({ ...paintTrace(trace), visible: !off.has(trace.meta.key) }));
    const options = { responsive: true, displaylogo: false, displayModeBar: fine ? "hover" : false,
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d", "pan2d"] };
    drawn.add(plot);
    return Plotly.react(plot, traces, paintLayout(layout), options);
  };

  document.querySelectorAll(".key").forEach((key) => key.addEventListener("click", () => {
    key.setAttribute("aria-pressed", key.getAttribute("aria-pressed") === "true" ? "false" : "true");
    key.closest(".chart").querySelectorAll(".plot").forEach((plot) => drawn.has(plot) && draw(plot));
  }));
  dark.addEventListener("change", () => drawn.forEach(draw));

  /* What is in view first, the rest while nothing else happens. */
  const folded = (plot) => Boolean(plot.closest("details:not([open])"));
  document.querySelectorAll("details").forEach((one) => one.addEventListener("toggle", () => {
    if (one.open) one.querySelectorAll(".plot").forEach((plot) => drawn.has(plot) || folded(plot) || draw(plot));
  }));
  const near = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target);
  }), { rootMargin: "300px" });
  plots.forEach((plot) => near.observe(plot));
  const later = window.requestIdleCallback || ((call) => setTimeout(call, 30));
  const drawRest = () => {
    const next = plots.find((plot) => !drawn.has(plot) && !folded(plot));
    if (!next) { document.documentElement.dataset.plots = "drawn"; return; }
    draw(next).then(() => later(drawRest));
  };
  later(drawRest);
  window.addEventListener("beforeprint", () => plots.filter((plot) => !drawn.has(plot) && !folded(plot)).forEach(draw));

  /* ---- where one is ---- */
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (!entry.isIntersecting) return;
    links.forEach((link) => link.classList.remove("here"));
    links.get(entry.target.id).classList.add("here");
  }), { rootMargin: "-15% 0px -80% 0px" });
  links.forEach((_, id) => seen.observe(document.getElementById(id)));

  /* ---- rows ---- */
  const { columns, rows, opColumns, texts } = read("row-data");
  const head = document.querySelector("#row-table thead"), body = document.querySelector("#row-table tbody");
  const filter = document.getElementById("row-filter"), more = document.getElementById("row-more");
  const PAGE = 100;
  let shown = PAGE, order = null, found = rows;

  const cell = (tag, text, numeric) => {
    const one = document.createElement(tag);
    one.textContent = text;
    if (numeric) one.className = "num";
    return one;
  };
  const heading = (column) => {
    const one = cell("th", column.title, column.numeric);
    if (column.unit) { const unit = cell("span", ` ${column.unit}`); unit.className = "unit"; one.append(unit); }
    one.scope = "col";
    return one;
  };
  const line = (cells) => { const row = document.createElement("tr"); row.append(...cells); return row; };
  const opTable = (ops) => {
    const table = document.createElement("table");
    const thead = table.createTHead(), tbody = table.createTBody();
    thead.append(line(opColumns.map(heading)));
    ops.forEach((op) => tbody.append(line(op.map((value, i) => cell("td", opColumns[i].coded ? texts[value] : value, opColumns[i].numeric)))));
    return table;
  };
  const show = () => {
    body.replaceChildren(...found.slice(0, shown).map((row) => {
      const one = line(columns.map((column, i) => cell("td", row.cells[i], column.numeric)));
      one.tabIndex = 0;
      const toggle = () => {
        if (one.nextSibling && one.nextSibling.className === "ops") { one.nextSibling.remove(); return; }
        const wide = document.createElement("td");
        wide.colSpan = columns.length;
        wide.append(opTable(row.ops));
        const inner = line([wide]);
        inner.className = "ops";
        one.after(inner);
      };
      one.addEventListener("click", toggle);
      one.addEventListener("keydown", (event) => { if (event.key === "Enter") toggle(); });
      return one;
    }));
    more.hidden = found.length <= shown;
    document.getElementById("row-count").textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
  };
  const select = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = rows.filter((row) => words.every((word) => row.cells.join("\u0001").toLowerCase().includes(word)));
    if (order) {
      const { index, sign } = order;
      const key = columns[index].numeric ? (row) => (row.cells[index] === "" ? Infinity : +row.cells[index]) : (row) => row.cells[index];
      found = [...found].sort((a, b) => { const x = key(a), y = key(b); return x < y ? -sign : x > y ? sign : 0; });
    }
    shown = PAGE;
    show();
  };
  head.append(line(columns.map((column, index) => {
    const one = heading(column);
    one.addEventListener("click", () => {
      order = { index, sign: order && order.index === index ? -order.sign : 1 };
      head.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      one.setAttribute("aria-sort", order.sign > 0 ? "ascending" : "descending");
      select();
    });
    return one;
  })));
  filter.addEventListener("input", select);
  filter.closest("form").addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", () => { shown += 4 * PAGE; show(); });
  select();
})();
