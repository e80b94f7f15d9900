// Export of figures as files.

import { shape } from "../dom.js";

const STYLES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-linejoin",
  "font-weight",
  "text-anchor",
  "opacity",
];

// Writes the figure as a standalone document with print colours.
export function svgDocument(svg) {
  svg.closest(".figure-box").classList.add("on-paper");
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")],
    copies = [copy, ...copy.querySelectorAll("*")];
  originals.forEach((original, index) => {
    const style = getComputedStyle(original);
    for (const name of STYLES) copies[index].setAttribute(name, style.getPropertyValue(name));
    copies[index].removeAttribute("class");
  });
  svg.closest(".figure-box").classList.remove("on-paper");
  copy.prepend(
    shape("title", {}, svg.getAttribute("aria-label")),
    shape("rect", { width: "100%", height: "100%", fill: "#ffffff" }),
  );
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
}

export async function pngOf(svg) {
  const image = new Image(),
    address = URL.createObjectURL(new Blob([svgDocument(svg)], { type: "image/svg+xml" }));
  try {
    image.src = address;
    await image.decode();
    const width = Number(svg.getAttribute("width")),
      height = Number(svg.getAttribute("height"));
    const zoom = Math.min(2, 16_000 / Math.max(width, height));
    const target = document.createElement("canvas");
    [target.width, target.height] = [width * zoom, height * zoom];
    target.getContext("2d").drawImage(image, 0, 0, target.width, target.height);
    return await new Promise((resolve) => target.toBlob(resolve, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}
