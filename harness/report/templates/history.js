"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const ROW = 30;
  const nights = data.nights.length;
  const $ = (id) => document.getElementById(id);
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const number = (value) => Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4, useGrouping: false });
  let ink = {};
  const readInk = () => {
    const style = getComputedStyle(document.documentElement);
    const take = (name) => style.getPropertyValue(name).trim();
    ink = Object.fromEntries([..."urietshf"].map((state) => [state, take(`--s-${state}`)]));
    Object.assign(ink, { point: take("--point"), reference: take("--reference"), line: take("--line"), text: take("--text"), quiet: take("--quiet"), ground: take("--ground") });
  };

  // Values of a series by night: null where there is none.
  const valuesOf = (series) => {
    if (series.all) return series.all;
    let next = 0;
    series.all = Array.from(series.s, (state) => (state === "." || state === "f") ? null : series.x[next++]);
    return series.all;
  };
  // A night that failed and was run again has a value; its state is that of the value.
  const fit = (canvas) => {
    const ratio = window.devicePixelRatio || 1;
    const box = canvas.getBoundingClientRect();
    const width = Math.max(1, Math.round(box.width * ratio)), height = Math.max(1, Math.round(box.height * ratio));
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, box.width, box.height);
    return [context, box.width, box.height];
  };

  const drawStrip = (canvas, series) => {
    const [context, width, height] = fit(canvas);
    const step = width / nights;
    const gap = step > 5 ? 1 : 0;
    for (let at = 0; at < nights; at++) {
      const state = series.s[at];
      if (state === ".") continue;
      context.fillStyle = ink[state];
      if (state === "f") context.fillRect(at * step, height / 2 - 2, Math.max(1, step - gap), 4);
      else context.fillRect(at * step, 3, Math.max(1, step - gap), height - 6);
    }
    context.fillStyle = ink.text;
    for (const [at] of series.e.slice(1)) context.fillRect(at * step - 0.5, 0, 1, height);
  };

  const rangeOf = (values) => {
    let low = Infinity, high = -Infinity;
    for (const value of values) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
    const pad = (high - low) * 0.08 || Math.abs(high) * 0.02 || 1;
    return [low - pad, high + pad];
  };

  const drawSpark = (canvas, series) => {
    const [context, width, height] = fit(canvas);
    const values = valuesOf(series);
    if (!series.x.length) return;
    const [low, high] = rangeOf(values);
    context.strokeStyle = ink.point;
    context.lineWidth = 1;
    context.beginPath();
    let before = false;
    values.forEach((value, at) => {
      if (value === null) return;
      const x = (at + 0.5) * width / nights, y = height - 2 - (value - low) / (high - low) * (height - 4);
      if (before) context.lineTo(x, y); else context.moveTo(x, y);
      before = true;
    });
    context.stroke();
  };

  const shown = { list: [], verdicts: new Set(data.verdicts.keys()), words: [], selected: -1 };
  const rows = $("rows");
  const tall = make("div", { class: "tall" });
  rows.append(tall);
  const pool = new Map();

  const makeRow = (at) => {
    const series = data.series[shown.list[at]];
    const dot = make("i", { class: `dot v${series.v}` });
    const name = make("span", { class: "name", title: `${series.n}, ${series.m}: ${series.w}` }, dot, `${series.n}, ${series.m}`);
    const spark = make("canvas", { class: "spark", "aria-hidden": "true" });
    const strip = make("canvas", { class: "strip", "aria-hidden": "true" });
    const row = make("div", { class: "row", role: "option", id: `row-${at}`, "aria-selected": String(shown.list[at] === shown.selected), "aria-label": `${series.n}, ${series.m}: ${series.w}`, "aria-setsize": shown.list.length, "aria-posinset": at + 1, style: `top:${at * ROW}px` }, name, spark, strip);
    row.addEventListener("click", () => select(at));
    strip.addEventListener("mousemove", (event) => {
      const box = strip.getBoundingClientRect();
      tell(series, Math.min(nights - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * nights))));
    });
    tall.append(row);
    drawSpark(spark, series);
    drawStrip(strip, series);
    return row;
  };

  const tell = (series, at) => {
    const value = valuesOf(series)[at];
    $("hover").textContent = `${data.nights[at]}: ${data.states[series.s[at]]}${value === null ? "" : `, ${number(value)} ${series.u}`} · ${series.n}, ${series.m}`;
  };

  const render = () => {
    const from = Math.max(0, Math.floor(rows.scrollTop / ROW) - 4);
    const to = Math.min(shown.list.length, Math.ceil((rows.scrollTop + rows.clientHeight) / ROW) + 4);
    for (const [at, row] of pool) if (at < from || at >= to) { row.remove(); pool.delete(at); }
    for (let at = from; at < to; at++) if (!pool.has(at)) pool.set(at, makeRow(at));
  };

  const refresh = () => {
    for (const row of pool.values()) row.remove();
    pool.clear();
    tall.style.height = `${shown.list.length * ROW}px`;
    render();
  };

  const filter = () => {
    shown.list = [];
    data.series.forEach((series, at) => {
      if (!shown.verdicts.has(series.v)) return;
      const text = `${series.n}, ${series.m} ${series.w}`.toLowerCase();
      if (shown.words.every((word) => text.includes(word))) shown.list.push(at);
    });
    $("shown").textContent = `${shown.list.length.toLocaleString("en")} of ${data.series.length.toLocaleString("en")} series, ${nights} nights; click a series for its change points, samples and runs`;
    rows.scrollTop = 0;
    refresh();
  };

  const select = (at) => {
    if (at < 0 || at >= shown.list.length) return;
    shown.selected = shown.list[at];
    for (const [place, row] of pool) row.setAttribute("aria-selected", String(place === at));
    if (at * ROW < rows.scrollTop) rows.scrollTop = at * ROW;
    if ((at + 1) * ROW > rows.scrollTop + rows.clientHeight) rows.scrollTop = (at + 1) * ROW - rows.clientHeight;
    render();
    pool.get(at)?.setAttribute("aria-selected", "true");
    rows.setAttribute("aria-activedescendant", `row-${at}`);
    detail(data.series[shown.selected]);
  };

  const table = (headings, lines, numbers = []) => {
    const cell = (tag, text, at) => make(tag, numbers.includes(at) ? { class: "number" } : {}, text);
    return make("div", { class: "scroll" }, make("table", {},
      make("thead", {}, make("tr", {}, ...headings.map((text, at) => cell("th", text, at)))),
      make("tbody", {}, ...lines.map((line) => make("tr", {}, ...line.map((text, at) => cell("td", text, at)))))));
  };

  const drawDetail = (canvas, series) => {
    const [context, width, height] = fit(canvas);
    const values = valuesOf(series), left = 60, bottom = 22, top = 10, right = 10;
    const levels = [series.l, series.o].filter((level) => level !== undefined);
    const [low, high] = rangeOf([...values, ...levels]);
    const x = (at) => left + (at + 0.5) * (width - left - right) / nights;
    const y = (value) => height - bottom - (value - low) / (high - low) * (height - bottom - top);
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    context.fillStyle = ink.quiet;
    context.strokeStyle = ink.line;
    for (let part = 0; part <= 4; part++) {
      const value = low + (high - low) * part / 4;
      context.beginPath(); context.moveTo(left, y(value)); context.lineTo(width - right, y(value)); context.stroke();
      context.textAlign = "right"; context.fillText(number(value), left - 6, y(value) + 4);
    }
    context.textAlign = "left"; context.fillText(data.nights[0], left, height - 6);
    context.textAlign = "right"; context.fillText(data.nights[nights - 1], width - right, height - 6);
    const rule = (at, colour, dash) => {
      context.strokeStyle = colour; context.setLineDash(dash);
      context.beginPath(); context.moveTo(x(at - 0.5), top); context.lineTo(x(at - 0.5), height - bottom); context.stroke();
      context.setLineDash([]);
    };
    for (const [at] of series.e.slice(1)) rule(at, ink.e, [2, 3]);
    for (const [kind, , settled] of series.g) rule(settled, ink[{ regression: "r", improvement: "i", recovery: "i", shift: "s" }[kind] || "e"], [6, 3]);
    const flat = (level, dash) => {
      context.strokeStyle = ink.reference; context.setLineDash(dash);
      context.beginPath(); context.moveTo(left, y(level)); context.lineTo(width - right, y(level)); context.stroke();
      context.setLineDash([]);
    };
    if (series.l !== undefined) flat(series.l, [1, 0]);
    if (series.o !== undefined) flat(series.o, [4, 4]);
    values.forEach((value, at) => {
      if (series.s[at] === "f") { context.fillStyle = ink.f; context.fillRect(x(at) - 3, height - bottom - 3, 6, 6); }
      if (value === null) return;
      context.fillStyle = series.s[at] === "u" || series.s[at] === "h" ? ink.point : ink[series.s[at]];
      context.beginPath(); context.arc(x(at), y(value), nights > 150 ? 2 : 3.5, 0, 7); context.fill();
    });
    canvas.onmousemove = (event) => {
      const box = canvas.getBoundingClientRect();
      tell(series, Math.min(nights - 1, Math.max(0, Math.round((event.clientX - box.left - left) / (box.width - left - right) * nights - 0.5))));
    };
  };

  const behind = (series) => {
    const odd = new Map(series.r || []), commits = new Map(series.c || []);
    const places = [];
    for (let at = 0; at < nights; at++) if (series.s[at] !== "." && series.s[at] !== "f" && at >= data.samplesFrom) places.push(at);
    const lines = [];
    let next = 0;
    const counts = series.q || places.map(() => 1);
    const values = valuesOf(series);
    // A night with two environments has two entries and one place; entries are counted from the end.
    places.slice(-counts.length).forEach((at, place) => {
      for (let sample = 0; sample < counts[place]; sample++, next++) {
        const value = series.y ? series.y[next] : values[at];
        const ref = series.a[next];
        const run = odd.has(next) ? odd.get(next) : data.nightRuns[at];
        const commit = commits.has(at) ? commits.get(at) : data.nightCommits[at];
        lines.push([data.nights[at], `${number(value)} ${series.u}`, data.runs[run] ?? "", ref < 0 ? `row ${-ref}` : data.refs[ref] ?? "", commit >= 0 ? data.commits[commit] : "", data.states[series.s[at]]]);
      }
    });
    return lines.reverse();
  };

  let open = null;
  const detail = (series) => {
    const box = $("detail");
    box.hidden = false;
    open = series;
    const close = make("button", { type: "button", class: "close" }, "Close");
    close.addEventListener("click", () => { box.hidden = true; open = null; rows.focus(); });
    const canvas = make("canvas", { role: "img", "aria-label": `Values of ${series.n} by night` });
    const changes = series.g.map(([kind, first, settled, before, after, percent, why]) =>
      [kind, first === settled ? data.nights[settled] : `${data.nights[first]} to ${data.nights[settled]}`, number(before), number(after), `${percent > 0 ? "+" : ""}${percent.toFixed(1)} %`, why]);
    const environments = series.e.map(([at, text]) => [data.nights[at], data.environments[text]]);
    const transients = (series.z || []).map(([night, count, value, percent]) => [night, String(count), number(value), `${percent > 0 ? "+" : ""}${percent} %`]);
    const level = series.o === undefined ? "line: reference level" : "line: baseline; dashes: the series' own level";
    box.replaceChildren(close, make("h3", {}, `${series.n}, ${series.m}`),
      make("p", {}, make("b", {}, series.w), `: ${series.t}`), canvas,
      make("p", { class: "quiet" }, `${level}; ${series.d < 0 ? "less" : "more"} is better; long dashes: change points; dots: environment`),
      make("h4", {}, "Change points"), changes.length ? table(["kind", "nights", "from", "to", "change", "cause or commits"], changes, [2, 3, 4]) : make("p", {}, "None."),
      ...(transients.length ? [make("h4", {}, "Transient"), table(["night", "nights", "value", "off by"], transients, [1, 2, 3])] : []),
      make("h4", {}, "Environments"), table(["from", "environment"], environments),
      make("h4", {}, `Samples and runs${data.samplesFrom ? `, from ${data.nights[data.samplesFrom]}` : ""}`),
      series.a ? table(["night", "value", "run", "attempt", "commit", "state"], behind(series), [1]) : make("p", {}, "None."));
    drawDetail(canvas, series);
  };

  const legend = () => {
    for (const [state, words] of Object.entries(data.states)) {
      $("legend").append(make("li", {}, make("i", { class: `dot ${state === "." ? "none" : state}` }), words));
    }
    $("span").textContent = `${data.nights[0]} to ${data.nights[nights - 1]}`;
  };

  const redraw = () => { readInk(); refresh(); if (open) drawDetail($("detail").querySelector("canvas"), open); };
  for (const button of document.querySelectorAll(".filter")) {
    button.addEventListener("click", () => {
      const verdict = Number(button.dataset.verdict);
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      if (on) shown.verdicts.add(verdict); else shown.verdicts.delete(verdict);
      filter();
    });
  }
  $("find").addEventListener("input", (event) => { shown.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean); filter(); });
  rows.addEventListener("scroll", render, { passive: true });
  rows.addEventListener("keydown", (event) => {
    const at = shown.list.indexOf(shown.selected);
    const page = Math.floor(rows.clientHeight / ROW);
    const to = { ArrowDown: at + 1, ArrowUp: Math.max(0, at - 1), PageDown: Math.min(shown.list.length - 1, at + page), PageUp: Math.max(0, at - page), Home: 0, End: shown.list.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    select(to);
  });
  window.addEventListener("resize", redraw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  $("series").hidden = false;
  readInk();
  legend();
  filter();
})();
