/* Charts and controls of Kernel Almanac. Pages work without it; this makes them lively. */
(() => {
  "use strict";

  const scriptUrl = document.currentScript.src;
  const shards = (window.almanacShards = window.almanacShards || {});
  const { figureFor, describe, CONFIG } = window.almanacFigures;
  const Tables = window.almanacTables;
  const scripts = new Map();
  const opened = new Map();
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

  /** Load a classic script once: unlike fetch and modules, it also works from file://. */
  function load(url) {
    if (!scripts.has(url)) {
      scripts.set(url, new Promise((resolve, reject) => {
        const element = document.createElement("script");
        element.src = url;
        element.onload = resolve;
        element.onerror = () => reject(new Error(`could not load ${url.split("/").pop()}`));
        document.head.append(element);
      }));
    }
    return scripts.get(url);
  }

  /** Load packed data once; from then on they are in `shards`. */
  async function loadShard(name) {
    if (opened.has(name)) return opened.get(name);
    const opening = load(new URL(`data/${name}.js`, scriptUrl).href).then(async () => {
      const bytes = Uint8Array.from(atob(shards[name]), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      shards[name] = JSON.parse(await new Response(stream).text());
      return shards[name];
    });
    opened.set(name, opening);
    return opening;
  }

  /** Wait until the page has nothing more urgent to do. */
  const idle = () => new Promise((resolve) => {
    if (window.requestIdleCallback) requestIdleCallback(resolve, { timeout: 300 });
    else setTimeout(resolve, 50);
  });

  const parse = (element) => (element ? JSON.parse(element.textContent) : null);

  // --- one page of charts ----------------------------------------------------------------------

  class Page {
    constructor(root) {
      this.root = root;
      this.index = parse(root.querySelector("[data-views]")) || { fields: [], views: {} };
      this.figures = parse(root.querySelector("[data-figures]")) || {};
      this.view = this.index.default;
      this.defaults = new Map();
      this.wanted = new Map(); // what the reader asked for, which may not have been measured
      this.form = root.querySelector("[data-controls]");
      this.notice = root.querySelector("[data-notice]");
      this.visible = new Set();
      this.waiting = new Set();
      this.watch();
      if (this.form) this.start();
      this.observe();
    }

    // State: the form's fields. Only what differs from the page's defaults is in the address.

    start() {
      for (const name of this.names()) this.defaults.set(name, this.read(name));
      const wrong = this.restore(new URLSearchParams(location.search));
      for (const field of this.form.elements) {
        field.addEventListener("change", () => this.changed(field.name));
      }
      this.form.addEventListener("submit", (event) => event.preventDefault());
      addEventListener("popstate", () => {
        this.tell(this.restore(new URLSearchParams(location.search)));
        this.refresh();
      });
      if (location.search) this.refresh().then(() => wrong.length && this.tell(wrong));
    }

    names() {
      return [...new Set([...this.form.elements].map((field) => field.name).filter(Boolean))];
    }

    read(name) {
      const field = this.form.elements.namedItem(name);
      if (field instanceof HTMLSelectElement) return field.value;
      if (field instanceof HTMLInputElement && field.type === "hidden") return field.value;
      const boxes = [...this.form.elements].filter((box) => box.name === name);
      return boxes.filter((box) => box.checked).map((box) => box.value).join("~");
    }

    write(name, value) {
      const field = this.form.elements.namedItem(name);
      if (field instanceof HTMLSelectElement) {
        const known = [...field.options].some((option) => option.value === value);
        if (known) field.value = value;
        return known;
      }
      if (field instanceof HTMLInputElement && field.type === "hidden") return field.value === value;
      const boxes = [...this.form.elements].filter((box) => box.name === name);
      const wanted = value === "" ? [] : value.split("~");
      if (!wanted.every((item) => boxes.some((box) => box.value === item))) return false;
      for (const box of boxes) box.checked = wanted.includes(box.value);
      return true;
    }

    restore(query) {
      const wrong = [];
      for (const name of this.names()) this.write(name, this.defaults.get(name));
      for (const [name, value] of query) {
        const known = this.defaults.has(name) && this.write(name, value);
        if (!known) wrong.push(`${name}=${value}`);
      }
      for (const name of this.names()) this.wanted.set(name, this.read(name));
      return wrong;
    }

    changed(name) {
      this.last = name;
      this.wanted.set(name, this.read(name));
      this.tell([]);
      this.save();
      this.refresh();
    }

    save() {
      const query = new URLSearchParams();
      for (const [name, value] of this.defaults) {
        if (this.wanted.get(name) !== value) query.set(name, this.wanted.get(name));
      }
      const text = query.toString();
      const address = location.pathname + (text ? `?${text}` : "") + location.hash;
      history.replaceState(history.state, "", address);
    }

    tell(wrong, message) {
      if (!this.notice) return;
      const said = wrong.length
        ? `The address asks for something that this page does not have: ${wrong.join(", ")}. `
          + "It was left out."
        : message || "";
      this.notice.textContent = said;
      this.notice.hidden = !said;
    }

    // Views: the same page for another device, type, timer ...

    async refresh() {
      this.mode();
      const view = this.nearest();
      if (view !== this.view) {
        const shown = await loadShard(this.index.views[view][0]);
        this.view = view;
        this.figures = {};
        this.fill(shown);
      }
      this.hide();
      await this.drawAll(this.visible);
    }

    /** The view that the controls ask for; where it was not measured, the one most like it. */
    nearest() {
      const { fields, views } = this.index;
      if (!fields.length) return this.view;
      const asked = fields.map((name) => this.wanted.get(name));
      if (asked.join("|") in views) return this.choose(asked, asked);
      const kept = fields.indexOf(this.last);
      const score = (key) => key.split("|").reduce((sum, value, place) =>
        sum + (value === asked[place] ? (place === kept ? 100 : 1) : 0), 0);
      const best = Object.keys(views).reduce((a, b) => (score(b) > score(a) ? b : a));
      return this.choose(best.split("|"), asked);
    }

    /** Set the controls to a view, and say where it is not what was asked for. */
    choose(values, asked) {
      const { fields } = this.index;
      values.forEach((value, place) => this.write(fields[place], value));
      const moved = values.map((value, place) => [value, asked[place]]).filter(([a, b]) => a !== b);
      const told = moved.map(([value, other]) => `${other} (shown: ${value})`).join(", ");
      if (told) this.tell([], `Not measured for this choice: ${told}.`);
      return values.join("|");
    }

    fill({ slots, charts }) {
      for (const element of this.root.querySelectorAll("[data-slot]")) {
        for (const live of element.querySelectorAll(".ka-live")) if (live.data) Plotly.purge(live);
        element.innerHTML = slots[element.dataset.slot] || "";
      }
      for (const chart of this.root.querySelectorAll("[data-chart]")) {
        this.replace(chart, chart.dataset.chart, charts[chart.dataset.chart]);
      }
      Tables.prepare(this.root);
      ages();
      this.observe(); // what a slot brought
    }

    replace(chart, key, entry) {
      const live = chart.querySelector(".ka-live");
      if (live && live.data) Plotly.purge(live);
      chart.classList.remove("ka-drawn");
      chart.dataset.shown = key;
      delete chart.dataset.later;
      if (entry) chart.innerHTML = entry.html;
      this.hide();
    }

    mode() {
      const metric = this.field("m") ? this.read("m") : null;
      const box = this.root.querySelector("[data-metric]");
      if (box && metric) box.dataset.metric = metric;
    }

    field(name) {
      return this.form ? this.form.elements.namedItem(name) : null;
    }

    hidden() {
      const boxes = this.form ? [...this.form.elements].filter((box) => box.name === "s") : [];
      return new Set(boxes.filter((box) => !box.checked).map((box) => box.value));
    }

    hide() {
      const hidden = this.hidden();
      for (const group of this.root.querySelectorAll("[data-series]")) {
        group.classList.toggle("ka-hidden", hidden.has(group.dataset.series));
      }
      const drawn = [...this.root.querySelectorAll(".ka-static [data-series]")];
      const present = new Set(drawn.map((group) => group.dataset.series));
      for (const box of this.form ? this.form.elements : []) {
        if (box.name === "s") box.closest("label").hidden = !present.has(box.value);
      }
    }

    /** The variant of a chart that the controls ask for, for example another baseline. */
    key(chart) {
      const { chart: name, variant } = chart.dataset;
      const fields = (variant || "").split(" ").filter((field) => this.field(field));
      if (fields.every((field) => this.read(field) === this.defaults.get(field))) return name;
      return [name, ...fields.map((field) => this.read(field))].join(":");
    }

    /** Find a chart in the page itself, in the shards that came, or in those still to come. */
    async entry(key, shown) {
      if (key === shown && this.figures[key]) return { figure: this.figures[key] };
      for (const name of this.index.views[this.view] || []) {
        const found = (await loadShard(name)).charts[key];
        if (found) return found;
      }
      return null;
    }

    /** The cases of the view, without those of hidden lines. */
    async cases() {
      const hidden = this.hidden();
      const names = this.index.views[this.view] || [];
      const { cases } = (await Promise.all(names.map(loadShard))).find((one) => one.cases);
      return cases.filter((one) => !hidden.has(one.line ?? one.implementation));
    }

    // Drawing: when a chart comes near, and again when theme or width changes.

    observe() {
      this.near = this.near || new IntersectionObserver((entries) => {
        for (const { target, isIntersecting } of entries) {
          if (!isIntersecting) continue;
          this.visible.add(target);
          this.drawAll([target]);
        }
      }, { rootMargin: "200px" });
      for (const chart of this.root.querySelectorAll("[data-chart]")) this.near.observe(chart);
    }

    /** Draw one chart after the other, so that the first is soon there and the page answers. */
    drawAll(charts) {
      for (const chart of charts) this.waiting.add(chart);
      this.drawing = (this.drawing || Promise.resolve()).then(() => this.work());
      return this.drawing;
    }

    async work() {
      for (const chart of this.waiting) {
        this.waiting.delete(chart);
        await this.draw(chart);
        if (this.waiting.size) await idle();
      }
    }

    async draw(chart) {
      if (!chart.isConnected || !chart.clientWidth) return;
      try {
        const shown = chart.dataset.shown || chart.dataset.chart;
        let key = this.key(chart);
        let [entry] = await Promise.all([this.entry(key, shown), plotly(this.root)]);
        if (!entry) {
          this.tell([], "Not measured for this choice; the chart shows what was.");
          key = chart.dataset.chart;
          entry = await this.entry(key, shown);
        }
        if (!entry || this.waiting.has(chart)) return; // asked for anew meanwhile
        const later = "later" in chart.dataset;
        if (entry.html && (key !== shown || later)) this.replace(chart, key, entry);
        if (!chart.querySelector(".ka-live")) return; // nothing to draw
        const linear = this.field("y") && this.read("y") === "lin";
        const live = chart.querySelector(".ka-live");
        const { data, layout } = figureFor(entry.figure, live, { hidden: this.hidden(), linear });
        await Plotly.react(live, data, layout, CONFIG);
        chart.classList.add("ka-drawn");
        describe(live, chart);
        this.sizes.observe(live.parentElement);
      } catch (error) {
        chart.classList.remove("ka-drawn"); // the static drawing stays
        this.tell([], `${error.message}. The static charts are shown.`);
      }
    }

    watch() {
      this.sizes = new ResizeObserver((entries) => {
        for (const { target } of entries) {
          const live = target.querySelector(".ka-live");
          if (live && live.data && target.clientWidth) Plotly.Plots.resize(live);
        }
      });
      new MutationObserver(() => {
        this.drawAll(this.visible);
      }).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
      for (const details of this.root.querySelectorAll("details")) {
        details.addEventListener("toggle", () => this.observe());
      }
    }
  }

  async function plotly(root) {
    if (!window.Plotly) await load(new URL(root.dataset.plotly, location.href).href);
    return window.Plotly;
  }

  /** Say how old a time is, when the page is read and not when it was built. */
  function ages() {
    for (const element of document.querySelectorAll("time[data-age]")) {
      const hours = (Date.now() - Date.parse(element.dateTime)) / 36e5;
      if (!(hours >= 0)) continue;
      const days = Math.floor(hours / 24);
      const today = hours < 1 ? "under 1 h ago" : `${Math.floor(hours)} h ago`;
      const text = days >= 1 ? `${days} day${days > 1 ? "s" : ""} ago` : today;
      element.title = element.textContent;
      const place = element.nextElementSibling;
      if (!place?.matches("[data-age-text]")) continue;
      const lead = place.dataset.ageLead;
      place.textContent = lead ? `${lead}${text}` : ` (${text})`;
    }
  }

  function main() {
    document.documentElement.classList.add("ka-js");
    if (calm) document.documentElement.classList.add("ka-calm");
    ages();
    for (const root of document.querySelectorAll("[data-ka]")) {
      if (root.page) continue;
      Tables.prepare(root);
      root.page = new Page(root);
      root.page.mode();
    }
  }

  window.almanacData = { loadShard };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", main);
  else main();
})();
