"use strict";

function sortValue(row, column) {
  const cell = row.cells[column];
  if ("value" in cell.dataset) return Number(cell.dataset.value);
  return cell.classList.contains("figure") ? null : cell.textContent.trim();
}

function compare(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
}

const folded = [...document.querySelectorAll("details")];
const unfold = () => {
  const section = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const details = section && section.querySelector("details");
  if (details) details.open = true;
};
addEventListener("hashchange", unfold);
unfold();
let shut = [];
addEventListener("beforeprint", () => {
  shut = folded.filter((details) => !details.open);
  for (const details of shut) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of shut) details.open = false;
});

for (const button of document.querySelectorAll("thead th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1, column = head.cellIndex;
    body.append(...[...body.rows].sort((a, b) => compare(sortValue(a, column), sortValue(b, column), sign)));
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

for (const explorer of document.querySelectorAll(".explorer")) {
  const figure = explorer.querySelector("figure"), picture = figure.querySelector("svg");
  const [name, note] = figure.querySelector("figcaption").children, [source, target] = picture.querySelectorAll("path");
  const labels = picture.querySelector("g"), rows = [...explorer.querySelectorAll("tr[data-source]")];
  const show = (row) => {
    const data = row.dataset;
    name.textContent = row.cells[0].textContent;
    note.textContent = data.note;
    picture.setAttribute("aria-label", `${name.textContent} in source and target: ${data.note}`);
    source.setAttribute("d", data.source);
    target.setAttribute("d", data.target);
    labels.replaceChildren(...JSON.parse(data.labels).map(([x, text, anchor]) => {
      const label = document.createElementNS(picture.namespaceURI, "text");
      label.setAttribute("class", "ma-label");
      label.setAttribute("x", x);
      label.setAttribute("y", labels.dataset.y);
      label.setAttribute("text-anchor", anchor);
      label.textContent = text;
      return label;
    }));
  };
  const choose = (row) => {
    for (const other of rows) other.setAttribute("aria-current", other === row);
    show(row);
  };
  for (const row of rows) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...row.cells[0].childNodes);
    row.cells[0].append(button);
    row.addEventListener("focusin", () => choose(row));
    row.addEventListener("click", () => choose(row));
    row.addEventListener("pointerenter", () => show(row));
  }
  if (rows.length) {
    explorer.querySelector("tbody").addEventListener("pointerleave", () => show(explorer.querySelector("[aria-current=true]")));
    figure.hidden = false;
    choose(rows[0]);
  }
}
