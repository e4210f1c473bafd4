/* Figures as the records make them, dressed for this reader: theme, width, choices. */
(() => {
  "use strict";

  const RIGHT = 14; // px, beside the plot
  const touch = matchMedia("(pointer: coarse)").matches;

  function theme() {
    const style = getComputedStyle(document.querySelector(".md-typeset") || document.body);
    const text = style.color;
    const grid = text.replace(/^rgba?\(([^,]+,[^,]+,[^,)]+).*$/, "rgba($1, 0.13)");
    return { text, grid, font: style.fontFamily };
  }

  /** Put the theme's colours where the figure leaves them open. */
  function painted(value, colours) {
    if (value === "currentColor") return colours.text;
    if (Array.isArray(value)) return value.map((item) => painted(item, colours));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v, colours)]));
    }
    return value;
  }

  function figureFor(figure, live, options) {
    const colours = theme();
    const { data, layout } = painted(figure, colours);
    // Measuring labels is what a drawing costs most: only where their length is not known before.
    const measured = { automargin: Boolean(options.linear), ticklabeloverflow: "allow" };
    const axis = { gridcolor: colours.grid, linecolor: colours.grid, ...measured };
    layout.xaxis = { ...axis, ...thinned(layout.xaxis, live.clientWidth), tickangle: 0 };
    layout.yaxis = { ...axis, ...layout.yaxis, title: { ...layout.yaxis.title, standoff: 8 } };
    if (options.linear) {
      const { tickvals, ticktext, range, ...rest } = layout.yaxis;
      layout.yaxis = { ...rest, type: "linear", rangemode: "tozero", autorange: true };
    }
    const left = leftMargin(layout.yaxis);
    if (live.clientWidth < 500) {
      for (const trace of data) narrow(trace);
      const width = live.clientWidth - left - RIGHT;
      layout.annotations = layout.annotations.map((one) => inside(one, layout.xaxis.range, width));
    }
    for (const trace of data) trace.visible = !trace.meta || !options.hidden.has(trace.meta);
    Object.assign(layout, {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colours.text, family: colours.font, size: 12 },
      margin: { l: left, r: RIGHT, t: 26, b: 46 },
      dragmode: touch ? false : "zoom",
      hoverlabel: { align: "left", font: { family: colours.font, size: 12 } },
      height: live.parentElement.clientHeight,
    });
    return { data, layout };
  }

  /** Keep a label between the ends of its axis where it would be cut. */
  function inside(label, [low, high], width) {
    const place = ((label.x - low) / (high - low)) * width;
    const half = 2.8 * label.text.length;
    const small = { ...label, font: { size: 10 } };
    if (place + half > width + RIGHT) return { ...small, x: high, xanchor: "right" };
    return place < half ? { ...small, x: low, xanchor: "left" } : small;
  }

  /** Write smaller where there is little room, and only every second of many values. */
  function narrow(trace) {
    const values = trace.mode === "markers+text";
    trace.textfont = { size: values ? 10 : 9 };
    if (values) trace.text = trace.text.map((t, i) => (i % 2 ? "" : t));
  }

  const longest = (axis) => Math.max(0, ...(axis.ticktext || []).map((label) => label.length));

  /** Name as many places of an axis as fit side by side. */
  function thinned(axis, width) {
    const { tickvals = [], ticktext = [] } = axis;
    const step = Math.ceil((tickvals.length * 8 * (longest(axis) + 1)) / (width - 80));
    if (!(step > 1)) return axis;
    const kept = (_, place) => place % step === 0;
    return { ...axis, tickvals: tickvals.filter(kept), ticktext: ticktext.filter(kept) };
  }

  /** Leave room for the longest label of the axis, its title and the space between. */
  function leftMargin(axis) {
    return Math.max(48, 34 + 7 * longest(axis));
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

  window.almanacFigures = { figureFor, describe, CONFIG };
})();
