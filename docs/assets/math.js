// Formulas between dollars, drawn by the KaTeX beside this file: nothing is fetched.
document.addEventListener("DOMContentLoaded", () => {
  for (const node of document.querySelectorAll(".arithmatex")) {
    const source = node.textContent.trim();
    const display = source.startsWith("\\[");
    katex.render(source.slice(2, -2), node, { displayMode: display, throwOnError: false });
  }
});
