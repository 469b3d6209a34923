// A field above each table in a `.filtered` container: only rows with all of its words stay.
document.addEventListener("DOMContentLoaded", () => {
  for (const container of document.querySelectorAll(".filtered")) {
    const field = Object.assign(document.createElement("input"), {
      type: "search", placeholder: "Words to look for", className: "filter",
    });
    field.setAttribute("aria-label", "Filter the table");
    const rows = [...container.querySelectorAll("tbody tr")];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      rows.forEach((row, k) => { row.hidden = !words.every((word) => texts[k].includes(word)); });
    });
    container.prepend(field);
  }
});
