// Heat maps and curves.

// A K×K table as coloured cells. The diagonal of T is grey, for it would drown all else.
function heatMap(matrix, names, { columns, diverging = false }) {
  const size = matrix.classes.length;
  const others = matrix.values.flatMap((row, i) =>
    row.filter((value, j) => value !== null && (diverging || i !== j)).map(Math.abs));
  const most = Math.max(...others, diverging ? 1e-12 : 0.05);  // what is rare everywhere stays pale
  const label = (k) => names[matrix.classes[k]];
  const digits = diverging ? 3 : 2;
  const cell = (value, i, j) => {
    if (value === null) return el("td", { title: "unknown" }, "–");
    const shown = value.toFixed(digits).replace("-", "−");
    const made = el("td", { title: `${label(i)} → ${label(j)}: ${shown}` },
      size <= 14 ? (Math.abs(value) < 0.5 * 10 ** -digits ? "·" : shown) : el("span", { class: "unseen" }, shown));
    const strength = !diverging && i === j ? value : Math.sqrt(Math.abs(value) / most);
    const hue = !diverging ? (i === j ? "--grey" : "--hot") : value < 0 ? "--cold" : "--hot";
    made.style.background = `color-mix(in oklab, var(${hue}) ${(strength * (i === j && !diverging ? 32 : 78)).toFixed(1)}%, transparent)`;
    return made;
  };
  const caption = `${matrix.title}. Rows: ${matrix.rows}. Columns: ${columns}.`;
  const made = el("table", { class: size <= 14 ? "heat" : "heat dense" },
    el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, el("td", { class: "corner" }), matrix.classes.map((_, j) =>
      el("th", { scope: "col", title: label(j) }, el("span", {}, short(label(j), size <= 14 ? 16 : 24)))))),
    el("tbody", {}, matrix.values.map((row, i) => el("tr", {},
      el("th", { scope: "row", title: label(i) }, short(label(i), 20)),
      row.map((value, j) => cell(value, i, j))))));
  if (size <= 14) {
    const longest = Math.max(...matrix.classes.map((k) => short(names[k], 20).length));
    made.querySelector(".corner").style.width = `${2 + longest * 0.45}rem`;
    made.style.width = `${2 + longest * 0.45 + size * 4.4}rem`;
  }
  const note = matrix.left_out
    ? el("p", { class: "quiet" }, `${whole(matrix.left_out)} classes with fewer labels are left out.`) : null;
  const scale = diverging && others.length
    ? el("p", { class: "quiet scale" }, "Colours: blue below zero, red above, strongest at ±", Number(most.toPrecision(2)), ", the largest number here.") : null;
  return el("div", {}, el("p", { class: "quiet caption", "aria-hidden": "true" }, caption), scrolling(matrix.title, made), scale, note);
}

// Draws again whenever its width changes, so that text keeps its size.
function responsive(draw, height) {
  const box = el("div", { class: "plot" });
  box.style.height = `${height}px`;
  let width = 0;
  new ResizeObserver(() => {
    if (box.clientWidth && box.clientWidth !== width) {
      width = box.clientWidth;
      box.replaceChildren(draw(width, height));
    }
  }).observe(box);
  return box;
}

// Where the axes are, in pixels from the edges of a plot.
const MARGIN = { left: 48, right: 10, top: 8, bottom: 24 };

function ticks(low, high, count = 4) {
  const step = 10 ** Math.floor(Math.log10((high - low) / count));
  const best = [1, 2, 5, 10].map((k) => k * step).find((k) => (high - low) / k <= count + 1);
  const made = [];
  for (let at = Math.ceil(low / best) * best; at <= high + best * 1e-6; at += best) made.push(at);
  return made;
}

function lineChart(chart) {
  const groups = [...new Set(chart.lines.map((line) => line.group))];
  const colour = (group) => `var(--line-${(groups.indexOf(group) % 6) + 1})`;
  const show = (value) => (value === null ? "–" : chart.unit === "share" ? percent(value) : value.toPrecision(4));
  const values = chart.lines.flatMap((line) => line.values).filter((value) => value !== null);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (chart.unit === "share") [low, high] = [Math.max(0, low - 0.03), Math.min(1, high + 0.03)];
  if (high - low < 1e-9) [low, high] = [low - 0.5, high + 0.5];
  const longest = Math.max(...chart.lines.map((line) => line.values.length));
  const readout = el("p", { class: "readout quiet" }, " ");

  const draw = (width, height) => {
    const { left, right, top, bottom } = MARGIN;
    const x = (epoch) => left + (epoch / Math.max(longest - 1, 1)) * (width - left - right);
    const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
    const made = svg("svg", { width, height, role: "img", "aria-label": `${chart.title} by epoch; the numbers are in the table below` });
    for (const at of ticks(low, high)) {
      made.append(svg("line", { x1: left, x2: width - right, y1: y(at), y2: y(at), class: "grid" }));
      const text = svg("text", { x: left - 6, y: y(at) + 4, "text-anchor": "end" });
      text.textContent = chart.unit === "share" ? `${Math.round(at * 100)} %` : String(Number(at.toPrecision(3)));
      made.append(text);
    }
    for (const at of ticks(0, Math.max(longest - 1, 1), width / 90).filter(Number.isInteger)) {
      const text = svg("text", { x: x(at), y: height - 6, "text-anchor": "middle" });
      text.textContent = at;
      made.append(text);
    }
    for (const line of chart.lines) {
      const points = line.values.flatMap((value, epoch) => (value === null ? [] : [`${x(epoch).toFixed(1)},${y(value).toFixed(1)}`]));
      const path = svg("polyline", { points: points.join(" "), class: "curve" });
      path.style.stroke = colour(line.group);
      made.append(path);
      if (points.length === 1) {
        const dot = svg("circle", { cx: points[0].split(",")[0], cy: points[0].split(",")[1], r: 3 });
        dot.style.fill = colour(line.group);
        made.append(dot);
      }
    }
    const marker = svg("line", { y1: top, y2: height - bottom, class: "marker", visibility: "hidden" });
    made.append(marker);
    made.addEventListener("pointermove", (event) => {
      const at = (event.clientX - made.getBoundingClientRect().left - left) / (width - left - right);
      const epoch = Math.min(longest - 1, Math.max(0, Math.round(at * (longest - 1))));
      marker.setAttribute("x1", x(epoch));
      marker.setAttribute("x2", x(epoch));
      marker.setAttribute("visibility", "visible");
      const said = chart.lines.filter((line) => epoch < line.values.length)
        .map((line) => `${line.name} ${show(line.values[epoch])}`);
      readout.textContent = `epoch ${epoch}: ${said.join(" · ")}`;
    });
    made.addEventListener("pointerleave", () => {
      marker.setAttribute("visibility", "hidden");
      readout.textContent = " ";
    });
    return made;
  };

  const legend = el("ul", { class: "legend" }, groups.map((name) => {
    const count = chart.lines.filter((line) => line.group === name).length;
    const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = colour(name);
    return el("li", {}, swatch, count > 1 ? `${name} (${count})` : name);
  }));
  const rows = Array.from({ length: longest }, (_, epoch) =>
    [String(epoch), ...chart.lines.map((line) => show(line.values[epoch] ?? null))]);
  return el("figure", { class: "chart" },
    el("figcaption", {}, `${chart.title}, by epoch`, legend),
    responsive(draw, 220), readout,
    el("details", {}, el("summary", {}, "Numbers"),
      scrolling(`${chart.title}, numbers`, table(["epoch", ...chart.lines.map((line) => line.name)], rows))));
}
