"""The figures of the page: the trees of a sentence over what was measured of its words, and a minimal pair.

They are larger than those of `trees.drawing`, whose parts they are made of, and have in them what the page's script
needs: `data-start` and `data-end` of each constituent, `data-index` of each word.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from ..trees.drawing import (
    CAPTION_HEIGHT,
    LARGEST_TREE_HEIGHT,
    LAYER_COLORS,
    LEVEL_HEIGHT,
    MARGIN,
    SMALL_FONT,
    WORD_FONT,
    Picture,
    WordMeasure,
    as_layer,
    axis_ticks,
    bracket_path,
    constituents_bottom_up,
    draw_layer,
    draw_scale,
    left_of_columns,
    text_width,
    visible,
    word_columns,
)
from ..trees.induced_tree import InducedTree
from ..trees.splits import Split
from ..trees.treebank import GoldTree
from .sentence_analysis import PairColumn, PairComparison

BOTH, ONLY_INDUCED, ONLY_GOLD, NEUTRAL = "in both trees", "only induced", "only gold", ""
# Colour, width and dashes of a constituent; the dashes tell them apart where the colours cannot be told.
STROKES = {
    NEUTRAL: ("ink", 1.5, None),
    BOTH: ("#009e73", 2.5, None),
    ONLY_INDUCED: ("#d55e00", 1.5, "6 3"),
    ONLY_GOLD: ("#8250df", 1.5, "2 3"),
}
SURPRISAL_COLOR, GRAMMATICAL_COLOR, UNGRAMMATICAL_COLOR = "#b5598f", "#0072b2", "#d55e00"
DARKEST_SHADE, BITS_OF_DARKEST = 0.5, 16
LEAST_BITS = 0.005  # less is the rounding of single precision


class TreePanel(NamedTuple):
    """A tree of a figure.

    Attributes:
        caption: what stands above it.
        tree: the tree; of a gold tree the labels are shown.
        others: the tree to compare it with: the gold tree, or for a gold tree the induced one.
        splits: the order in which the constituents were split, for a tree that can be shown step by step.
    """

    caption: str
    tree: InducedTree | GoldTree
    others: InducedTree | GoldTree | None = None
    splits: Mapping[tuple[int, int], Split] = {}

    def kind(self, span: tuple[int, int]) -> str:
        """Of a constituent: whether the tree to compare with has it, too. The whole sentence is in all trees."""
        if self.others is None or span == (0, len(self.tree.words)):
            return NEUTRAL
        if span in self.others.spans():
            return BOTH
        return ONLY_GOLD if isinstance(self.tree, GoldTree) else ONLY_INDUCED

    def label(self, span: tuple[int, int]) -> str:
        constituents = self.tree.constituents if isinstance(self.tree, GoldTree) else ()
        return " ".join(label for label, *place in constituents if label and tuple(place) == span)

    def to_bracket(self) -> str:
        return InducedTree.from_spans(self.tree.words, self.tree.spans()).to_bracket()


def sentence_figure(
    words: Sequence[str],
    panels: Sequence[TreePanel],
    distances: Mapping[str, Sequence[float]],
    surprisals: Sequence[float],
    is_unknown: Sequence[bool],
) -> str:
    """Draws the trees of a sentence one above the other, and distances and surprisals below, all in the same columns.

    Args:
        words: the words. In the last row they are shaded by their surprisals and underlined where unknown.
        panels: the trees of these words.
        distances: of the words, by name.
        surprisals: of the words, in bits.
        is_unknown: whether the model does not know them.

    Returns:
        The SVG document.
    """
    layers = [as_layer(WordMeasure(name, values), len(words)) for name, values in distances.items()]
    surprisal = as_layer(WordMeasure("surprisal", surprisals, "bits", from_zero=True), len(words))
    shown_words = [visible(word) for word in words]
    left = left_of_columns([*layers, surprisal])
    centers, right = word_columns(shown_words, left)
    picture, bottom = Picture(), float(MARGIN)
    for index, panel in enumerate(panels):
        picture.text(visible(panel.caption), MARGIN, bottom + SMALL_FONT, SMALL_FONT, anchor="start", weight="bold")
        bottom = _draw_tree(picture, panel, words, centers, bottom + CAPTION_HEIGHT, index) + WORD_FONT + 4
        if index < len(panels) - 1:
            _draw_words(picture, words, centers, bottom)
            bottom += CAPTION_HEIGHT
    bottom += 0 if panels else WORD_FONT
    _draw_words(picture, words, centers, bottom, surprisals, is_unknown)
    kinds = {panel.kind(span) for panel in panels for span in panel.tree.spans()}
    bottom = _draw_legend(picture, [kind for kind in STROKES if kind in kinds - {NEUTRAL}], any(is_unknown), bottom)
    for layer, color in zip(layers, cycle(LAYER_COLORS), strict=False):
        bottom = draw_layer(picture, layer, color, shown_words, centers, left, right, bottom)
    unknown = {index for index, unknown in enumerate(is_unknown) if unknown}
    draw_layer(picture, surprisal, SURPRISAL_COLOR, shown_words, centers, left, right, bottom, hollow=unknown)

    description = [f"{panel.caption}: {panel.to_bracket()}" for panel in panels]
    description += [f"{layer.name}: {layer.values_as_text()}" for layer in (*layers, surprisal)]
    return picture.to_svg(f"{'Tree of' if panels else 'Words'}: {' '.join(words)}", "; ".join(description))


def _draw_tree(
    picture: Picture, panel: TreePanel, words: Sequence[str], centers: Sequence[float], top: float, number: int
) -> float:
    """Draws a tree without its words and returns the height at which it ends."""
    constituents = list(constituents_bottom_up(panel.tree, centers))
    num_levels = max((constituent.level for _, constituent, _ in constituents), default=0)
    level_height = min(LEVEL_HEIGHT, max(6, LARGEST_TREE_HEIGHT / max(num_levels, 1)))
    bottom = top + num_levels * level_height
    for (start, end), constituent, parts in reversed(constituents):  # the innermost last, on top of the others
        y = bottom - constituent.level * level_height
        kind, label = panel.kind((start, end)), panel.label((start, end))
        data = {"panel": number, "start": start, "end": end}
        if split := panel.splits.get((start, end)):
            data |= {"step": split.step, "word": split.word, "distance": f"{panel.tree.distances[split.word]:.3g}"}
        phrase = " ".join(words[start:end])
        with picture.group("node", f"{label + ': ' if label else ''}{phrase}{', ' + kind if kind else ''}", **data):
            places = [(part.center, bottom - part.level * level_height) for part in parts]
            color, width, dashes = STROKES[kind]
            picture.path(bracket_path(y, places, min(6, level_height / 2)), color, width, dashes)
            if label:
                label_width = text_width(label, SMALL_FONT)
                x = constituent.center
                picture.rectangle(x - label_width / 2 - 2, y - 7, label_width + 4, 14, "paper")
                picture.text(label, x, y + 4, SMALL_FONT, weight="bold")
    return bottom


def _draw_words(
    picture: Picture,
    words: Sequence[str],
    centers: Sequence[float],
    baseline: float,
    surprisals: Sequence[float] | None = None,
    is_unknown: Sequence[bool] = (),
) -> None:
    for index, (word, center) in enumerate(zip(words, centers, strict=True)):
        shown = visible(word)
        tooltip = shown if surprisals is None else f"{shown}: {surprisals[index]:.1f} bits"
        with picture.group("word", tooltip, index=index, text=shown):
            width = max(text_width(shown, WORD_FONT), 12)
            if surprisals is not None:
                shade = DARKEST_SHADE * min(surprisals[index] / BITS_OF_DARKEST, 1)
                picture.rectangle(center - width / 2 - 3, baseline - 15, width + 6, 21, SURPRISAL_COLOR, shade)
            picture.text(shown, center, baseline, WORD_FONT)
            if is_unknown and is_unknown[index]:
                picture.path(f"M{center - width / 2:.1f} {baseline + 5}H{center + width / 2:.1f}", "ink", 1.5, "3 2")


def _draw_legend(picture: Picture, kinds: Sequence[str], has_unknown: bool, bottom: float) -> float:
    """Says below the words what the lines mean, and returns the height at which that ends."""
    entries = [(kind, STROKES[kind]) for kind in kinds]
    if has_unknown:
        entries.append(("unknown: read as <unk>, whose surprisal is shown", ("ink", 1.5, "3 2")))
    bottom += 8 if entries else 0
    for text, (color, width, dashes) in entries:
        bottom += 18
        picture.path(f"M{MARGIN} {bottom - 4}H{MARGIN + 28}", color, width, dashes)
        picture.text(text, MARGIN + 36, bottom, SMALL_FONT, anchor="start")
    return bottom


def pair_figure(pair: PairComparison, caption: str) -> str:
    """Draws the surprisals of a minimal pair on one scale, and their difference word by word.

    Words that stand in the same place are in one column. The column that decides is marked.

    Args:
        pair: the pair.
        caption: what stands above it, such as the name of the model.

    Returns:
        The SVG document.
    """
    columns = pair.columns()
    surprisals = [unit.surprisal for column in columns for unit in column if unit is not None]
    differences = [column.difference for column in columns]
    ticks, difference_ticks = axis_ticks([0, *surprisals]), axis_ticks([0, *differences])
    shown = [
        max((visible(unit.word) for unit in column if unit), key=lambda word: text_width(word, WORD_FONT))
        for column in columns
    ]
    longest_label = max((label for _, label in (*ticks, *difference_ticks)), key=len)
    left = left_of_columns([as_layer(WordMeasure("", [0]), 1)._replace(ticks=[(0, longest_label)])])
    centers, right = word_columns(shown, left)
    picture, bottom = Picture(), float(MARGIN)
    picture.text(visible(caption), MARGIN, bottom + SMALL_FONT, SMALL_FONT, anchor="start", color="muted")
    bottom += CAPTION_HEIGHT

    decisive = deciding_column(pair, columns)
    if decisive is not None:
        width = max(text_width(shown[decisive], WORD_FONT), 12) + 12
        x = centers[decisive] - width / 2
        picture.rectangle(x, bottom + 14, width, 2 * 44 + 2 * 108, UNGRAMMATICAL_COLOR, 0.14)
    for name, color, units in (
        ("grammatical", GRAMMATICAL_COLOR, [column.grammatical for column in columns]),
        ("ungrammatical", UNGRAMMATICAL_COLOR, [column.ungrammatical for column in columns]),
    ):
        _draw_mark(picture, color, MARGIN + 4, bottom + SMALL_FONT - 4)
        picture.text(name, MARGIN + 14, bottom + SMALL_FONT, SMALL_FONT, anchor="start", weight="bold")
        bottom += 34
        present = [(unit, center) for unit, center in zip(units, centers, strict=True) if unit is not None]
        _draw_words(
            picture,
            [unit.word for unit, _ in present],
            [center for _, center in present],
            bottom,
            [unit.surprisal for unit, _ in present],
            [unit.is_unknown for unit, _ in present],
        )
        bottom += 10
    has_unknown = any(unit.is_unknown for column in columns for unit in column if unit)
    bottom = _draw_legend(picture, [], has_unknown, bottom - 10)

    y_of = draw_scale(picture, "surprisal", "bits", ticks, left, right, bottom)
    bottom = y_of(0)
    for column, center in zip(columns, centers, strict=True):
        for unit, color, x in (
            (column.grammatical, GRAMMATICAL_COLOR, center - 6),
            (column.ungrammatical, UNGRAMMATICAL_COLOR, center + 6),
        ):
            if unit is None:
                continue
            y = y_of(unit.surprisal)
            with picture.group("pin", f"{visible(unit.word)}: {unit.surprisal:.2f} bits"):
                picture.line(x, x, bottom, y, color, width=2)
                _draw_mark(picture, color, x, y)
    name = "difference by word (above 0: for the grammatical)"
    y_of = draw_scale(picture, name, "bits", difference_ticks, left, right, bottom)
    for index, (column, center) in enumerate(zip(columns, centers, strict=True)):
        top, base = sorted((y_of(column.difference), y_of(0)))
        color = GRAMMATICAL_COLOR if column.difference > 0 else UNGRAMMATICAL_COLOR
        if abs(column.difference) < LEAST_BITS:
            continue
        with picture.group("pin", f"{column.difference:+.2f} bits"):
            picture.rectangle(center - 7, top, 14, max(base - top, 1), color)
        if index == decisive:
            lowest = y_of(difference_ticks[0][0])
            picture.text("decides", center, lowest + 16, SMALL_FONT, weight="bold")
    words = [" ".join(reading.words) for reading in (pair.grammatical, pair.ungrammatical)]
    description = "; ".join(
        f"{text}: {column.difference:+.2f} bits" for text, column in zip(shown, columns, strict=True)
    )
    return picture.to_svg(f"{words[0]} / {words[1]}", description)


def _draw_mark(picture: Picture, color: str, x: float, y: float) -> None:
    """A disc for the grammatical sentence, a square for the other."""
    if color == GRAMMATICAL_COLOR:
        picture.circle(x, y, 4, color)
    else:
        picture.rectangle(x - 4, y - 4, 8, 8, color)


def deciding_column(pair: PairComparison, columns: Sequence[PairColumn]) -> int | None:
    """The index of the column that does most for the sentence that is preferred; `None` for a tie."""
    if pair.difference == 0:
        return None
    sign = 1 if pair.difference > 0 else -1
    return max(range(len(columns)), key=lambda index: sign * columns[index].difference)
