// The figure of a sentence: trees over its words, and measured values below, in the same columns.

import { shape, visible } from "../dom.js";
import { key, keysOf, nest } from "../trees/spans.js";

export const FAMILY = getComputedStyle(document.body).fontFamily;
const SMALLEST = 16,
  LARGEST = 34,
  MARGIN = 12,
  MEASURE_HEIGHT = 84;
const canvas = document.createElement("canvas").getContext("2d");

export function textWidth(text, size, weight = "normal") {
  canvas.font = `${weight} ${size}px ${FAMILY}`;
  return canvas.measureText(text).width;
}

// Lays out the columns of words with the largest font that fits: { size, gap, edges, centers, width }. Edge i is the
// middle of the gap before word i.
export function columnsOf(words, width, { spacing = 1, left = 0 } = {}) {
  const shown = words.map(visible);
  const natural = (size) =>
    shown.reduce((sum, word) => sum + Math.max(textWidth(word, size), size) + gapOf(size, spacing), 0);
  const available = width - 2 * MARGIN - left;
  const fitting = Math.floor((SMALLEST * available) / Math.max(natural(SMALLEST), 1));
  const size = Math.min(Math.max(fitting, SMALLEST), Math.min(LARGEST, 18 + width / 120));
  const spare = Math.max(available - natural(size), 0) / Math.max(words.length, 1);
  const gap = gapOf(size, spacing) + Math.min(spare, size * 1.2); // a short sentence fills a wide window
  const edges = [MARGIN + left];
  for (const word of shown) edges.push(edges.at(-1) + Math.max(textWidth(word, size), size) + gap);
  const total = Math.max(edges.at(-1) + MARGIN, 200);
  const isMirrored = isRightToLeft(words);
  const flip = (x) => (isMirrored ? edges[0] + edges.at(-1) - x : x);
  return {
    words: shown,
    isMirrored,
    size,
    gap,
    width: total,
    left: MARGIN,
    right: total - MARGIN,
    axis: edges[0],
    edges: edges.map(flip),
    centers: shown.map((_, word) => flip((edges[word] + edges[word + 1]) / 2)),
  };
}

const gapOf = (size, spacing) => size * 1.1 * spacing;

export function isRightToLeft(words) {
  const text = words.join("");
  const count = (pattern) => (text.match(pattern) ?? []).length;
  return count(/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/g) > count(/\p{L}/gu) / 2;
}

// A picture that is filled from the top down; `bottom` is the current end.
export class Picture {
  constructor(columns, label) {
    this.columns = columns;
    this.bottom = MARGIN;
    this.root = shape("svg", { class: `figure ${columns.isMirrored ? "mirrored" : ""}`, role: "img", "aria-label": label, "font-family": FAMILY });
  }

  add(...children) {
    this.root.append(...children);
  }

  text(text, x, y, attributes = {}) {
    this.add(shape("text", { x, y, "font-size": this.columns.size, ...attributes }, text));
  }

  caption(text) {
    const { isMirrored, left, right } = this.columns;
    this.bottom += 18;
    const side = isMirrored ? { x: right, class: "caption end" } : { class: "caption" };
    this.text(text, left, this.bottom, { "font-size": 16, ...side });
    this.bottom += 10;
  }

