/* Any two ends of the page Compare: their series side by side, from one data file for each end. */
(() => {
  "use strict";

  const form = document.querySelector("form[data-compare]");
  if (!form) return;
  const { csv, handOut } = window.almanacTaking;
  const root = form.closest(".ka-page");
  const result = root.querySelector("[data-result]");
  const notice = root.querySelector("[data-notice]");
  const index = JSON.parse(root.querySelector("[data-index]").textContent);
  const FIELDS = ["a", "b", "op", "timer"].filter((name) => form.elements.namedItem(name));
  const DEFAULTS = { a: index.default[0], b: index.default[1], op: "", timer: "" };
  const NONE = "–";
  const NAMES = ["op", "implementation", "mode", "dtype", "sizes", "timer", "cache"];
  const [METHOD, WORKLOAD, TIME, REPLICATES, WHY] = [7, 8, 9, 10, 11];
  const WORDS = { regressed: "▲ slower", improved: "▼ faster", unchanged: "= unchanged",
    inconclusive: "? inconclusive" };
  const PLAIN = { within: "not judged", before: "only before", after: "only after" };
  const ORDER = ["failed", "broken", "regressed", "improved", "same-code", "not judged",
    "within", "inconclusive", "unchanged", "incomparable", "before", "after", "unmeasured"];
  const OPEN = new Set(ORDER.slice(0, 6));
  let seen = null; // what is on the page, for the files

  // --- two ends to rows ------------------------------------------------------------------------

  const keyOf = (row) => JSON.stringify(row.slice(0, NAMES.length));

  function byKey(rows) {
    const found = new Map();
    rows.forEach((row, place) => {
      const key = keyOf(row);
      if (!found.has(key)) found.set(key, []);
      found.get(key).push({ row, place });
    });
    return found;
  }

  /** Match the series of two ends; `judged` maps places in `after` to what the build decided. */
  function join(before, after, judged) {
    const [old, now] = [byKey(before.rows), byKey(after.rows)];
    const keys = [...new Set([...old.keys(), ...now.keys()])].sort();
    return keys.map((key) => {
      const [then, here] = [old.get(key) || [], now.get(key) || []];
      const series = Object.fromEntries(JSON.parse(key).map((value, i) => [NAMES[i], value]));
      return { series, ...matched(then, here, judged) };
    });
  }

  const alike = (x, y) => x.row[METHOD] === y.row[METHOD] && x.row[WORKLOAD] === y.row[WORKLOAD];

  function matched(then, here, judged) {
    const common = here.filter((x) => then.some((y) => alike(x, y))).at(-1);
    const after = common || here.at(-1);
    const before = common ? then.filter((y) => alike(common, y)).at(-1) : then.at(-1);
    const sides = { before: before?.row, after: after?.row };
    const decided = here.map((x) => judged.get(x.place)).find(Boolean);
    return { ...sides, ...(decided || plain(before?.row, after?.row, Boolean(common))) };
  }

  /** Say what two times are where nothing was judged: a ratio, or why there is none. */
  function plain(before, after, comparable) {
    const [old, now] = [before?.[TIME] ?? null, after?.[TIME] ?? null];
    if (old === null && now === null) return { verdict: "unmeasured", why: why(before, after) };
    if (old === null) return { verdict: "after", why: before ? `before: ${before[WHY]}` : "" };
    if (now === null && after) return { verdict: "failed", why: after[WHY] };
    if (now === null) return { verdict: "before", why: "" };
    if (!comparable) return { verdict: "incomparable", why: "another method or workload" };
    const ratio = Math.log(now / old);
    const within = Math.abs(ratio) < Math.log1p(index.floor);
    return { verdict: within ? "within" : "not judged", ratio, why: "" };
  }

  const why = (before, after) => (after || before)?.[WHY] || "";

  function decisions(pair) {
    return new Map((pair?.rows || []).map(([place, verdict, ratio, low, high, least, words]) =>
      [place, { verdict, ratio, low, high, least, why: words }]));
  }

  function differences(a, b) {
    const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
    return names.filter((name) => a[name] !== b[name])
      .map((name) => ({ name, before: a[name] ?? "none", after: b[name] ?? "none" }));
  }

  // --- words -----------------------------------------------------------------------------------

  function significant(value, digits) {
    if (!value) return "0";
    const places = Math.max(digits - 1 - Math.floor(Math.log10(Math.abs(value))), 0);
    return withPlaces(value, places);
  }

  const withPlaces = (value, places) => value.toLocaleString("en",
    { minimumFractionDigits: places, maximumFractionDigits: places });

  function duration(ns) {
    if (ns == null) return NONE;
    const [factor, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]
      .find(([least]) => ns >= least) || [1, "ns"];
    return `${significant(ns / factor, 4)} ${unit}`;
  }

  function change(ratio) {
    if (ratio == null) return NONE;
    const value = Math.round(1000 * Math.expm1(ratio)) / 10;
    return `${value > 0 ? "+" : value < 0 ? "−" : "±"}${withPlaces(Math.abs(value), 1)} %`;
  }

  function binary(size) {
    const found = [[2 ** 40, "Ti"], [2 ** 30, "Gi"], [2 ** 20, "Mi"], [2 ** 10, "Ki"]]
      .find(([factor]) => size >= factor && size % factor === 0);
    return found ? `${size / found[0]}${found[1]}` : Number(size).toLocaleString("en");
  }

  function sizesText({ sizes, dtype, mode, timer, cache }) {
    const told = sizes.split(",").filter(Boolean).map((one) => {
      const [name, size] = one.split("=");
      return `${name} ${binary(Number(size))}`;
    });
    return [...(mode === "forward" ? [] : [mode]), ...told, dtype, timer, cache].join(", ");
  }

  const plural = (count) => `${count.toLocaleString("en")} series`;

  function title(verdict, count) {
    const percent = `${100 * index.floor} %`;
    return {
      within: `${plural(count)} within ${percent} of one another, not judged`,
      before: `${plural(count)} only before`,
      after: `${plural(count)} only after`,
      unmeasured: `${plural(count)} without a time on both sides`,
    }[verdict] || `${plural(count)} ${verdict}`;
  }

  // --- rows to the page ------------------------------------------------------------------------

  /** Make an element; texts of records are text, never markup. */
  function make(name, properties = {}, ...children) {
    const { dataset, ...rest } = properties;
    const element = Object.assign(document.createElement(name), rest);
    Object.assign(element.dataset, dataset);
    element.append(...children.filter((child) => child !== null));
    return element;
  }

  const note = (text) => make("p", { className: "ka-note" }, text);

  function verdictCell({ verdict }) {
    const names = { regressed: "ka-worse", improved: "ka-better", failed: "ka-worse" };
    return make("td", { className: names[verdict] || "" }, WORDS[verdict] || PLAIN[verdict] || verdict);
  }

  const number = (text, value) =>
    make("td", { className: "ka-n", dataset: { sort: value ?? "" } }, text);

  function tableRow(row) {
    const { series, before, after, ratio, low, high, least } = row;
    const said = make("span", { className: "ka-muted" }, sizesText(series));
    const page = index.ops[series.op];
    const name = page ? make("a", { href: page }, series.op) : series.op;
    const head = make("th", { scope: "row" }, name, ` ${series.implementation} `, said);
    const between = low == null ? NONE : `${change(low)} to ${change(high)}`;
    const counts = before && after ? `${before[REPLICATES]}, ${after[REPLICATES]}` : NONE;
    return make("tr", {}, head, verdictCell(row), number(change(ratio), ratio),
      make("td", { className: "ka-n" }, between), number(duration(before?.[TIME]), before?.[TIME]),
      number(duration(after?.[TIME]), after?.[TIME]), make("td", { className: "ka-n" }, counts),
      number(least == null ? NONE : `${(100 * least).toFixed(1)} %`, least),
      make("td", { className: "ka-wrap" }, row.why || ""));
  }

  function table(rows, label) {
    const heads = [["series"], ["verdict"], ["change", "ka-n"], ["95 % interval", "ka-n"],
      ["before", "ka-n"], ["after", "ka-n"], ["replicates", "ka-n"], ["smallest seen", "ka-n"],
      ["what the records say"]];
    const cells = heads.map(([text, className = ""]) =>
      make("th", { scope: "col", className }, text));
    const made = make("table", { className: "ka-table", dataset: { sortable: "" } },
      make("thead", {}, make("tr", {}, ...cells)), make("tbody", {}, ...rows.map(tableRow)));
    const box = make("div", { className: "ka-scroll ka-scroll--tall", tabIndex: 0, role: "region" },
      made);
    box.setAttribute("aria-label", label);
    return box;
  }

  /** Fold rows away; they are only made when somebody opens them. */
  function folded(rows, verdict) {
    const text = title(verdict, rows.length);
    const box = make("details", {}, make("summary", {}, text));
    box.addEventListener("toggle", () => {
      if (!box.open || box.children.length > 1) return;
      box.append(table(rows, text));
      window.almanacTables.prepare(box);
    });
    return box;
  }

  const size = ({ verdict, ratio }) => (verdict === "failed" ? Infinity : Math.abs(ratio ?? 0));

  function grouped(rows) {
    const groups = new Map(ORDER.map((verdict) => [verdict, []]));
    for (const row of rows) (groups.get(row.verdict) || groups.get("unmeasured")).push(row);
    for (const group of groups.values()) group.sort((x, y) => size(y) - size(x));
    return groups;
  }

  function counts(groups) {
    const kept = [...groups].filter(([name, rows]) =>
      rows.length && !["before", "after", "unmeasured"].includes(name));
    const told = { within: `not judged, within ${100 * index.floor} %`,
      "not judged": `not judged, beyond ${100 * index.floor} %` };
    return make("p", { className: "ka-keys" }, ...kept.map(([name, rows]) =>
      make("span", {}, `${WORDS[name] || told[name] || name} ${rows.length}`)));
  }

  function heading({ a, b }) {
    return make("p", {}, "Before: ", make("strong", {}, index.ends[a].name), make("br"), "After: ",
      make("strong", {}, index.ends[b].name));
  }

  function environment(found) {
    if (!found.length) return note("Same card, driver and versions on both sides.");
    const told = found.map((one) => `${one.name} ${one.before} → ${one.after}`).join(", ");
    return make("p", {}, make("strong", {}, "The environment differs:"), ` ${told}.`);
  }

  function commandOf({ a, b, op }) {
    const [before, after] = [index.ends[a], index.ends[b]];
    if (before.device !== after.device) return null;
    const words = ["python", "-m", "collector", "compare", after.target, "--baseline",
      before.target, "--device", after.device, ...(op ? ["--op", op] : [])];
    const quote = (word) => (/^[\w./=-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
    return words.map(quote).join(" ");
  }

  function commandLine(state) {
    const text = commandOf(state);
    if (!text) return note("The collector compares on one device, so no command judges these two.");
    const button = make("button",
      { type: "button", className: "ka-copy", hidden: true, dataset: { copy: text } }, "copy");
    return make("p", { className: "ka-command" }, make("code", {}, text), button);
  }

  function show(state, found) {
    const groups = grouped(found.rows);
    const open = [...groups].filter(([name]) => OPEN.has(name)).flatMap(([, rows]) => rows);
    const rest = [...groups].filter(([name, rows]) => !OPEN.has(name) && rows.length);
    result.replaceChildren(
      heading(state), environment(found.differences), ...found.notes.map(note),
      found.judged ? "" : note("These two were not judged: a ratio may be noise alone."),
      counts(groups),
      open.length ? table(open, "Changed series") : make("p", {}, nothing(found, state)),
      ...rest.map(([verdict, rows]) => folded(rows, verdict)), commandLine(state),
    );
    window.almanacTables.prepare(result);
  }

  function nothing({ judged, rows }, { op, timer }) {
    if (!rows.length) return `Neither side has a series of ${[op, timer].filter(Boolean).join(", ")}.`;
    if (!rows.some(({ ratio }) => ratio != null)) return "No series could be compared.";
    return judged ? "No series changed beyond what noise explains."
      : `No series of both sides differs by ${100 * index.floor} % or more.`;
  }

  // --- state -----------------------------------------------------------------------------------

  const state = () => ({ ...DEFAULTS,
    ...Object.fromEntries(FIELDS.map((name) => [name, form.elements.namedItem(name).value])) });

  /** Set a field; the beginning of the name of an end, such as a short commit, will do. */
  function write(name, value) {
    const field = form.elements.namedItem(name);
    const values = [...field.options].map((option) => option.value);
    const short = value && "ab".includes(name);
    const known = values.includes(value) ? value : short ? nearest(values, value) : undefined;
    if (known !== undefined) field.value = known;
    return known !== undefined;
  }

  /** The end that begins so: on the device of the default, if it was measured there. */
  function nearest(values, start) {
    const found = values.filter((one) => one.startsWith(start));
    const { device } = index.ends[DEFAULTS.b];
    return found.find((one) => index.ends[one].device === device) || found[0];
  }

  function restore() {
    for (const name of FIELDS) write(name, DEFAULTS[name]);
    const wrong = [...new URLSearchParams(location.search)]
      .filter(([name, value]) => !FIELDS.includes(name) || !write(name, value));
    tell(wrong.length ? "The address asks for something that this page does not have: "
      + `${wrong.map((pair) => pair.join("=")).join(", ")}. It was left out.` : "");
  }

  function save() {
    const chosen = state();
    const query = new URLSearchParams(
      FIELDS.filter((name) => chosen[name] !== DEFAULTS[name]).map((name) => [name, chosen[name]]));
    const text = query.toString();
    const address = location.pathname + (text ? `?${text}` : "") + location.hash;
    history.replaceState(history.state, "", address);
  }

  function tell(text) {
    notice.textContent = text;
    notice.hidden = !text;
  }

  async function load({ a, b, op, timer }) {
    const pair = index.shards[`${a}|${b}`];
    const names = [index.shards[a], index.shards[b], ...(pair ? [pair] : [])];
    const [before, after, judged] = await Promise.all(names.map(window.almanacData.loadShard));
    const rows = join(before, after, decisions(judged)).filter(({ series }) =>
      (!op || series.op === op) && (!timer || series.timer === timer));
    return { before, after, rows, judged: Boolean(pair), notes: judged?.notes || [],
      differences: differences(before.environment, after.environment) };
  }

  async function refresh() {
    const chosen = state();
    try {
      const found = await load(chosen);
      if (JSON.stringify(chosen) !== JSON.stringify(state())) return; // asked for anew meanwhile
      const shared = found.before.runs.some((run) => found.after.runs.includes(run));
      seen = shared ? null : { chosen, found };
      if (shared) result.replaceChildren(make("p", {}, "Both sides hold the same run: choose another."));
      else show(chosen, found);
    } catch (error) {
      tell(`${error.message}. The table below is of another choice.`);
    }
  }

  // --- files -----------------------------------------------------------------------------------

  function flat({ series, before, after, verdict, ratio, low, high, least, why }) {
    const factor = (log) => (log == null ? null : Number(Math.exp(log).toPrecision(6)));
    return { ...series, verdict: PLAIN[verdict] || verdict, before_ns: before?.[TIME] ?? null,
      after_ns: after?.[TIME] ?? null, before_replicates: before?.[REPLICATES] ?? 0,
      after_replicates: after?.[REPLICATES] ?? 0, ratio: factor(ratio), ratio_low: factor(low),
      ratio_high: factor(high), smallest_seen: least ?? null, why: why || "" };
  }

  function json({ chosen, found }, rows) {
    const side = (key, { runs, replicates }) => ({ name: index.ends[key].name,
      device: index.ends[key].device, runs, replicates });
    return JSON.stringify({ before: side(chosen.a, found.before), after: side(chosen.b, found.after),
      judged: found.judged, environment: found.differences, command: commandOf(chosen), rows },
    null, 1) + "\n";
  }

  async function download(kind) {
    if (!seen) await refresh();
    if (!seen) return;
    const groups = grouped(seen.found.rows);
    const rows = [...groups.values()].flat().map(flat);
    handOut(`compare.${kind}`, kind === "csv" ? csv(rows) : json(seen, rows));
  }

  function swap() {
    const [a, b] = ["a", "b"].map((name) => form.elements.namedItem(name));
    [a.value, b.value] = [b.value, a.value];
    save();
    refresh();
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => { tell(""); save(); refresh(); });
  form.querySelector("[data-swap]").addEventListener("click", swap);
  for (const button of form.querySelectorAll("[data-save]")) {
    button.addEventListener("click", () => download(button.dataset.save));
  }
  restore();
  if (location.search) refresh();
})();
