"use strict";

// Results without reloading. Everything works without this script: it fetches the page that the form or the Back
// button asks for, and takes the result, or all that is in it, from there.

let latest = new AbortController();

async function fetchPage(address) {
  latest.abort(); // the server drops what nobody waits for
  latest = new AbortController();
  const result = document.querySelector("#result");
  result.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(address, { signal: latest.signal });
    const body = await answer.text();
    result.removeAttribute("aria-busy");
    if (answer.headers.get("Content-Type").startsWith("text/html")) {
      return new DOMParser().parseFromString(body, "text/html");
    }
    showMessage(result, body);
  } catch (error) {
    if (error.name === "AbortError") return null;
    result.removeAttribute("aria-busy");
    showMessage(result, "The server does not answer.");
  }
  return null;
}

function showMessage(result, text) {
  const message = document.createElement("p");
  message.className = "message";
  message.setAttribute("role", "alert");
  message.textContent = text;
  result.replaceChildren(message);
}

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const address = `./?${new URLSearchParams(new FormData(event.target))}`;
  const page = await fetchPage(address);
  if (!page) return;
  document.querySelector("#result").replaceChildren(...page.querySelector("#result").childNodes);
  history.pushState(null, "", document.querySelector("#permalink")?.href ?? address);
});

addEventListener("popstate", async () => {
  const page = await fetchPage(location.href);
  if (page) document.querySelector("main").replaceWith(page.querySelector("main"));
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.shiftKey && event.target.matches("textarea")) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
});

// Another model may lack the layer that was chosen.
document.addEventListener("change", (event) => {
  if (event.target.name !== "model") return;
  for (const layer of event.target.form.elements.layer ?? []) layer.checked = layer.value === "";
});
