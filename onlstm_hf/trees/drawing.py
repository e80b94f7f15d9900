"""Drawing of trees, with syntactic distances below them, as text, SVG and PNG."""

from __future__ import annotations

import itertools
import math
import os
import re
import unicodedata
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ..utils.files import check_writable, written_file

if TYPE_CHECKING:
    from .induced_tree import InducedTree
    from .treebank import GoldTree

# Sizes in pixels. The contrast is at least 4.5:1 for text, and 3:1 for the layers' colours in both themes.
WORD_FONT, SMALL_FONT, HEADING_FONT = 15, 11, 17
MARGIN, WORD_GAP, AXIS_TITLE_WIDTH = 20, 18, 30
LEVEL_HEIGHT, LARGEST_TREE_HEIGHT = 28, 640
LAYER_HEADER_HEIGHT, LAYER_HEIGHT, CAPTION_HEIGHT = 44, 64, 26
FIGURE_ENDINGS = (".svg", ".png")
LARGEST_PNG_SIDE = 16_000
FONTS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'Noto Sans', 'DejaVu Sans', sans-serif"
LAYER_COLORS = ("#0072b2", "#d55e00", "#009e73", "#8250df", "#b5598f", "#8a6d00")
NOT_GOLD_COLOR = "#d55e00"
# Colours of the light and the dark theme.
THEME = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "muted": ("#59636e", "#9198a1"),
    "grid": ("#d8dee4", "#30363d"),
}
DARK_STYLE = "".join(
    f".onlstm-figure .{name}-{attribute}{{{attribute}:{dark}}}"
    for name, (_, dark) in THEME.items()
    for attribute in ("fill", "stroke")
)

