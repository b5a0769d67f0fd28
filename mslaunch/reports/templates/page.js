"use strict";
(() => {
  const grid = document.getElementById("grid"), ranks = document.getElementById("ranks"), tip = document.getElementById("tip");
  const rows = new Map();
  if (ranks) for (const row of ranks.querySelectorAll("tr[data-c]")) rows.set(row.dataset.c, row);

  // The grid: which cell lies under the pointer follows from the sizes of cells and blocks.
  const found = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(grid.getScreenCTM().inverse());
    const size = (name) => Number(grid.dataset[name]);
    const x = at.x - size("left"), y = at.y - size("top");
    if (x < 0 || y < 0) return undefined;
    const inRow = Math.floor(x / size("width")), block = Math.floor(y / size("height")) * size("row") + inRow;
    const column = Math.floor((x % size("width")) / size("cell")), line = Math.floor((y % size("height")) / size("cell"));
    if (inRow >= size("row") || column >= size("columns")) return undefined;
    return rows.get(block + "." + (line * size("columns") + column));
  };
  if (grid && tip && rows.size) {
    const names = Array.from(ranks.tHead.rows[0].cells, (cell) => cell.textContent);
    grid.classList.add("can-point");
    grid.addEventListener("pointermove", (event) => {
      const row = found(event);
      tip.hidden = !row;
      if (!row) return;
      const words = Array.from(row.cells, (cell) => cell.textContent.trim());
      tip.textContent = "rank " + words[0] + " on " + words[1] + ": " + words[10] + "\n" +
        [4, 5, 6, 7, 8, 9].map((at) => names[at] + " " + words[at]).join(" · ");
      tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 12) + "px";
      tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 12) + "px";
    });
    grid.addEventListener("pointerleave", () => { tip.hidden = true; });
    grid.addEventListener("click", (event) => {
      const row = found(event);
      if (!row) return;
      document.getElementById("ranks-details").open = true;
      for (const other of ranks.querySelectorAll(".chosen")) other.classList.remove("chosen");
      row.classList.add("chosen");
      row.hidden = false;
      row.scrollIntoView({ block: "center" });
    });
  }

  // The filter above the table of ranks.
  const filter = document.getElementById("filter");
  if (filter && ranks) {
    filter.closest("p").hidden = false;
    filter.addEventListener("input", () => {
      const wanted = filter.value.trim().toLowerCase();
      let count = 0;
      for (const row of ranks.tBodies[0].rows) {
        const words = Array.from(row.cells, (cell) => cell.textContent.trim().toLowerCase());
        row.hidden = wanted !== "" && !words.some((word) => word.includes(wanted));
        count += row.hidden ? 0 : 1;
      }
      document.getElementById("matching").textContent = wanted ? count + " of " + ranks.tBodies[0].rows.length : "";
    });
  }

  // Paper cannot be clicked: all but the large tables are printed open.
  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details:not(.large)")) each.open = true;
  });
})();