  // Draws a tree whose lowest lines end above its words. `kindOf` returns the kind of a span, which distinguishes
  // constituents that are also in another tree.
  tree(tree, { kindOf = () => "plain", labels = new Map(), panel = 0 } = {}) {
    const { size, centers } = this.columns;
    const { nodes, height } = layOut(tree, centers);
    const step = Math.max(Math.min(size * 1.5, 520 / Math.max(height, 1)), 8);
    const bottom = this.bottom + height * step + 6;
    for (const { span, level, x, parts } of nodes) {
      const y = bottom - level * step;
      const names = labels.get(key(span)) ?? [];
      const places = parts.map((part) => ({ x: part.x, y: bottom - part.level * step }));
      const kind = kindOf(span),
        [start, end] = span;
      const group = shape(
        "g",
        {
          class: `node ${kind}`,
          "data-start": start,
          "data-end": end,
          "data-panel": panel,
        },
        shape("path", { d: bracketPath(y, places, Math.min(6, step / 2)) }),
      );
      if (names.length) {
        const label = names.join(" "),
          width = textWidth(label, 14, "bold");
        group.append(
          shape("rect", { x: x - width / 2 - 3, y: y - 9, width: width + 6, height: 18, class: "paper" }),
          shape("text", { x, y: y + 5, "font-size": 14, class: "label" }, label),
        );
      }
      this.add(group);
    }
    this.bottom = bottom + 4;
  }

  words({ isUnknown = [], surprisals = null } = {}) {
    const { size, words, centers } = this.columns;
    const baseline = this.bottom + size;
    words.forEach((word, index) => {
      const width = Math.max(textWidth(word, size), size * 0.8),
        x = centers[index];
      const group = shape("g", { class: isUnknown[index] ? "word unknown" : "word", "data-index": index });
      if (surprisals && surprisals[index] !== null) {
        const opacity = 0.45 * Math.min(surprisals[index] / 16, 1);
        group.append(
          shape("rect", {
            x: x - width / 2 - 4,
            y: baseline - size,
            width: width + 8,
            height: size * 1.4,
            rx: 4,
            class: "shade",
            "fill-opacity": opacity.toFixed(3),
          }),
        );
      }
      group.append(shape("text", { x, y: baseline, "font-size": size }, word));
      if (isUnknown[index]) {
        group.append(shape("path", { d: `M${x - width / 2} ${baseline + size * 0.3}h${width}`, class: "underline" }));
      }
      this.add(group);
    });
    this.bottom = baseline + size * 0.6;
  }

  // Draws one number per word on a scale that begins at 0: pins in the gaps before words, or bars below them.
  measure({ name, values, kind = "pins", unit = "", unused = -1 }) {
    const { centers, edges, axis, right, left } = this.columns;
    this.caption(name);
    const top = this.bottom + 6,
      base = top + MEASURE_HEIGHT - 26;
    const ticks = ticksOf(values),
      largest = ticks.at(-1);
    const y = (value) => base - ((base - top) * value) / largest;
    for (const tick of ticks) {
      this.add(shape("path", { d: `M${axis - 4} ${y(tick)}H${right}`, class: tick ? "grid" : "grid base" }));
      this.text(`${tick}${tick === largest && unit ? ` ${unit}` : ""}`, left, y(tick) + 5, {
        "font-size": 14,
        class: "tick",
      });
    }
    values.forEach((value, word) => {
      const x = kind === "pins" ? edges[word] : centers[word];
      if (!Number.isFinite(value)) return;
      this.add(
        shape(
          "g",
          { class: `pin ${kind} ${word === unused ? "unused" : ""}`, "data-word": word, "data-value": value },
          kind === "pins"
            ? [shape("path", { d: `M${x} ${base}V${y(value)}` }), shape("circle", { cx: x, cy: y(value), r: 5 })]
            : shape("rect", { x: x - 8, y: y(value), width: 16, height: Math.max(base - y(value), 1), rx: 2 }),
        ),
      );
    });
    this.bottom = base + 14;
  }

