// Comforts only: every page works without this file. Elements are looked up when they are needed,
// because going back in history replaces them.
"use strict";

(() => {
  const element = (id) => document.getElementById(id);
  const on = (name, act) => document.addEventListener(name, act);
  const root = document.documentElement;

  const showTheme = (theme = root.dataset.theme ?? "system") => {
    element("theme").hidden = element("show-keys").hidden = false;
    element("theme").textContent = `${{ system: "◐", light: "○", dark: "●" }[theme]} ${theme}`;
    element("theme").setAttribute("aria-label", `Theme: ${theme}`);
  };
  const changeTheme = () => {
    const theme = { undefined: "light", light: "dark", dark: "system" }[root.dataset.theme];
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
    try {
      localStorage.setItem("theme", theme);
    } catch {} // storage is switched off: the choice lasts for one page
    showTheme();
  };

  // --- keys ---

  const beside = (strip, by) => {
    const current = document.querySelector(`.strip [id^="${strip}-"][aria-current]`);
    return current && element(`${strip}-${+current.id.split("-")[1] + by}`);
  };
  const keys = {
    j: () => element("next")?.click(),
    k: () => element("previous")?.click(),
    "[": () => beside("layer", -1)?.click(),
    "]": () => beside("layer", 1)?.click(),
    ",": () => beside("step", -1)?.click(),
    ".": () => beside("step", 1)?.click(),
    "/": () => (element("search")?.focus(), element("search")?.select()),
    "?": () => element("keys").showModal(),
  };
  const results = () => [...document.querySelectorAll("#live .results a")];
  const closeResults = () => {
    element("live").replaceChildren();
    element("found").textContent = "";
  };
  // Arrows walk through what was found; Enter opens the best of what is typed now.
  const searchKey = (event) => {
    const links = results();
    const at = links.indexOf(event.target);
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by && links.length) (links[Math.min(at + by, links.length - 1)] ?? element("search")).focus();
    else if (event.key === "Enter" && at < 0 && element("live").firstElementChild?.dataset.query === event.target.value) {
      links[0]?.click();
    } else return;
    event.preventDefault();
  };
  on("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const searching = event.target.closest("#search, #live");
    if (event.key === "Escape") {
      element("keys").close();
      if (searching) element("search").focus();
      closeResults();
    } else if (searching) searchKey(event);
    else if (Object.hasOwn(keys, event.key) && !event.target.closest("input, textarea, select, dialog")) {
      event.preventDefault();
      keys[event.key]();
    }
  });

  on("click", ({ target }) => {
    if (target.closest("#theme")) changeTheme();
    if (target.closest("#show-keys")) element("keys").showModal();
    if (!target.closest("#search-form")) closeResults();
  });

  // --- parts that are swapped ---

  const groups = () => [...document.querySelectorAll("nav.tree details")];
  let opened = [];
  on("htmx:beforeSwap", () => {
    opened = groups().filter((group) => group.open).map((group) => group.id);
  });
  on("htmx:afterSwap", ({ target }) => {
    for (const group of groups()) group.open ||= opened.includes(group.id);
    if (target.id !== "live") return;
    if (element("search").value.trim()) element("found").textContent = target.firstElementChild?.dataset.says ?? "";
    else closeResults();
  });
  // An error is a page of its own: go to it instead of leaving the reader where nothing happens.
  on("htmx:responseError", ({ detail }) => {
    if (detail.target?.id === "columns") location.assign(detail.pathInfo.finalRequestPath);
  });
  on("htmx:historyRestore", () => showTheme());
  showTheme();
})();
