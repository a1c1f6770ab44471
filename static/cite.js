// Copy buttons. Without this file they are not shown, and the text can be selected.
"use strict";

(() => {
  document.documentElement.classList.add("copies");

  const copy = async (field) => {
    const text = field.value ?? field.textContent;
    try {
      await navigator.clipboard.writeText(text);
      return "Copied";
    } catch {
      // No clipboard here (plain http, or not allowed): leave the text selected, to be copied by hand.
      getSelection().selectAllChildren(field);
      field.select?.();
      return "Selected";
    }
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const field = document.getElementById(button.dataset.copy);
    const label = button.firstChild;
    const before = (button.dataset.label ??= label.data);
    label.data = await copy(field);
    setTimeout(() => { label.data = before; }, 2000);
  });
})();
