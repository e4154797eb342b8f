// How the scores are spread, and what another threshold would change.

// Bins joined by twos and more, each a list of the sizes of its groups.
function coarser(counts, by) {
  return Array.from({ length: counts.length / by }, (_, n) =>
    counts.slice(n * by, n * by + by).reduce((sum, bin) => sum.map((size, group) => size + bin[group])));
}

// Bars, one above the other by group. On a logarithmic scale few can be seen beside many, but not
// what share of a bar a group has.
function bars(counts, low, high, colours, label, logarithmic) {
  const most = Math.max(...counts.map((bin) => bin.reduce((a, b) => a + b, 0)), 1);
  const draw = (width, height) => {
    const { left, right, top, bottom } = MARGIN;
    const x = (value) => left + ((value - low) / (high - low)) * (width - left - right);
    const size = logarithmic ? Math.log1p : (count) => count;
    const y = (count) => height - bottom - (size(count) / size(most)) * (height - top - bottom);
    const made = svg("svg", { width, height, role: "img", "aria-label": label });
    const decades = Array.from({ length: Math.ceil(Math.log10(most + 1)) }, (_, n) => 10 ** n);
    for (const at of logarithmic ? decades : ticks(0, most).filter(Number.isInteger)) {
      made.append(svg("line", { x1: left, x2: width - right, y1: y(at), y2: y(at), class: "grid" }));
      const text = svg("text", { x: left - 6, y: y(at) + 4, "text-anchor": "end" });
      text.textContent = whole(at);
      made.append(text);
    }
    for (const at of ticks(low, high, width / 90)) {
      const text = svg("text", { x: x(at), y: height - 6, "text-anchor": "middle" });
      text.textContent = String(Number(at.toPrecision(3))).replace("-", "−");
      made.append(text);
    }
    counts.forEach((bin, n) => {
      const from = low + (n / counts.length) * (high - low), to = low + ((n + 1) / counts.length) * (high - low);
      let below = 0;
      bin.forEach((count, group) => {
        if (!count) return;
        const bar = svg("rect", { x: x(from) + 0.5, width: Math.max(1, x(to) - x(from) - 1), y: y(below + count), height: y(below) - y(below + count) });
        bar.style.fill = `var(${colours((from + to) / 2, group)})`;
        made.append(bar);
        below += count;
      });
    });
    return { made, x, height, bottom, top };
  };
  let drawn = null, marked = null;
  const box = responsive((width, height) => {
    drawn = draw(width, height);
    drawn.line = svg("line", { y1: drawn.top, y2: height - drawn.bottom, class: "marker" });
    drawn.made.append(drawn.line);
    place();
    return drawn.made;
  }, 220);
  function place() {
    if (!drawn || marked === null) return;
    for (const side of ["x1", "x2"]) drawn.line.setAttribute(side, drawn.x(marked));
  }
  return { box, mark(value) { marked = value; place(); }, again() {
    if (!drawn) return;
    const next = draw(box.clientWidth, 220);
    drawn = Object.assign(next, { line: svg("line", { y1: next.top, y2: 220 - next.bottom, class: "marker" }) });
    drawn.made.append(drawn.line);
    box.replaceChildren(drawn.made);
    place();
  } };
}

// A slider under a plot, over the first share of its axis: the middle of the knob stands where the
// axis has its value.
function underAxis(slider, text, share = 1) {
  const knob = 16;
  slider.style.marginLeft = `${MARGIN.left - knob / 2}px`;
  slider.style.width = `calc((100% - ${MARGIN.left + MARGIN.right}px) * ${share} + ${knob}px)`;
  return el("label", { class: "slider" }, slider, el("span", {}, "Threshold ", text));
}

// The rule of covlearn.verdicts where there is evidence of wrong labels.
function verdictAt(quality, sure, below) {
  if (quality >= 0.5) return "keep";
  if (quality >= below) return "review";
  return sure ? "relabel" : "drop";
}

