// Before anything is painted: the theme that the reader chose. Without a choice the system's is followed.
"use strict";

try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is switched off: the choice lasts for one page.
}
