// A click on a head of a table sorts its rows by that column, a second click the other way round.
"use strict";

// the number at the beginning of a cell ("1,276 [1,187, 1,371]", "-6.6%"), NaN if there is none
function numberOf(text) {
  const found = text.replace(/,(?=\d{3})/g, "").match(/^[+-]?\d+(\.\d+)?/);
  return found ? parseFloat(found[0]) : NaN;
}

// negative if a comes before b; rows without a number come last either way
function compareCells(a, b, sign) {
  const [x, y] = [numberOf(a), numberOf(b)];
  if (Number.isNaN(x) && Number.isNaN(y)) return sign * a.localeCompare(b);
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
  return sign * (x - y);
}

function sortBy(table, column, sign) {
  const body = table.tBodies[0];
  const cell = (row) => row.cells[column].textContent.trim();
  const rows = Array.from(body.rows);
  rows.sort((a, b) => compareCells(cell(a), cell(b), sign));
  body.append(...rows);
}

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils")) {
    if (!table.tHead || table.tBodies[0].rows.length < 3) continue;
    Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
      head.classList.add("sortable");
      head.tabIndex = 0;
      head.title = "sort";
      const sort = () => {
        const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        sortBy(table, column, sign);
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
    });
  }
});