function qualityThreshold(scores, rows, shown) {
  const { counts } = scores;
  let below = scores.threshold;
  const colours = (value) => (value < below ? "--relabel" : value < 0.5 ? "--review" : "--keep");
  const chart = bars(coarser(counts, 2).map(([a, b]) => [a + b]), 0, 1, colours,
    "Histogram of label quality, on a logarithmic scale", true);
  const count = (at) => {  // bins are as wide as the slider's steps, so that this is exact
    const found = { relabel: 0, drop: 0, review: 0, keep: 0 };
    counts.forEach((bin, n) => bin.forEach((size, sure) => {
      found[verdictAt((n + 0.5) / counts.length, sure === 1, at)] += size;
    }));
    return found;
  };
  const asked = count(scores.threshold);
  const body = el("tbody");
  const button = el("button", { type: "button", id: "show-changed", onclick: () => shown((row) => changed(row)) });
  const changed = (row) => rows.decision[row] !== "decided" &&
    verdictAt(rows.quality[row], rows.confidence[row] >= 0.5, below) !== verdictAt(rows.quality[row], rows.confidence[row] >= 0.5, scores.threshold);
  const text = el("output", { for: "threshold" });
  const slider = el("input", { type: "range", id: "threshold", min: 0, max: 0.5, step: 0.01, value: below, oninput: () => update() });

  function update() {
    below = Number(slider.value);
    const now = count(below);
    text.textContent = below.toFixed(2);
    slider.setAttribute("aria-valuetext", `${below.toFixed(2)}: ${now.relabel} relabelled, ${now.drop} dropped, ${now.review} to review`);
    body.replaceChildren(...Object.keys(now).map((verdict) => el("tr", { "data-verdict": verdict },
      el("th", { scope: "row" }, el("span", { class: `verdict ${verdict}` }, verdict)),
      el("td", {}, whole(asked[verdict])), el("td", {}, whole(now[verdict])), el("td", {}, signed(now[verdict] - asked[verdict])))));
    const moved = rows.id.reduce((sum, _, row) => sum + (changed(row) ? 1 : 0), 0);
    button.textContent = moved ? `Show the ${whole(moved)} whose verdict would change` : "No verdict would change";
    button.disabled = moved === 0;
    chart.mark(below);
    chart.again();
  }

  update();
  return [
    el("p", {}, scores.found
      ? "Quality is the probability that the given label is right. Labels below the threshold are called wrong: they are relabelled if the suggestion has half of the probability at least, and dropped if not. Those between the threshold and one half are for review."
      : "There is no evidence of wrong labels, so that none was changed, wherever the threshold is. If there were, this is what it would do."),
    el("div", { class: "split" },
      el("div", {}, chart.box, underAxis(slider, text, 0.5)),
      el("div", {}, el("table", { id: "what-if" }, el("thead", {}, el("tr", {}, ["verdict", `at ${scores.threshold.toFixed(2)}`, "here", "change"].map((head) => el("th", { scope: "col" }, head)))), body), button)),
  ];
}

// For covlearn train: higher is likelier wrong, and where clean labels are known, which ones are.
function scoreThreshold(scores) {
  const { counts, low, high, known } = scores;
  const chart = bars(coarser(counts, 2), low, high, (_, group) => (group ? "--relabel" : "--keep"), `Histogram of the ${scores.measure}`, false);
  const text = el("output", { for: "threshold" }), body = el("tbody");
  const slider = el("input", { type: "range", id: "threshold", min: low, max: high, step: (high - low) / counts.length,
    value: scores.threshold ?? (low + high) / 2, oninput: () => update() });
  const all = counts.reduce((sum, [right, wrong]) => sum + right + wrong, 0);
  const wrongs = counts.reduce((sum, bin) => sum + bin[1], 0);

  function update() {
    const above = Number(slider.value);
    const first = Math.round(((above - low) / (high - low)) * counts.length);
    let called = 0, found = 0;
    for (const [right, wrong] of counts.slice(first)) { called += right + wrong; found += wrong; }
    text.textContent = above.toFixed(2).replace("-", "−");
    const lines = [["labels above it, called wrong", `${whole(called)} (${percent(called / all)})`]];
    if (known) {
      lines.push(["of these are wrong", called ? percent(found / called) : "–"], ["of all wrong labels found", wrongs ? percent(found / wrongs) : "–"]);
    }
    body.replaceChildren(...lines.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value))));
    chart.mark(above);
  }
  update();
  const legend = known ? el("ul", { class: "legend" }, [["--keep", "right labels"], ["--relabel", "wrong labels"]].map(([colour, name]) => {
    const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
    swatch.style.background = `var(${colour})`;
    return el("li", {}, swatch, name);
  })) : null;
  return [
    el("p", {}, scores.measure === "score"
      ? "The score of a label is its loss less the mean loss of all classes: the higher, the likelier it is wrong."
      : "The loss of each label in the last pass: the higher, the less the network believes it."),
    el("div", { class: "split" }, el("div", {}, legend, chart.box, underAxis(slider, text)),
      el("div", {}, el("table", { id: "what-if" }, body)))];
}
