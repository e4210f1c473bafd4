/* What a reader takes along from a page: its link, and the cases that it shows as a file. */
(() => {
  "use strict";

  /** Write a cell so that a spreadsheet reads texts as texts. */
  function cell(value) {
    if (typeof value === "number") return String(value);
    const text = String(value ?? "");
    const safe = /^[=+@\t\r-]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  /** Write rows as a table; a column for each name that any of them has. */
  function csv(rows) {
    const names = [...new Set(rows.flatMap(Object.keys))];
    if (!names.length) return "";
    return [names, ...rows.map((row) => names.map((name) => row[name]))]
      .map((line) => line.map(cell).join(",")).join("\n") + "\n";
  }

  /** Give a text to the reader as a file. */
  function handOut(name, text) {
    const type = name.endsWith(".csv") ? "text/csv" : "application/json";
    const url = URL.createObjectURL(new Blob([text], { type }));
    Object.assign(document.createElement("a"), { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  /** Put what lies inside a field beside it: sizes {rows: 4} become sizes.rows. */
  function flat(one) {
    const pairs = Object.entries(one).flatMap(([name, value]) => {
      if (Array.isArray(value)) return [[name, value.join(" ")]];
      if (value === null || typeof value !== "object") return [[name, value]];
      return Object.entries(value).map(([part, inner]) => [`${name}.${part}`, inner]);
    });
    return Object.fromEntries(pairs);
  }

  async function take(page, kind) {
    const cases = await page.cases();
    const name = location.pathname.replace(/(index)?(\.html)?$/, "").split("/").filter(Boolean).pop();
    const text = kind === "csv" ? csv(cases.map(flat))
      : JSON.stringify({ address: location.href, cases }, null, 1) + "\n";
    handOut(`${name}.${kind}`, text);
  }

  function main() {
    for (const button of document.querySelectorAll("[data-take]")) {
      const { take: kind } = button.dataset;
      if (kind === "link") window.almanacTables.copyable(button, () => location.href);
      else button.addEventListener("click", () => {
        const { page } = button.closest("[data-ka]");
        take(page, kind).catch((error) => page.tell([], `${error.message}: no file was made.`));
      });
    }
  }

  window.almanacTaking = { csv, handOut };
  if (document.readyState === "complete") main();
  else addEventListener("load", main);
})();
