"use strict";

function sortValue(row, column) {
  const cell = row.cells[column];
  return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
}

function compare(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1, column = head.cellIndex;
    body.append(...[...body.rows].sort((a, b) => sign * compare(sortValue(a, column), sortValue(b, column))));
  });
}

for (const box of document.querySelectorAll("input[data-shows]")) {
  const show = () => {
    for (const layer of box.closest("section").querySelectorAll(`[data-layer="${box.dataset.shows}"]`)) {
      layer.toggleAttribute("hidden", !box.checked);
    }
  };
  box.addEventListener("change", show);
  show();
}

for (const picker of document.querySelectorAll(".picker")) {
  const buttons = [...picker.querySelectorAll("button")];
  const show = (shown) => {
    for (const button of buttons) {
      document.getElementById(button.getAttribute("aria-controls")).toggleAttribute("hidden", button !== shown);
    }
  };
  const choose = (chosen) => {
    for (const button of buttons) button.setAttribute("aria-pressed", button === chosen);
    show(chosen);
  };
  for (const button of buttons) {
    button.addEventListener("click", () => choose(button));
    button.addEventListener("pointerenter", () => show(button));
  }
  const list = picker.querySelector("ul");
  list.addEventListener("pointerleave", () => show(picker.querySelector("[aria-pressed=true]")));
  list.hidden = false;
  choose(buttons[0]);
}
