// Helpers for elements of the page. Text is always inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-")) node.setAttribute(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function table(caption, columns, rows, attributes = {}) {
  const head = element(
    "tr",
    {},
    columns.map((column) => element("th", { scope: "col" }, column)),
  );
  const body = rows.map((row) =>
    element(
      "tr",
      {},
      row.map((cell, index) =>
        index ? element("td", { dir: "auto" }, cell) : element("th", { scope: "row", dir: "auto" }, cell),
      ),
    ),
  );
  return element(
    "div",
    { class: "scroll", role: "group", tabindex: "0", "aria-label": caption },
    element(
      "table",
      attributes,
      element("caption", { class: "hidden" }, caption),
      element("thead", {}, head),
      element("tbody", {}, body),
    ),
  );
}

export function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}

export function choice(label, options, value, onchange, attributes = {}) {
  const select = element(
    "select",
    { onchange: (event) => onchange(event.target.value), ...attributes },
    options.map(([name, text]) => element("option", { value: name, selected: String(name) === String(value) }, text)),
  );
  return element("label", { class: "choice" }, element("span", {}, label), select);
}

export function announce(text) {
  document.querySelector("#announcement").textContent = text;
}

export function message(text) {
  return element("p", { class: "message", role: "alert" }, text);
}

// Offers a file for download.
export function save(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// Replaces invisible characters, and those that change the text direction, with a visible symbol.
export const visible = (text) =>
  text.replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ud800-\udfff]/gu, "\ufffd") || "\ufffd";
