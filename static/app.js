// Comforts only: every page works without this file. Elements are looked up when they are needed,
// because going back in history replaces them.
"use strict";

(() => {
  const element = (id) => document.getElementById(id);
  const closeResults = () => element("live")?.replaceChildren();

  // "/" goes to the search box, Escape closes its results.
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      element("search").focus();
    }
    if (event.key === "Escape") closeResults();
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest("#search-form")) closeResults();
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.id === "live" && !element("search").value.trim()) closeResults();
  });

  // Groups of the hierarchy that the reader has opened stay open when a page is swapped.
  const groups = () => document.querySelectorAll("nav.tree details");
  let opened = new Set();
  document.addEventListener("htmx:beforeSwap", () => {
    opened = new Set([...groups()].filter((group) => group.open).map((group) => group.id));
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const group of groups()) if (opened.has(group.id)) group.open = true;
  });

  // An error is a page of its own: go to it instead of leaving the reader where nothing happens.
  document.addEventListener("htmx:responseError", (event) => {
    if (event.detail.target?.id === "columns") location.assign(event.detail.pathInfo.finalRequestPath);
  });
})();
