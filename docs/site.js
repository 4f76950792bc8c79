// On a phone the keys in tables break after dots and underscores.
document$.subscribe(() => {
  for (const code of document.querySelectorAll("td:first-child > code")) {
    code.innerHTML = code.innerHTML.replace(/[._]/g, "$&<wbr>");
  }
  // There a row is a card, and its cells bear the names of their columns.
  for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
    const names = [...table.querySelectorAll("thead th")].map((name) => name.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      if (names.length > 2) [...row.cells].forEach((cell, i) => cell.setAttribute("data-column", names[i] ?? ""));
    }
  }
});

// A field above the tables of keys that filters their rows: words match the name or the meaning.
document$.subscribe(() => {
  const tables = [...document.querySelectorAll("details table")];
  if (tables.length < 5) return;
  const field = Object.assign(document.createElement("input"), {
    type: "search", className: "filter", placeholder: "Filter the keys: name or meaning",
  });
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const table of tables) {
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
        shown += !row.hidden;
      }
      table.closest("details").open = words.length > 0 && shown > 0;
      table.closest("details").hidden = !shown;
    }
  });
  tables[0].closest("details").before(field);
});
