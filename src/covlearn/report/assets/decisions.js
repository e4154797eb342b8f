// What the person decided: by row of the gallery an action and a label. Decisions outlast the page
// where the browser lets them, and leave it as decisions.csv, which covlearn fit --trusted reads.

const decisions = {
  made: new Map(),
  rows: null,
  changed: () => {},

  start(rows) {
    this.rows = rows;
    this.key = `covlearn-decisions-${DATA.identity}`;
    rows.decision.forEach((decision, row) => {  // those of the run itself, so that none gets lost
      if (decision === "decided") this.made.set(row, this.earlier(row));
    });
    let before;
    try { before = JSON.parse(kept.get(this.key)) || {}; } catch { before = {}; }
    const place = new Map(rows.id.map((id, row) => [id, row]));
    for (const [id, entry] of Object.entries(before)) {
      const label = DATA.classes.indexOf(entry?.label);
      if (place.has(id) && label >= 0) this.made.set(place.get(id), { action: String(entry.action), label });
    }
  },

  earlier(row) {
    const label = this.rows.suggested[row];
    return { action: label === this.rows.given[row] ? "reject" : "accept", label };
  },

  decide(row, action, label) {
    this.made.set(row, { action, label });
    this.keep();
  },

  undo(row) {
    if (this.rows.decision[row] === "decided") this.made.set(row, this.earlier(row));
    else this.made.delete(row);
    this.keep();
  },

  keep() {
    const entries = [...this.made].map(([row, { action, label }]) =>
      [this.rows.id[row], { action, label: DATA.classes[label] }]);
    this.stored = kept.set(this.key, JSON.stringify(Object.fromEntries(entries)));
    this.saved = false;
    this.changed();
  },

  csv() {
    const lines = [["id", "label", "action", "given", "suggested"]];
    for (const [row, { action, label }] of [...this.made].sort(([a], [b]) => a - b)) {
      lines.push([this.rows.id[row], DATA.classes[label], action,
        DATA.classes[this.rows.given[row]], DATA.classes[this.rows.suggested[row]]]);
    }
    return lines.map((line) => line.map((cell) => quoted(defused(cell))).join(",") + "\n").join("");
  },

  download() {
    const url = URL.createObjectURL(new Blob([this.csv()], { type: "text/csv;charset=utf-8" }));
    const link = el("a", { href: url, download: "decisions.csv" });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    this.saved = true;
  },
};

// The rules of covlearn.cells: no spreadsheet runs such a cell, and reading takes the mark off.
const FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;
const NUMBER = /^[+-]?(\p{Nd}+(\.\p{Nd}*)?|\.\p{Nd}+)([eE][+-]?\p{Nd}+)?$/u;

function defused(text) {
  const dangerous = FORMULA.test(text.replace(/^'+/, "")) && !NUMBER.test(text);
  return dangerous ? `'${text}` : text;
}

function quoted(cell) {
  return /[",\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
}

addEventListener("beforeunload", (event) => {
  if (decisions.saved === false && !decisions.stored) event.preventDefault();
});
