"use strict";
// Light, dark, or as the system is set; remembered where the browser allows it.
(() => {
  const root = document.documentElement;
  const button = /** @type {HTMLElement} */ (document.getElementById("theme"));
  const order = ["system", "light", "dark"];
  let theme = "system";
  try { theme = order.find((name) => name === localStorage.getItem("enteron-theme")) ?? "system"; } catch { /* storage is not allowed: not remembered */ }
  const apply = () => {
    if (theme === "system") root.removeAttribute("data-theme"); else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    document.dispatchEvent(new Event("themechange"));
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = order[(order.indexOf(theme) + 1) % order.length];
    try { localStorage.setItem("enteron-theme", theme); } catch { /* storage is not allowed: not remembered */ }
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  const print = /** @type {HTMLElement} */ (document.getElementById("print-page"));
  print.hidden = false;
  print.addEventListener("click", () => window.print());
  apply();
})();