# Control characters, lone surrogates, and characters that can reverse the direction of the text around them.
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def tree_to_text(tree: InducedTree | GoldTree, width: int = 120) -> str:
    """Draws a tree with box characters.

    A sentence that fits in `width` columns is one line under its tree:

         ┌──────┐
         │    ┌─┴──┐
        the  old  cat

    Longer sentences have one word per line. A constituent opens at `┬`, and `└` leads to its last part. If a tree is
    too deep for the width, a number between dots is the number of constituents around the word.
    """
    words = [printable(word) for word in tree.words]
    gap = 2
    if sum(_columns(word) + gap for word in words) - gap > width:
        return _outline(tree, words, width)

    centers, num_columns = [], 0
    for word in words:
        centers.append(num_columns + (_columns(word) - 1) // 2)
        num_columns += _columns(word) + gap
    constituents = list(_constituents_bottom_up(tree, centers))
    height = max((level for _, _, level, _ in constituents), default=0)
    rows = [[" "] * num_columns for _ in range(height)]
    for _, center, level, parts in constituents:
        row = rows[height - level]
        left, *middle, right = [int(part_center) for part_center, _ in parts]
        row[left : right + 1] = ["┌", *"─" * (right - left - 1), "┐"]
        for column in middle:
            row[column] = "┬"
        if level < height:
            row[int(center)] = "┼" if int(center) in middle else "┴"
        for part_center, part_level in parts:
            for lower_row in rows[height - level + 1 : height - part_level]:
                lower_row[int(part_center)] = "│"
    return "\n".join(["".join(row).rstrip() for row in rows] + [(" " * gap).join(words)])


def _outline(tree: InducedTree | GoldTree, words: Sequence[str], width: int) -> str:
    num_guides = max(1, 3 * width // 10)
    spans = tree.spans()[::-1]
    around: list[tuple[int, int]] = []  # constituents that contain the word, outermost first
    lines = []
    for index, word in enumerate(words):
        while around and around[-1][1] <= index:
            around.pop()
        while spans and spans[-1][0] == index:
            around.append(spans.pop())
        guides = []
        parts = [*around[1 : num_guides + 1], (index, index + 1)]
        for (start, end), (part_start, part_end) in zip(around[:num_guides], parts, strict=False):
            if start == index:
                guides.append("┬─")
            elif part_start == index:
                guides.append("├─" if part_end < end else "└─")
            else:
                guides.append("│ " if part_end < end else "  ")
        if len(around) > num_guides:
            guides.append(f"·{len(around)}· ")
        lines.append("".join(guides) + word)
    return "\n".join(lines)


def tree_to_svg(
    tree: InducedTree | GoldTree, distances: Sequence[float] | None = None, title: str | None = None
) -> str:
    """Draws a tree as a self-contained SVG document that follows the browser's light or dark theme.

    For screen readers it contains the title (by default the sentence) and the bracketed tree. `distances`, one number
    per word, are drawn below the words; for several layers use `distances_to_svg`.

    Raises:
        ValueError: if there is not one distance per word.
    """
    if distances is None:
        return distances_to_svg(tree, [], title=title)
    return distances_to_svg(tree, [distances], ["syntactic distance"], title)


def distances_to_svg(
    tree: InducedTree | GoldTree,
    distances_by_layer: Sequence[Sequence[float]],
    layer_names: Sequence[str] | None = None,
    title: str | None = None,
) -> str:
    """Draws the figure of the papers as SVG: a tree, and below each word its distance in each layer.

    Args:
        tree: the tree.
        distances_by_layer: numbers of shape `[num_layers, num_words]`, as sequences, NumPy array or tensor. Each layer
            has its own scale, as only the order of its distances matters. Infinite values and NaN get no point.
        layer_names: by default `layer 1`, `layer 2`, ...
        title: the heading.

    Raises:
        ValueError: if there is not one distance per word, or not one name per layer.
    """
    if layer_names is None:
        layer_names = [f"layer {number + 1}" for number in range(len(distances_by_layer))]
    if len(layer_names) != len(distances_by_layer):
        raise ValueError(f"expected one name per layer, got {len(layer_names)} for {len(distances_by_layer)} layers")
    layers = []
    for name, distances in zip(map(printable, layer_names), distances_by_layer, strict=True):
        if len(distances) != len(tree.words):
            raise ValueError(f"{name}: one distance per word, not {len(distances)} for {len(tree.words)} words")
        values = [float(value) for value in distances]
        layers.append((name, values, _axis_ticks(values)))

    left = MARGIN
    if layers:
        left += AXIS_TITLE_WIDTH + max(_text_width(label, SMALL_FONT) for _, _, ticks in layers for _, label in ticks)
    picture = _Picture(tree.words, title, left)
    picture.draw_tree(tree)
    if not tree.words:
        picture.text("no words", picture.left, picture.bottom, WORD_FONT, color="muted", anchor="start")
    for layer, color in zip(layers, itertools.cycle(LAYER_COLORS), strict=False):
        picture.draw_layer(*layer, color)
    description = [f"tree: {tree.to_bracket()}"]
    description += [f"{name}: {' '.join(f'{value:.3g}' for value in values)}" for name, values, _ in layers]
    return picture.to_svg(title or f"Tree of: {picture.sentence}", "; ".join(description))


def compared_trees_to_svg(
    gold: InducedTree | GoldTree, trees: Mapping[str, InducedTree | GoldTree], title: str | None = None
) -> str:
    """Draws a gold tree as SVG, and below it other trees of the same words; constituents that are not gold are dashed.

    `trees` are the other trees by name. The caption of each has its number of gold constituents without the whole
    sentence.

    Raises:
        ValueError: if a tree and the gold tree have different words.
    """
    gold_spans = set(gold.spans())
    picture = _Picture(gold.words, title)
    picture.draw_caption("gold")
    picture.draw_tree(gold)
    for name, tree in trees.items():
        if tuple(tree.words) != tuple(gold.words):
            raise ValueError(f"{name} and the gold tree have different words: {' '.join(tree.words)[:60]!r}")
        inner = set(tree.spans()) - {(0, len(gold.words))}
        picture.bottom += CAPTION_HEIGHT
        picture.draw_caption(f"{printable(name)}: {len(inner & gold_spans)} of {len(inner)} constituents are gold")
        picture.draw_tree(tree, gold_spans)
    description = [f"{name}: {tree.to_bracket()}" for name, tree in [("gold", gold), *trees.items()]]
    return picture.to_svg(title or f"Trees of: {picture.sentence}", "; ".join(description))


def is_right_to_left(words: Sequence[str]) -> bool:
    """Returns whether most letters belong to a right-to-left script, such as Arabic or Hebrew."""
    directions = [unicodedata.bidirectional(character) for word in words for character in word]
    return sum(direction in ("R", "AL") for direction in directions) > directions.count("L")


def save_figure(svg: str, path: str | os.PathLike) -> None:
    """Writes a picture to an `.svg` or `.png` file, as an atomic write.

    PNG needs `pip install resvg-py` (the extra `plot`) and uses the fonts of the machine.

    Raises:
        ValueError: for another file type, and for a picture too large for PNG.
        FileNotFoundError: if the folder does not exist.
        ImportError: for PNG without the extra.
    """
    path = Path(path)
    check_writable(path, endings=FIGURE_ENDINGS)
    content = svg.encode() if path.suffix.lower() == ".svg" else _svg_to_png(svg)
    with written_file(path, binary=True) as file:
        file.write(content)


def _svg_to_png(svg: str) -> bytes:
    """Renders a picture at twice its size, or at its own size if twice is too large."""
    try:
        import resvg_py
    except ImportError as error:
        raise ImportError("PNG needs resvg: pip install resvg-py; .svg works without it") from error
    attributes = ElementTree.fromstring(svg).attrib
    largest_side = max(int(attributes["width"]), int(attributes["height"]))
    if largest_side > LARGEST_PNG_SIDE:
        raise ValueError(f"a picture {largest_side} pixels wide or high is too large for PNG; save it as .svg")
    return resvg_py.svg_to_bytes(svg_string=svg, zoom=2 if 2 * largest_side <= LARGEST_PNG_SIDE else 1)


def _constituents_bottom_up(
    tree: InducedTree | GoldTree, word_centers: Sequence[float]
) -> Iterator[tuple[tuple[int, int], float, int, list[tuple[float, int]]]]:
    """Places each constituent above its parts, midway between the first and the last one.

    It yields the span, its centre along the words, its level above them, and the centre and level of each part.
    """
    placed: list[tuple[int, float, int]] = []  # first word, centre, level
    num_words_placed = 0
    for start, end in sorted(tree.spans(), key=lambda span: (span[1], -span[0])):
        placed += [(index, word_centers[index], 0) for index in range(num_words_placed, end)]
        num_words_placed = end
        parts = []
        while placed and placed[-1][0] >= start:
            parts.append(placed.pop()[1:])
        parts.reverse()
        center, level = (parts[0][0] + parts[-1][0]) / 2, 1 + max(part_level for _, part_level in parts)
        yield (start, end), center, level, parts
        placed.append((start, center, level))


def _axis_ticks(values: Sequence[float]) -> list[tuple[float, str]]:
    """Returns two to five round numbers that enclose the finite values, with labels."""
    finite_values = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite_values), max(finite_values)
    extent = max(high - low or abs(high) or 1.0, 1e-300)
    power_of_ten = 10.0 ** math.floor(math.log10(extent / 2))
    step = next(factor * power_of_ten for factor in (1, 2, 5, 10) if extent <= 3 * factor * power_of_ten)
    first = math.floor(low / step)
    last = max(math.ceil(high / step), first + 1)
    return [(number * step, f"{number * step:.10g}") for number in range(first, last + 1)]


class _Picture:
    """SVG document over columns of words, the first on the right in right-to-left scripts; it grows downwards.

    Attributes:
        words, sentence: printable words.
        left, right, centers: edges of all columns, and the centre of each.
        bottom: the lower edge of what was drawn.
    """

    def __init__(self, words: Sequence[str], title: str | None, left: float = MARGIN):
        self._shapes = ElementTree.Element("g")
        self._size = (0.0, 0.0)
        self.words = [printable(word) for word in words]
        self.sentence = " ".join(self.words) or "no words"
        widths = [max(_text_width(word, WORD_FONT), 12) + WORD_GAP for word in self.words]
        *starts, self.right = itertools.accumulate(widths, initial=left)
        self.left = left
        self.centers = [start + width / 2 for start, width in zip(starts, widths, strict=True)]
        if is_right_to_left(self.words):
            self.centers = [left + self.right - center for center in self.centers]
        self.bottom = MARGIN
        if title:
            self.text(printable(title), MARGIN, MARGIN + 14, HEADING_FONT, anchor="start", weight="bold")
            self.bottom += 40

    def draw_caption(self, caption: str) -> None:
        """Draws a line of small text."""
        self.text(caption, MARGIN, self.bottom + SMALL_FONT, SMALL_FONT, anchor="start", weight="bold")
        self.bottom += CAPTION_HEIGHT

    def draw_tree(self, tree: InducedTree | GoldTree, gold_spans: Collection[tuple[int, int]] | None = None) -> None:
        """Draws a tree above its words; constituents that are not gold are dashed."""
        constituents = list(_constituents_bottom_up(tree, self.centers))
        num_levels = max((level for _, _, level, _ in constituents), default=0)
        level_height = min(LEVEL_HEIGHT, max(6, LARGEST_TREE_HEIGHT / max(num_levels, 1)))
        radius = min(6, level_height / 2)
        self.bottom += num_levels * level_height
        for span, _, level, parts in constituents:
            y = self.bottom - level * level_height
            places = [(center, self.bottom - part_level * level_height) for center, part_level in parts]
            if gold_spans is None or span in gold_spans:
                self.path(_bracket_path(y, places, radius), "ink", width=1.5)
            else:
                self.path(_bracket_path(y, places, radius), NOT_GOLD_COLOR, width=1.5, dashes="5 3")
        self.bottom += WORD_FONT + 4
        for word, center in zip(self.words, self.centers, strict=True):
            self.text(word, center, self.bottom, WORD_FONT)

    def draw_layer(self, name: str, values: Sequence[float], ticks: Sequence[tuple[float, str]], color: str) -> None:
        """Draws a layer's name, its scale and a pin for each distance."""
        top = self.bottom + LAYER_HEADER_HEIGHT
        self.bottom = bottom = top + LAYER_HEIGHT
        lowest, highest = ticks[0][0], ticks[-1][0]

        def y_of(value: float) -> float:
            return bottom - (value - lowest) / (highest - lowest) * LAYER_HEIGHT

        self.circle(self.left + 4, top - 16, color)
        self.text(name, self.left + 14, top - 12, SMALL_FONT, anchor="start", weight="bold")
        self.text("distance", MARGIN, (top + bottom) / 2, SMALL_FONT, color="muted", rotation=-90)
        for value, label in ticks:
            y = y_of(value)
            self.path(f"M{self.left:.1f} {y:.1f}L{self.right:.1f} {y:.1f}", "grid")
            self.text(label, self.left - 8, y + 4, SMALL_FONT, color="muted", anchor="end")
        for word, x, value in zip(self.words, self.centers, values, strict=True):
            if math.isfinite(value):
                self.path(f"M{x:.1f} {bottom:.1f}L{x:.1f} {y_of(value):.1f}", color, width=2)
                self.circle(x, y_of(value), color, tooltip=f"{word}: {value:.4g}")
        self._reach(self.right, bottom)

    def text(
        self,
        text: str,
        x: float,
        y: float,
        size: int,
        color: str = "ink",
        anchor: str = "middle",
        weight: str = "normal",
        rotation: int = 0,
    ) -> None:
        attributes = {"x": f"{x:.1f}", "y": f"{y:.1f}", "font-size": str(size), "font-weight": weight}
        if rotation:
            attributes["transform"] = f"rotate({rotation} {x:.1f} {y:.1f})"
        else:
            self._reach(x + {"start": 1, "middle": 0.5, "end": 0}[anchor] * _text_width(text, size), y + size / 3)
        attributes |= {"text-anchor": anchor, **_paint("fill", color)}
        ElementTree.SubElement(self._shapes, "text", attributes).text = text

    def path(self, path: str, color: str, width: float = 1, dashes: str | None = None) -> None:
        attributes = {"d": path, "fill": "none", "stroke-width": str(width)}
        if dashes is not None:
            attributes["stroke-dasharray"] = dashes
        ElementTree.SubElement(self._shapes, "path", attributes | _paint("stroke", color))

    def circle(self, x: float, y: float, color: str, tooltip: str | None = None) -> None:
        attributes = {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "4", **_paint("fill", color)}
        shape = ElementTree.SubElement(self._shapes, "circle", attributes)
        if tooltip is not None:
            ElementTree.SubElement(shape, "title").text = tooltip

    def _reach(self, right: float, bottom: float) -> None:
        self._size = max(self._size[0], right), max(self._size[1], bottom)

    def to_svg(self, title: str, description: str) -> str:
        """Returns the document; screen readers read its title and description."""
        title, description = printable(title), printable(description)
        width, height = [str(math.ceil(edge + MARGIN)) for edge in self._size]
        # A notebook page can hold many pictures, so identifiers must be unique.
        name = f"onlstm-{zlib.crc32(f'{title} {description}'.encode()):08x}"
        frame = {"xmlns": "http://www.w3.org/2000/svg", "class": "onlstm-figure", "role": "img"}
        frame |= {"aria-labelledby": f"{name}-title {name}-description", "width": width, "height": height}
        frame |= {"viewBox": f"0 0 {width} {height}", "font-family": FONTS}
        svg = ElementTree.Element("svg", frame)
        ElementTree.SubElement(svg, "title", {"id": f"{name}-title"}).text = title
        ElementTree.SubElement(svg, "desc", {"id": f"{name}-description"}).text = description
        ElementTree.SubElement(svg, "style").text = f"@media (prefers-color-scheme:dark){{{DARK_STYLE}}}"
        ElementTree.SubElement(svg, "rect", {"width": width, "height": height, **_paint("fill", "paper")})
        svg.extend(self._shapes)
        return ElementTree.tostring(svg, encoding="unicode")


def _bracket_path(y: float, parts: Sequence[tuple[float, float]], radius: float) -> str:
    """Returns the SVG path of a constituent: a line at the height `y` with a leg down to each part."""
    (left, left_y), *middle, (right, right_y) = sorted(parts)
    path = (
        f"M{left:.1f} {left_y:.1f}V{y + radius:.1f}Q{left:.1f} {y:.1f} {left + radius:.1f} {y:.1f}"
        f"H{right - radius:.1f}Q{right:.1f} {y:.1f} {right:.1f} {y + radius:.1f}V{right_y:.1f}"
    )
    return path + "".join(f"M{x:.1f} {y:.1f}V{part_y:.1f}" for x, part_y in middle)


def _paint(attribute: str, color: str) -> dict[str, str]:
    """Returns the SVG attributes of a colour: a name in `THEME`, which follows the theme, or a fixed colour."""
    if color in THEME:
        return {attribute: THEME[color][0], "class": f"{color}-{attribute}"}
    return {attribute: color}


def printable(text: str) -> str:
    """Removes characters that a terminal or XML cannot show; marks a text without visible characters by `␣`."""
    shown = _INVISIBLE.sub("", re.sub(r"\s+", " ", text)).strip()
    return shown if _columns(shown) else f"␣{shown}"


def _columns(text: str) -> int:
    """Counts terminal columns: 0 for a combining character, 2 for an East Asian wide character or emoji."""
    shown = [character for character in text if unicodedata.category(character) not in ("Mn", "Me", "Cf")]
    return len(shown) + sum(unicodedata.east_asian_width(character) in "WF" for character in shown)


def _text_width(text: str, font_size: float) -> float:
    """Returns an upper estimate of the width of a text in common fonts, in pixels."""
    return font_size * sum(_character_width(character) for character in text)


def _character_width(character: str) -> float:
    if (columns := _columns(character)) != 1:
        return 0.65 * columns
    if character in "MWmw@%":
        return 1.0
    return 0.65 if character.isascii() and not character.isupper() else 0.8
