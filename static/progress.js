// Live progress of recordings by server-sent events. Without this file, or where the stream breaks,
// the page asks every second instead.
"use strict";

(() => {
  if (!window.EventSource) return;
  const boxes = [...document.querySelectorAll("[data-events]")];
  let source = null;

  const show = (box, now) => {
    const bar = box.querySelector("progress");
    bar.max = now.total || 1;
    bar.value = now.done;
    box.querySelector(".says").textContent = now.says;
  };

  // One stream at a time: a browser opens few connections to one host, and recordings run in turn.
  const follow = () => {
    const box = boxes.shift();
    if (!box) return;
    source = new EventSource(box.dataset.events);
    source.addEventListener("progress", (event) => show(box, JSON.parse(event.data)));
    source.addEventListener("end", (event) => {
      source.close();
      if ("reload" in box.dataset) return location.reload();
      const now = JSON.parse(event.data);
      if (now.id) show(box, now);
      follow();
    });
  };
  follow();

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.id === "progress" && source?.readyState === EventSource.OPEN) event.preventDefault();
  });
  addEventListener("pagehide", () => source?.close());
})();