  // Draws bars up and down from 0, and highlights those at the critical place.
  difference(name, values, matter) {
    const { centers, axis, right, left } = this.columns;
    this.caption(name);
    const largest = ticksOf(values.map(Math.abs)).at(-1),
      half = MEASURE_HEIGHT * 0.6,
      zero = this.bottom + 6 + half;
    const y = (value) => zero - (half * value) / largest;
    for (const tick of [largest, 0, -largest]) {
      this.add(shape("path", { d: `M${axis - 4} ${y(tick)}H${right}`, class: tick ? "grid" : "grid base" }));
      this.text(String(tick).replace("-", "−"), left, y(tick) + 5, { "font-size": 14, class: "tick" });
    }
    values.forEach((value, index) =>
      this.add(
        shape("rect", {
          x: centers[index] - 9,
          y: Math.min(y(value), zero),
          width: 18,
          height: Math.max(Math.abs(y(value) - zero), 1),
          rx: 2,
          class: `difference ${value >= 0 ? "up" : "down"} ${matter[index] ? "matters" : ""}`,
        }),
      ),
    );
    this.bottom = zero + half + 14;
  }

  legend(kinds) {
    let x = this.columns.left;
    this.bottom += 6;
    for (const kind of kinds) {
      const width = 44 + textWidth(KINDS[kind], 15) + 20;
      if (x > this.columns.left && x + width > this.columns.width) {
        x = this.columns.left;
        this.bottom += 24;
      }
      this.add(
        shape(
          "g",
          { class: kind === "unknown" ? "word unknown" : `node ${kind}` },
          shape("path", { d: `M${x} ${this.bottom + 10}h34`, class: kind === "unknown" ? "underline" : null }),
          shape("text", { x: x + 44, y: this.bottom + 15, "font-size": 15, class: "legend" }, KINDS[kind]),
        ),
      );
      x += width;
    }
    if (kinds.length) this.bottom += 26;
  }

  finish() {
    const { width } = this.columns,
      height = Math.ceil(this.bottom + MARGIN);
    for (const [name, value] of Object.entries({
      width: Math.ceil(width),
      height,
      viewBox: `0 0 ${Math.ceil(width)} ${height}`,
    })) {
      this.root.setAttribute(name, value);
    }
    return this.root;
  }
}

export const KINDS = {
  both: "in both trees",
  one: "only in this tree",
  gold: "only in the gold tree",
  unknown: "unknown to the model",
};

// Returns a function for the kind of a span, compared with another tree.
export function kindsAgainst(other, mine = "one") {
  if (!other) return () => "plain";
  const spans = keysOf(other.spans),
    whole = key([0, other.words.length]);
  return (span) => (key(span) === whole ? "plain" : spans.has(key(span)) ? "both" : mine);
}

// Returns the constituents with their positions: { span, level, x, parts }, innermost last.
function layOut(tree, centers) {
  const nodes = [];
  const visit = ({ span, children }) => {
    if (!children.length) return { x: centers[span[0]], level: 0 };
    const parts = children.map(visit);
    const node = {
      span,
      parts,
      x: (parts[0].x + parts.at(-1).x) / 2,
      level: 1 + Math.max(...parts.map(({ level }) => level)),
    };
    nodes.push(node);
    return node;
  };
  const root = nest(tree);
  if (tree.words.length > 1) visit(root);
  return { nodes: nodes.reverse(), height: nodes[0]?.level ?? 0 };
}

// Returns the path of a line with rounded corners over the parts of a constituent, and down to each of them.
function bracketPath(y, places, radius) {
  const [left, ...middle] = [...places].sort((a, b) => a.x - b.x),
    right = middle.pop();
  const corner = Math.min(radius, (right.x - left.x) / 2);
  return (
    `M${left.x} ${left.y}V${y + corner}Q${left.x} ${y} ${left.x + corner} ${y}H${right.x - corner}` +
    `Q${right.x} ${y} ${right.x} ${y + corner}V${right.y}` +
    middle.map((part) => `M${part.x} ${y}V${part.y}`).join("")
  );
}

function ticksOf(values) {
  const largest = Math.max(...values.filter(Number.isFinite), 0) || 1;
  const power = 10 ** Math.floor(Math.log10(largest)),
    step = [1, 2, 2.5, 5, 10].find((size) => size * power >= largest) * power;
  return [0, Number((step / 2).toPrecision(3)), Number(step.toPrecision(3))];
}
