// Entry point of the page, which shows the view that its URL selects.

import { addressOf, readAddress } from "./address.js";
import { message } from "./dom.js";
import { loadSite } from "./model/checkpoints.js";
import { classView } from "./views/class_view.js";
import { growingView } from "./views/growing_view.js";
import { pairsView } from "./views/pairs_view.js";
import { sentenceView } from "./views/sentence_view.js";

const VIEWS = { parse: sentenceView, pairs: pairsView, class: classView, growing: growingView };
const place = document.querySelector("#view"),
  about = document.querySelector("#about");
let latest = 0,
  site = null;

// `isResized`: keeps typed text in its fields, because the URL does not contain it.
async function render({ isResized = false } = {}) {
  const number = ++latest,
    isCurrent = () => number === latest;
  const fields = readAddress(),
    name = fields.view === "about" ? "about" : Object.hasOwn(VIEWS, fields.view) ? fields.view : "parse";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    link.href = addressOf({ view: link.dataset.view === "parse" ? "" : link.dataset.view, model: fields.model });
  }
  about.hidden = name !== "about";
  place.hidden = name === "about";
  if (name === "about") {
    document.title = "How it works · Trees that a language model found";
    return;
  }
  try {
    site ??= await loadSite();
    const { view, show, title } = await VIEWS[name](site, fields, isCurrent);
    if (!isCurrent()) return;
    const focused = document.activeElement?.id;
    const typed = isResized ? [...place.querySelectorAll("textarea, input[id]:not([type])")] : [];
    place.replaceChildren(view);
    for (const { id, value } of typed) document.getElementById(id).value = value;
    if (focused && focused !== "text") document.getElementById(focused)?.focus();
    if (focused === "text") restore(document.getElementById("text"));
    document.title = `${title} · Trees that a language model found`;
    await show();
    if (isCurrent() && document.activeElement === document.body) document.getElementById(focused)?.focus();
  } catch (error) {
    if (isCurrent()) place.replaceChildren(message(`The page could not be loaded: ${error.message}.`));
  }
}

function restore(field) {
  field?.focus();
  field?.setSelectionRange(field.value.length, field.value.length);
}

addEventListener("hashchange", render);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width || document.fullscreenElement) return;
  width = innerWidth;
  clearTimeout(render.timer);
  render.timer = setTimeout(() => {
    if (!place.querySelector(".editor")) render({ isResized: true }); // keeps drawn brackets
  }, 200);
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the URL selects the view
  document.querySelector("#main").focus();
});

await render();
if (site?.files && "serviceWorker" in navigator) navigator.serviceWorker.register(`offline.js?version=${site.version}`).catch(() => {});
document.documentElement.classList.add("ready");
