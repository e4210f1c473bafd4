/* Tables: sorting by base units, filters, copying. */
(() => {
  "use strict";

  const SCALES = { "µs": 1e3, ms: 1e6, s: 1e9, k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
  for (const [power, unit] of ["Ki", "Mi", "Gi", "Ti"].entries()) {
    SCALES[unit] = SCALES[unit + "B"] = 1024 ** (power + 1);
  }

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
        return cell ? cell.dataset.sort ?? Tables.plain(cell.textContent.trim()) : "";
      };
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
        return up ? order : -order;
      };
      for (const body of table.tBodies) body.append(...[...body.rows].sort(compare));
    },

    plain(text) {
      // Most numbers need no copy of themselves to be sorted by: 1,234 or 18.0× or 5.1 µs or 4Ki.
      const found = /^([−+-]?[\d.,]+(?:e-?\d+)?)\s?([×%]|[nµm]?s|[kMGT]|[KMGT]iB?|B)?(\s.*)?$/
        .exec(text);
      if (!found) return text === "–" ? "" : text;
      const number = Number(found[1].replace("−", "-").replaceAll(",", ""));
      return number * (SCALES[found[2] ?? ""] ?? 1);
    },

    copyable(button, text = () => button.dataset.copy) {
      if (button.dataset.ready || !navigator.clipboard) return;
      button.dataset.ready = "1";
      button.hidden = false;
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(text());
        const label = button.textContent;
        button.textContent = "copied";
        setTimeout(() => { button.textContent = label; }, 1500);
      });
    },

    filtered(box) {
      if (box.dataset.ready) return;
      box.dataset.ready = "1";
      const targets = box.dataset.filters.split(" ").map((id) => document.getElementById(id))
        .filter(Boolean);
      const fields = [...box.querySelectorAll("select, input")];
      const query = new URLSearchParams(location.search);
      for (const field of fields) {
        const asked = query.get(field.name);
        if (asked !== null && [...(field.options || [])].some((o) => o.value === asked)) {
          field.value = asked;
        }
      }
      // A row may have several values of one name, such as its causes.
      const fits = (row, { name, value }) => !value || row.dataset[name]?.split(" ").includes(value);
      const filter = (target) => {
        const rows = [...target.querySelectorAll("tbody tr")];
        for (const row of rows) row.hidden = !fields.every((field) => fits(row, field));
        const folded = target.closest("details");
        if (folded && fields.some((field) => field.value)) folded.open = true;
        const count = rows.filter((row) => !row.hidden).length;
        const name = target.dataset.rows || "rows";
        return `${count} ${count === 1 && name !== "series" ? name.slice(0, -1) : name}`;
      };
      const apply = () => {
        const counts = targets.map(filter);
        for (const field of fields) {
          if (field.value === field.querySelector("option").value) query.delete(field.name);
          else query.set(field.name, field.value);
        }
        const text = query.toString();
        const address = location.pathname + (text ? `?${text}` : "") + location.hash;
        history.replaceState(history.state, "", address);
        box.querySelector("output").textContent = counts.join(", ");
      };
      box.addEventListener("change", apply);
      apply();
      box.hidden = false;
    },
  };

  window.almanacTables = Tables;
})();
