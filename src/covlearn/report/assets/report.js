// Puts the page together.

function runPage() {
  section("summary", "Summary",
    el("div", { class: "lead" }, DATA.summary.map((line) => el("p", {}, line))),
    el("dl", { class: "tiles" }, DATA.tiles.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    DATA.left_out.length ? el("div", { class: "left-out" },
      el("p", {}, "Left out of this page:"), el("ul", {}, DATA.left_out.map((line) => el("li", {}, line)))) : null);

  let shown = null;
  if (DATA.gallery) {
    decisions.start(DATA.gallery.rows);
    const made = DATA.gallery.rows.id.length ? gallery(DATA.gallery, DATA.classes) : null;
    shown = made?.showOnly;
    const decided = DATA.gallery.rows.decision.filter((decision) => decision === "decided").length;
    const open = DATA.gallery.rows.id.length - decided;
    section("suspects", "Look and decide", made
      ? [el("p", {}, `${whole(open)} labels that the model does not believe${decided ? `, and ${whole(decided)} that people decided on` : ""}. Accept the suggestion, reject it (the given label stays), or choose another label. The decisions stay in this browser and are downloaded as a file; training again with it holds them fixed:`),
        el("pre", { class: "command", tabindex: "0", "aria-label": "command" }, DATA.next),
        DATA.next_note ? el("p", { class: "quiet" }, DATA.next_note) : null, ...made.element]
      : el("p", {}, "No label is suspect."));
  }
  if (DATA.scores) {
    section("threshold-section", "Threshold", DATA.scores.measure === "quality"
      ? qualityThreshold(DATA.scores, DATA.gallery.rows, shown) : scoreThreshold(DATA.scores));
  }
  const { facts, warnings, matrices } = DATA.noise;
  if (facts.length || matrices.length) {
    section("noise", "Noise card", pairs(facts), warnings.map((line) => el("p", { class: "warning" }, line)),
      el("div", { class: "matrices" }, matrices.map((matrix) => heatMap(matrix, DATA.classes, { columns: "the given label" }))));
  }
  if (DATA.hardest?.rows.length) {
    section("classes", "Hardest classes", scrolling("Hardest classes", table(
      ["class", "labels", "suspect", "share", DATA.hardest.measure, "mostly towards"],
      DATA.hardest.rows.map((row) => [short(row.class), whole(row.examples), whole(row.suspects), percent(row.share), row.measure.toFixed(3), row.towards ? short(row.towards) : "–"]))),
    DATA.hardest.left_out ? el("p", { class: "quiet" }, `${whole(DATA.hardest.left_out)} classes with fewer suspects are left out.`) : null);
  }
  if (DATA.curves.length) {
    section("curves", "Training", DATA.command === "fit"
      ? el("p", {}, "No clean labels are known, so that neither accuracy nor memorisation can be told. The nearest to it: agreement that goes on rising at the end is that of a network which learns labels by heart.") : null,
    el("div", { class: "charts" }, DATA.curves.map(lineChart)));
  }
  if (DATA.covariance) {
    section("covariance", "Covariance", el("p", {}, "How the label noise of a class goes with the loss: Cov(T_ij(X), ℓ_j(X) | class i). It is zero where noise depends on the class alone. These numbers are no test: estimates from few examples scatter about zero, and the colours show which are the largest here, not whether any is large."),
      DATA.diagnosis
        ? el("p", { class: "diagnosis" }, el("strong", {}, "covlearn diagnose: "), DATA.diagnosis.join(" "))
        : el("p", { class: "diagnosis" }, "Whether noise depends on the example is tested by ", el("code", {}, DATA.diagnose), "; after it covlearn report shows the verdict here."),
      heatMap(DATA.covariance, DATA.classes, { columns: "the given label j", diverging: true }));
  }
  section("provenance", "Where it comes from",
    DATA.notes.map((note) => el("p", {}, note)),
    DATA.skipped_count ? el("details", {}, el("summary", {}, `${whole(DATA.skipped_count)} ${DATA.skipped_count === 1 ? "example" : "examples"} of the source could not be used`),
      el("ul", {}, DATA.skipped.map((line) => el("li", {}, line)))) : null,
    DATA.provenance.map(([title, lines], n) => el("details", { open: n < 3 }, el("summary", {}, title), pairs(lines))));
}

function comparisonPage() {
  section("figures", "Figures", scrolling("Figures", table(["", ...DATA.runs], DATA.figures.map(([name, values]) => [name, ...values]))));
  if (DATA.changes.length) {
    section("changes", "What changed", DATA.changes.map((change) => el("div", {},
      el("p", {}, `Verdicts of ${change.from} (rows) and of ${change.to} (columns), on the ${whole(change.shared)} examples that both have.`),
      scrolling("What changed", table(["", ...change.columns], change.rows.map((row, i) => [row, ...change.values[i].map(whole)]))))));
  }
  if (DATA.curves.length) {
    section("curves", "Training, last stage", el("div", { class: "charts" }, DATA.curves.map(lineChart)));
  }
  section("provenance", "Where it comes from", pairs(DATA.runs.map((name, n) => [name, DATA.folders[n]])));
}

document.title = `${DATA.name} – covlearn report`;
document.getElementById("title").textContent = DATA.name;
themeButton();
if (DATA.kind === "run") runPage(); else comparisonPage();
document.getElementById("footer").textContent = `Made by covlearn ${DATA.covlearn}. This page is one file and asks nothing of the network.`;
