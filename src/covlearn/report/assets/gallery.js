// The gallery of suspects: filter, sort, page through, decide by mouse or keyboard.

const PAGE_SIZE = 48;
const VERDICTS = ["relabel", "drop", "review", "keep", "decided"];
const SORTS = {
  pair: "pair, largest first",
  worst: "quality, lowest first",
  best: "quality, highest first",
  sure: "confidence, highest first",
  id: "id",
};

function gallery(data, classes) {
  const { rows, table: cells, pictures } = data;
  const count = rows.id.length;
  const name = (k) => classes[k];
  const filter = { given: "", suggested: "", verdict: "", state: "", text: "", only: null };
  let sort = "pair", page = 0, found = [], active = 0;

  const pairOf = (row) => rows.given[row] * classes.length + rows.suggested[row];
  const pairSize = new Map();
  for (let row = 0; row < count; row++) pairSize.set(pairOf(row), (pairSize.get(pairOf(row)) || 0) + 1);

  // Lower case of everything that can be searched, made when it is first needed.
  let texts = null;
  const searchable = () => (texts ??= rows.id.map((id, row) =>
    `${id}\n${name(rows.given[row])}\n${name(rows.suggested[row])}\n${(cells?.cells[row] || []).join("\n")}`.toLowerCase()));

  function matches(row) {
    if (filter.given !== "" && rows.given[row] !== Number(filter.given)) return false;
    if (filter.suggested !== "" && rows.suggested[row] !== Number(filter.suggested)) return false;
    if (filter.verdict !== "" && rows.decision[row] !== filter.verdict) return false;
    if (filter.state === "open" && decisions.made.has(row)) return false;
    if (filter.state === "done" && !decisions.made.has(row)) return false;
    if (filter.only && !filter.only(row)) return false;
    return filter.text === "" || searchable()[row].includes(filter.text);
  }

  const by = {
    pair: (a, b) => pairSize.get(pairOf(b)) - pairSize.get(pairOf(a)) || pairOf(a) - pairOf(b) || rows.quality[a] - rows.quality[b],
    worst: (a, b) => rows.quality[a] - rows.quality[b],
    best: (a, b) => rows.quality[b] - rows.quality[a],
    sure: (a, b) => rows.confidence[b] - rows.confidence[a],
    id: (a, b) => (rows.id[a] < rows.id[b] ? -1 : 1),
  };

  function select() {
    found = [];
    for (let row = 0; row < count; row++) if (matches(row)) found.push(row);
    found.sort((a, b) => by[sort](a, b) || a - b);
    page = 0;
    active = 0;
    show();
  }

  // ---- one card

  const sheetUrls = new Map();
  function sheetUrl(number) {
    if (!sheetUrls.has(number)) {
      const bytes = Uint8Array.from(atob(pictures.sheets[number]), (c) => c.charCodeAt(0));
      sheetUrls.set(number, URL.createObjectURL(new Blob([bytes], { type: "image/webp" })));
    }
    return sheetUrls.get(number);
  }

  function picture(row) {
    const place = pictures?.where[row] ?? -1;
    if (!pictures) return null;
    if (place < 0) return el("div", { class: "picture none" }, "no picture on this page");
    const { side } = pictures;
    const made = el("div", { class: "picture", role: "img", "aria-label": `picture of ${rows.id[row]}` });
    const at = place % (side * side);
    made.style.backgroundImage = `url("${sheetUrl(Math.floor(place / (side * side)))}")`;
    made.style.backgroundSize = `${side * 100}%`;
    made.style.backgroundPosition = `${((at % side) / (side - 1)) * 100}% ${(Math.floor(at / side) / (side - 1)) * 100}%`;
    return made;
  }

  function features(row) {
    const values = cells?.cells[row];
    if (!values) return null;
    const telling = cells.telling[row];
    const others = values.map((_, column) => column).filter((column) => !telling.includes(column));
    const line = (column) => [cells.columns[column], values[column]];
    return [pairs(telling.map(line)), others.length
      ? el("details", {}, el("summary", { tabindex: "-1" }, `${others.length} more columns`), pairs(others.map(line))) : null];
  }

  function stateOf(row) {
    const made = decisions.made.get(row);
    if (!made) return { kind: "open", text: "" };
    const earlier = rows.decision[row] === "decided" && made.label === decisions.earlier(row).label;
    const was = rows.given[row] === made.label ? "" : `, was ${name(rows.given[row])}`;
    if (earlier) return { kind: "earlier", text: `decided before: ${name(made.label)}${was}` };
    const verb = { accept: "accepted", reject: "rejected, stays", relabel: "relabelled" }[made.action] || "decided";
    return { kind: made.action, text: `${verb}: ${name(made.label)}` };
  }

  function card(row, place) {
    const suggestion = rows.given[row] === rows.suggested[row] ? name(rows.given[row])
      : [el("span", { class: "given" }, name(rows.given[row])), el("span", { class: "arrow", "aria-label": "to" }, " → "), el("strong", {}, name(rows.suggested[row]))];
    const meter = el("span", { class: "meter", "aria-hidden": "true" }, el("span"));
    meter.firstChild.style.width = `${rows.quality[row] * 100}%`;
    const button = (action, text, key, title) => el("button", {
      type: "button", class: action, tabindex: "-1", title: `${title} (key ${key})`, "aria-label": title,
      onclick: () => act(place, action),
    }, text);
    const other = el("select", { class: "relabel", tabindex: "-1", "aria-label": `another label for ${rows.id[row]}`,
      onchange: (event) => { if (event.target.value !== "") act(place, "relabel", Number(event.target.value)); } },
    el("option", { value: "" }, "Relabel…"));
    const made = el("li", { class: "card", tabindex: "-1", "data-row": row, "data-place": place,
      onfocusin: () => activate(place, false), onpointerenter: () => fill(other) },
    picture(row),
    el("p", { class: "pair" }, suggestion),
    el("p", { class: "facts" }, el("span", { class: `verdict ${rows.decision[row]}` }, rows.decision[row]),
      el("span", { title: rows.reason[row] }, "quality ", rows.quality[row].toFixed(3)), meter),
    el("p", { class: "id", title: rows.id[row] }, rows.id[row]),
    features(row),
    el("p", { class: "reason" }, rows.reason[row]),
    el("div", { class: "actions" },
      button("accept", "✓ Accept", "A", `Accept: ${name(rows.suggested[row])}`),
      button("reject", "✕ Reject", "R", `Reject: stays ${name(rows.given[row])}`),
      other,
      button("undo", "Undo", "U", "Undo the decision")),
    el("p", { class: "state" }));
    mark(made, row);
    return made;
  }

  function mark(made, row) {
    const { kind, text } = stateOf(row);
    made.dataset.state = kind;
    made.querySelector(".state").textContent = text;
    made.querySelector(".undo").hidden = kind === "open" || kind === "earlier";
    made.setAttribute("aria-label", `${rows.id[row]}: given ${name(rows.given[row])}, suggested ${name(rows.suggested[row])}, quality ${rows.quality[row].toFixed(2)}, ${text || "undecided"}`);
  }

  // Of many classes, 48 lists would be heavy: each is filled when somebody comes near it.
  function fill(other) {
    if (other.options.length === 1) other.append(...classes.map((text, k) => el("option", { value: k }, short(text, 40))));
  }

  // ---- deciding

  function act(place, action, label) {
    const row = found[page * PAGE_SIZE + place];
    if (row === undefined) return;
    if (action === "undo") decisions.undo(row);
    else decisions.decide(row, action, action === "accept" ? rows.suggested[row] : action === "reject" ? rows.given[row] : label);
    mark(list.querySelector(`[data-place="${place}"]`), row);
    say(`${rows.id[row]}: ${stateOf(row).text || "undecided"}. ${progressText()}`);
    // Arrow keys choose in a list at once: a person goes on from there when the label is right.
    if (action === "accept" || action === "reject") activate(place + 1);
  }

  function cards() {
    return [...list.querySelectorAll(".card")];
  }

  // One card at a time can be reached by the Tab key; the arrows move on from it.
  function activate(place, focus = true) {
    const all = cards();
    if (!all.length) return;
    active = Math.max(0, Math.min(place, all.length - 1));
    all.forEach((each, number) => {
      const now = number === active ? "0" : "-1";
      if (each.getAttribute("tabindex") === now) return;
      each.setAttribute("tabindex", now);
      each.querySelectorAll("button, select, summary").forEach((control) => control.setAttribute("tabindex", now));
    });
    fill(all[active].querySelector("select"));
    if (focus) {
      all[active].focus({ preventScroll: true });
      all[active].scrollIntoView({ block: "nearest", behavior: "instant" });
    }
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("select")) {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      activate(active + (event.key === "Enter" ? 1 : 0));
      event.preventDefault();
      return;
    }
    const all = cards();
    const across = all.filter((each) => each.offsetTop === all[0].offsetTop).length || 1;
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -active, End: all.length };
    const key = event.key.toLowerCase();
    if (event.key in moves) activate(active + moves[event.key]);
    else if (key === "a") act(active, "accept");
    else if (key === "r") act(active, "reject");
    else if (key === "u") act(active, "undo");
    else if (key === "l") all[active].querySelector("select").focus();
    else if (event.key === "PageDown") turn(1);
    else if (event.key === "PageUp") turn(-1);
    else return;
    event.preventDefault();
  }

  // ---- what is around the cards

  const list = el("ol", { class: cells && !pictures ? "cards wide" : "cards", "aria-label": "Suspects", onkeydown: onKey });
  const showing = el("p", { class: "showing", role: "status" });
  const progress = el("progress", { max: Math.max(count, 1), value: 0, "aria-label": "decided" });
  const progressLabel = el("span");
  const save = el("button", { type: "button", class: "primary", id: "download", onclick: () => {
    decisions.download();
    say(`decisions.csv with ${whole(decisions.made.size)} decisions`);
  } });
  const back = el("button", { type: "button", onclick: () => turn(-1) }, "← Previous");
  const forth = el("button", { type: "button", onclick: () => turn(1) }, "Next →");

  function progressText() {
    return `${whole(decisions.made.size)} of ${whole(count)} decided`;
  }

  function turn(by) {
    const pages = Math.max(1, Math.ceil(found.length / PAGE_SIZE));
    const next = Math.max(0, Math.min(pages - 1, page + by));
    if (next === page) return;
    page = next;
    active = 0;
    show();
    list.scrollIntoView({ block: "start" });
    activate(0);
  }

  function show() {
    const first = page * PAGE_SIZE, shown = found.slice(first, first + PAGE_SIZE);
    const made = [], sizes = new Map();
    for (const row of found) sizes.set(pairOf(row), (sizes.get(pairOf(row)) || 0) + 1);
    shown.forEach((row, place) => {
      if (sort === "pair" && (place === 0 || pairOf(row) !== pairOf(shown[place - 1]))) {
        made.push(el("li", { class: "group", role: "presentation" },
          el("h3", {}, `${name(rows.given[row])} → ${name(rows.suggested[row])}`,
            el("span", { class: "quiet" }, ` ${whole(sizes.get(pairOf(row)))}`))));
      }
      made.push(card(row, place));
    });
    list.replaceChildren(...made);
    activate(active, false);
    const pages = Math.ceil(found.length / PAGE_SIZE);
    showing.textContent = found.length
      ? `${whole(first + 1)}–${whole(first + shown.length)} of ${whole(found.length)}${pages > 1 ? `, page ${page + 1} of ${whole(pages)}` : ""}`
      : "No suspect fits these filters.";
    back.disabled = page === 0;
    forth.disabled = page >= pages - 1;
  }

  function showProgress() {
    progress.value = decisions.made.size;
    progressLabel.textContent = progressText();
    save.textContent = `Download decisions.csv (${whole(decisions.made.size)})`;
    save.disabled = decisions.made.size === 0;
  }

  // ---- controls

  function choice(label, key, options) {
    const made = el("select", { id: `filter-${key}`, onchange: () => { filter[key] = made.value; filter.only = null; select(); } },
      options.map(([value, text]) => el("option", { value }, text)));
    return el("label", {}, label, made);
  }
  const there = (column) => [...new Set(rows[column])].sort((a, b) => a - b).map((k) => [k, short(name(k), 40)]);
  const sorter = el("select", { id: "sort", onchange: () => { sort = sorter.value; select(); } },
    Object.entries(SORTS).map(([value, text]) => el("option", { value }, text)));
  const search = el("input", { type: "search", id: "search", placeholder: "id, label or value", oninput: () => {
    filter.text = search.value.trim().toLowerCase();
    select();
  } });
  const verdicts = VERDICTS.filter((verdict) => rows.decision.includes(verdict));
  const controls = el("div", { class: "controls", role: "search", "aria-label": "Filter and sort suspects" },
    choice("Given", "given", [["", "any"], ...there("given")]),
    choice("Suggested", "suggested", [["", "any"], ...there("suggested")]),
    choice("Verdict", "verdict", [["", "any"], ...verdicts.map((verdict) => [verdict, verdict])]),
    choice("State", "state", [["", "any"], ["open", "undecided"], ["done", "decided"]]),
    el("label", {}, "Search", search),
    el("label", {}, "Sort by", sorter),
    el("button", { type: "button", id: "clear", onclick: clear }, "Clear filters"));

  function clear() {
    Object.assign(filter, { given: "", suggested: "", verdict: "", state: "", text: "", only: null });
    controls.querySelectorAll("select:not(#sort), input").forEach((control) => { control.value = ""; });
    select();
  }

  const chips = el("div", { class: "chips", role: "group", "aria-label": "Most frequent pairs" },
    [...pairSize].sort(([a, m], [b, n]) => n - m || a - b).slice(0, 12).map(([pair, size]) => {
      const given = Math.floor(pair / classes.length), suggested = pair % classes.length;
      return el("button", { type: "button", onclick: () => {
        clear();
        for (const [key, value] of [["given", given], ["suggested", suggested]]) {
          filter[key] = String(value);
          controls.querySelector(`#filter-${key}`).value = String(value);
        }
        select();
      } }, `${short(name(given), 24)} → ${short(name(suggested), 24)}`, el("span", { class: "count" }, whole(size)));
    }));

  decisions.changed = showProgress;
  showProgress();
  select();
  return {
    element: [
      el("div", { class: "deciding" }, el("div", { class: "progress" }, progress, progressLabel), save),
      el("p", { class: "quiet keys" }, "Keys, in the gallery: ", ...["arrows", "A", "R", "L", "U"].flatMap((key, n) =>
        [el("kbd", {}, key), [" move, ", " accept the suggestion, ", " reject it, ", " choose another label (Enter goes on), ", " undo."][n]])),
      cells ? el("p", { class: "quiet keys" }, "Of each row the columns come first that speak most for the suggested label and against the given one, by the means of both classes; missing cells are not among them.") : null,
      chips, controls, showing, list, el("div", { class: "paging" }, back, forth)],
    showOnly(rule) {
      clear();
      filter.only = rule;
      select();
      document.getElementById("suspects").scrollIntoView();
      activate(0);
    },
  };
}
