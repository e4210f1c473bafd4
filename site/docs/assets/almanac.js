/* Charts, controls and tables of Kernel Almanac. Pages work without it; this makes them lively. */
(() => {
  "use strict";

  const scriptUrl = document.currentScript.src;
  const shards = (window.almanacShards = window.almanacShards || {});
  const scripts = new Map();
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const touch = matchMedia("(pointer: coarse)").matches;

  /** Load a classic script once: unlike fetch and modules, it also works from file://. */
  function load(url) {
    if (!scripts.has(url)) {
      scripts.set(url, new Promise((resolve, reject) => {
        const element = document.createElement("script");
        element.src = url;
        element.onload = resolve;
        element.onerror = () => reject(new Error(`could not load ${url}`));
        document.head.append(element);
      }));
    }
    return scripts.get(url);
  }

  const parse = (element) => (element ? JSON.parse(element.textContent) : null);

  // --- theme -----------------------------------------------------------------------------------

  const STRIPS = {
    latency: "#808080", host: "#808080", memory: "#0072B2", l2: "#56B4E9",
    compute: "#D55E00", special: "#CC79A7", range: "#E69F00", crossover: "#E69F00",
  };

  function theme() {
    const style = getComputedStyle(document.querySelector(".md-typeset") || document.body);
    const text = style.color;
    const grid = text.replace(/^rgba?\(([^,]+,[^,]+,[^,)]+).*$/, "rgba($1, 0.13)");
    return { text, grid, font: style.fontFamily };
  }

  /** Put the theme's colours where the figure leaves them open. */
  function painted(value, colours) {
    if (value === "currentColor") return colours.text;
    if (typeof value === "string" && value.startsWith("strip:")) {
      return STRIPS[value.slice(6)] || "#808080";
    }
    if (Array.isArray(value)) return value.map((item) => painted(item, colours));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v, colours)]));
    }
    return value;
  }

  function figureFor(figure, live, options) {
    const colours = theme();
    const { data, layout } = painted(figure, colours);
    const axis = { gridcolor: colours.grid, linecolor: colours.grid, automargin: true };
    layout.xaxis = { ...axis, ...layout.xaxis };
    layout.yaxis = { ...axis, ...layout.yaxis };
    if (options.linear) {
      const { tickvals, ticktext, range, ...rest } = layout.yaxis;
      layout.yaxis = { ...rest, type: "linear", rangemode: "tozero", autorange: true };
    }
    for (const trace of data) trace.visible = !trace.meta || !options.hidden.has(trace.meta);
    Object.assign(layout, {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colours.text, family: colours.font, size: 12 },
      margin: { l: 62, r: 14, t: 26, b: 46 },
      dragmode: touch ? false : "zoom",
      hoverlabel: { align: "left", font: { family: colours.font, size: 12 } },
      height: live.parentElement.clientHeight,
    });
    return { data, layout };
  }

  const CONFIG = {
    displaylogo: false,
    showSendToCloud: false,
    responsive: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    displayModeBar: "hover",
  };

  /** Name the drawing for screen readers; the table beside it holds the numbers. */
  function describe(live, chart) {
    const caption = chart.querySelector("figcaption");
    live.querySelectorAll("svg.main-svg").forEach((svg, index) => {
      if (index === 0 && caption) {
        svg.setAttribute("role", "img");
        svg.setAttribute("aria-label", `${caption.textContent.trim()} See the table.`);
      } else svg.setAttribute("aria-hidden", "true");
    });
  }

  // --- one page of charts ----------------------------------------------------------------------

  class Page {
    constructor(root) {
      this.root = root;
      this.index = parse(root.querySelector("[data-views]")) || { fields: [], views: {} };
      this.figures = parse(root.querySelector("[data-figures]")) || {};
      this.view = this.index.default;
      this.defaults = new Map();
      this.form = root.querySelector("[data-controls]");
      this.notice = root.querySelector("[data-notice]");
      this.visible = new Set();
      this.watch();
      if (this.form) this.start();
      this.observe();
    }

    // State: the form's fields. Only what differs from the page's defaults is in the address.

    start() {
      for (const name of this.names()) this.defaults.set(name, this.read(name));
      const wrong = this.restore(new URLSearchParams(location.search));
      this.form.addEventListener("change", () => this.changed());
      this.form.addEventListener("submit", (event) => event.preventDefault());
      addEventListener("popstate", () => {
        this.tell(this.restore(new URLSearchParams(location.search)));
        this.refresh();
      });
      if (wrong.length || location.search) this.refresh().then(() => this.tell(wrong));
    }

    names() {
      return [...new Set([...this.form.elements].map((field) => field.name).filter(Boolean))];
    }

    read(name) {
      const field = this.form.elements.namedItem(name);
      if (field instanceof HTMLSelectElement) return field.value;
      const boxes = [...this.form.querySelectorAll(`[name="${CSS.escape(name)}"]`)];
      return boxes.filter((box) => box.checked).map((box) => box.value).join("~");
    }

    write(name, value) {
      const field = this.form.elements.namedItem(name);
      if (field instanceof HTMLSelectElement) {
        const known = [...field.options].some((option) => option.value === value);
        if (known) field.value = value;
        return known;
      }
      const boxes = [...this.form.querySelectorAll(`[name="${CSS.escape(name)}"]`)];
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
      return wrong;
    }

    changed() {
      const query = new URLSearchParams();
      for (const [name, value] of this.defaults) {
        if (this.read(name) !== value) query.set(name, this.read(name));
      }
      const text = query.toString();
      const address = location.pathname + (text ? `?${text}` : "") + location.hash;
      history.replaceState(history.state, "", address);
      this.tell([]);
      this.refresh();
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
      const view = this.index.fields.map((name) => this.read(name)).join("|") || this.index.default;
      this.mode();
      if (view !== this.view) {
        if (!(view in this.index.views)) {
          this.root.classList.add("ka-nothing");
          this.tell([], "Nothing was measured for this choice. What is shown below is empty.");
          return;
        }
        await load(this.url(this.index.views[view][0]));
        this.view = view;
        this.figures = {};
        this.fill();
      }
      this.root.classList.remove("ka-nothing");
      await Promise.all([...this.visible].map((chart) => this.draw(chart)));
    }

    url(name) {
      return new URL(`data/${name}.js`, scriptUrl).href;
    }

    shard(place) {
      return shards[(this.index.views[this.view] || [])[place]] || null;
    }

    fill() {
      const slots = this.shard(0).slots;
      for (const element of this.root.querySelectorAll("[data-slot]")) {
        Plotly_purge(element);
        element.innerHTML = slots[element.dataset.slot] || "";
      }
      Tables.prepare(this.root);
      this.hide();
      this.observe();
    }

    mode() {
      const metric = this.form && this.form.querySelector('[name="m"]') ? this.read("m") : null;
      if (metric) this.root.dataset.metric = metric;
      this.hide();
    }

    hidden() {
      if (!this.form) return new Set();
      const boxes = [...this.form.querySelectorAll('[name="s"]')];
      return new Set(boxes.filter((box) => !box.checked).map((box) => box.value));
    }

    hide() {
      const hidden = this.hidden();
      for (const group of this.root.querySelectorAll("[data-series]")) {
        group.classList.toggle("ka-hidden", hidden.has(group.dataset.series));
      }
    }

    /** The variant of a chart that the controls ask for, for example another baseline. */
    key(chart) {
      const name = chart.dataset.chart;
      const variant = chart.dataset.variant && this.form ? this.read(chart.dataset.variant) : "";
      return variant && variant !== this.defaults.get(chart.dataset.variant)
        ? `${name}:${variant}` : name;
    }

    async figure(key) {
      if (this.figures[key]) return this.figures[key];
      const names = this.index.views[this.view] || [];
      for (const [place, name] of names.entries()) {
        await load(this.url(name));
        const found = this.shard(place).figures[key];
        if (found) return found;
      }
      return null;
    }

    // Drawing: when a chart comes near, and again when theme or width changes.

    observe() {
      this.near = this.near || new IntersectionObserver((entries) => {
        for (const { target, isIntersecting } of entries) {
          if (!isIntersecting) continue;
          this.visible.add(target);
          this.draw(target);
        }
      }, { rootMargin: "200px" });
      for (const chart of this.visible) if (!chart.isConnected) this.visible.delete(chart);
      for (const chart of this.root.querySelectorAll("[data-chart]")) this.near.observe(chart);
    }

    async draw(chart) {
      const live = chart.querySelector(".ka-live");
      if (!live || !chart.isConnected || !chart.clientWidth) return;
      const turn = (chart.turn = (chart.turn || 0) + 1);
      try {
        const [figure] = await Promise.all([this.figure(this.key(chart)), plotly(this.root)]);
        if (!figure || turn !== chart.turn) return;
        const linear = this.form && this.form.querySelector('[name="y"]') && this.read("y") === "lin";
        const options = { hidden: this.hidden(), linear };
        chart.classList.add("ka-drawn");
        const { data, layout } = figureFor(figure, live, options);
        await Plotly.react(live, data, layout, { ...CONFIG, staticPlot: false });
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
        for (const chart of this.visible) this.draw(chart);
      }).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
      for (const details of this.root.querySelectorAll("details")) {
        details.addEventListener("toggle", () => this.observe());
      }
    }
  }

  function Plotly_purge(element) {
    for (const live of element.querySelectorAll(".ka-live")) if (live.data) Plotly.purge(live);
  }

  async function plotly(root) {
    if (!window.Plotly) await load(new URL(root.dataset.plotly, scriptUrl).href);
    return window.Plotly;
  }

  // --- tables: sorting by base units, filters, copying -------------------------------------------

  const Tables = {
    prepare(root) {
      for (const table of root.querySelectorAll("table[data-sortable]")) Tables.sortable(table);
      for (const button of root.querySelectorAll("button[data-copy]")) Tables.copyable(button);
      for (const box of root.querySelectorAll("[data-filters]")) Tables.filtered(box);
    },

    sortable(table) {
      if (table.dataset.ready) return;
      table.dataset.ready = "1";
      for (const head of table.querySelectorAll("thead th")) {
        if (!head.textContent.trim()) continue;
        const button = document.createElement("button");
        button.type = "button";
        button.append(...head.childNodes);
        button.addEventListener("click", () => Tables.sort(table, head));
        head.append(button);
      }
    },

    sort(table, head) {
      const column = head.cellIndex;
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => {
        const cell = row.cells[column];
        return cell ? cell.dataset.sort ?? cell.textContent.trim() : "";
      };
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
        return up ? order : -order;
      };
      for (const body of table.tBodies) body.append(...[...body.rows].sort(compare));
    },

    copyable(button) {
      if (button.dataset.ready || !navigator.clipboard) return;
      button.dataset.ready = "1";
      button.hidden = false;
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(button.dataset.copy);
        const label = button.textContent;
        button.textContent = "copied";
        setTimeout(() => { button.textContent = label; }, 1500);
      });
    },

    filtered(box) {
      if (box.dataset.ready) return;
      box.dataset.ready = "1";
      const target = document.getElementById(box.dataset.filters);
      const fields = [...box.querySelectorAll("select, input")];
      const query = new URLSearchParams(location.search);
      for (const field of fields) {
        const asked = query.get(field.name);
        if (asked !== null && [...(field.options || [])].some((o) => o.value === asked)) {
          field.value = asked;
        }
      }
      const apply = () => {
        let shown = 0;
        for (const row of target.querySelectorAll("tbody tr")) {
          row.hidden = fields.some((f) => f.value && row.dataset[f.name] !== f.value);
          shown += !row.hidden;
        }
        for (const field of fields) {
          if (field.value === field.querySelector("option").value) query.delete(field.name);
          else query.set(field.name, field.value);
        }
        const text = query.toString();
        const address = location.pathname + (text ? `?${text}` : "") + location.hash;
        history.replaceState(history.state, "", address);
        box.querySelector("output").textContent = `${shown} rows`;
      };
      box.addEventListener("change", apply);
      apply();
      box.hidden = false;
    },
  };

  /** Say how old a time is, when the page is read and not when it was built. */
  function ages() {
    for (const element of document.querySelectorAll("time[data-age]")) {
      const hours = (Date.now() - Date.parse(element.dateTime)) / 36e5;
      if (!(hours >= 0)) continue;
      const days = Math.floor(hours / 24);
      const text = days >= 1 ? `${days} day${days > 1 ? "s" : ""} ago` : `${Math.floor(hours)} h ago`;
      element.title = element.textContent;
      element.nextElementSibling?.matches("[data-age-text]")
        && (element.nextElementSibling.textContent = ` (${text})`);
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

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", main);
  else main();
})();
