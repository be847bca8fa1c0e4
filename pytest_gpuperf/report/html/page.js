"use strict";
(() => {
  const tests = [...document.querySelectorAll("details.test")];
  const chips = [...document.querySelectorAll(".chip")];
  const words = document.getElementById("words");
  const open = document.getElementById("open");
  const shown = document.getElementById("shown");
  if (!words) return;

  // What the tests open to that are not written out: unpacked once somebody asks.

  const lazy = tests.filter((test) => "lazy" in test.dataset);
  let unpacking = null;

  async function unpack() {
    const text = document.getElementById("bodies").textContent;
    const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  async function packed() {
    unpacking ??= unpack();
    const all = await unpacking;
    return new Map(lazy.map((test, i) => [test, all[i]]));
  }

  async function fill(test) {
    if (!("lazy" in test.dataset)) return;
    const [body] = (await packed()).get(test);
    test.lastElementChild.innerHTML = body;
    delete test.dataset.lazy;
  }

  // Which tests are shown: all words are in a test, and its outcome is one of the chosen.

  const texts = new Map();

  function textOf(test) {
    if (!texts.has(test)) {
      const parts = [...test.querySelectorAll(".name, .badge, .place, .findings, .headline")];
      texts.set(test, parts.map((part) => part.textContent).join(" ").toLowerCase());
    }
    return texts.get(test);
  }

  async function readPacked() {
    for (const [test, [, words]] of await packed()) {
      texts.set(test, `${textOf(test)} ${words.toLowerCase()}`);
    }
  }

  const isChosen = (chip) => chip.getAttribute("aria-pressed") === "true";

  function show() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = new Set(chips.filter(isChosen).map((chip) => chip.dataset.word));
    let count = 0;
    for (const test of tests) {
      const fits = !chosen.size || chosen.has(test.dataset.word);
      test.hidden = !(fits && wanted.every((word) => textOf(test).includes(word)));
      count += test.hidden ? 0 : 1;
    }
    shown.textContent = count === tests.length ? "" : `${count} of ${tests.length} shown`;
    return count;
  }

  // The address says what is shown, so that it can be sent to somebody.

  function write() {
    const parts = new URLSearchParams();
    if (words.value) parts.set("q", words.value);
    const chosen = chips.filter(isChosen).map((chip) => chip.dataset.word);
    if (chosen.length) parts.set("outcome", chosen.join(","));
    history.replaceState(null, "", `#${parts}`);
  }

  function read() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const chosen = (parts.get("outcome") || "").split(",");
    words.value = parts.get("q") || "";
    for (const chip of chips) {
      chip.setAttribute("aria-pressed", String(chosen.includes(chip.dataset.word)));
    }
    if (show() === 1) tests.find((test) => !test.hidden).open = true;
    if (words.value && lazy.length && !unpacking) readPacked().then(read);
  }

  words.hidden = open.hidden = false;
  words.addEventListener("input", () => {
    show();
    write();
    if (lazy.length && !unpacking) readPacked().then(show);
  });
  for (const chip of chips) {
    chip.disabled = false;
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(!isChosen(chip)));
      show();
      write();
    });
  }
  open.addEventListener("click", () => {
    const visible = tests.filter((test) => !test.hidden);
    const closing = visible.every((test) => test.open);
    for (const test of visible) test.open = !closing;
  });

  // A print has the reasons of all that failed. It waits for nothing, so they are unpacked
  // before anybody prints.

  const failed = tests.filter((test) => test.querySelector(".badge.failed, .badge.died"));
  addEventListener("beforeprint", () => {
    for (const test of failed) test.open ||= !test.hidden;
  });
  (window.requestIdleCallback || setTimeout)(async () => {
    for (const test of failed) await fill(test);
  });
  addEventListener("hashchange", read);
  if (location.hash.length > 1) read();

  document.addEventListener("toggle", async (event) => {
    if (event.target.matches(".test") && event.target.open) await fill(event.target);
  }, true);
})();
