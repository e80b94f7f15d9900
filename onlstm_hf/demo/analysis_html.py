"""Analyses of sentences as HTML. Whatever a user typed stands in it as text, never as markup."""

from collections.abc import Iterable, Mapping
from html import escape

from ..trees.drawing import compared_trees_to_svg, figure_style, words_to_svg
from ..trees.induced_tree import InducedTree
from .sentence_analysis import PairComparison, SentenceAnalysis, SentenceReading

# Pictures take the theme of the page, which may differ from the one that the browser prefers.
STYLE = f"""\
{figure_style("light", "body:not(.dark)")}
{figure_style("dark", "body.dark")}
.analysis {{ margin-block: 1rem; }}
.analysis .figure {{ overflow-x: auto; margin-block: 0.5rem; border: 1px solid #8888; border-radius: 6px; }}
.analysis .figure svg {{ display: block; max-width: none; }}
.analysis h3 {{ font-size: 1.05rem; font-weight: 600; margin-block: 0.75rem 0.25rem; overflow-wrap: anywhere; }}
.analysis p, .analysis dl {{ margin-block: 0.4rem; overflow-wrap: anywhere; }}
.analysis code {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
.analysis a {{ text-decoration: underline; margin-inline-end: 0.75rem; }}
.analysis dt {{ font-weight: 600; }}
.analysis dd {{ margin-inline-start: 1rem; }}
.analysis.message {{ border-inline-start: 4px solid #d55e00; padding: 0.5rem 0.75rem; overflow-wrap: anywhere; }}
"""


def message_html(message: str) -> str:
    """What a user should know or mend, announced by screen readers."""
    return f'<div class="analysis message" role="alert">{escape(message)}</div>'


def link_html(address: str) -> str:
    """A link that shows a result again, for others to open."""
    return f'<div class="analysis"><a class="permalink" href="{escape(address)}">Link to this result</a></div>'


def analysis_html(analysis: SentenceAnalysis, downloads: Mapping[str, str]) -> str:
    """An analysis with its figure, its numbers, the gold tree beside it, and links to `downloads` by their names."""
    sentence = " ".join(analysis.reading.words)
    parts = [_figure(analysis.to_svg(), f"Figure of: {sentence}")]
    if analysis.tree is None:
        parts.append("<p>This model induces no trees; its surprisals are above.</p>")
    else:
        parts.append(f"<p><code>{escape(analysis.tree.to_bracket())}</code></p>")
    parts += [_gold_html(analysis), *_reading_html(analysis.reading), f"<p>Download: {_links(downloads)}</p>"]
    return _section(sentence, parts)


def pair_html(pair: PairComparison) -> str:
    """A comparison of two sentences: which one the model prefers, and their surprisals."""
    difference = f"{abs(pair.difference):.2f} nats"
    if pair.difference == 0:
        verdict = "A tie: to the model both are equally probable."
    elif pair.difference > 0:
        verdict = f"The model prefers the grammatical sentence: its log probability is {difference} higher."
    else:
        verdict = f"The model prefers the ungrammatical sentence: its log probability is {difference} higher."
    if pair.differs_in_unknown_word:
        verdict += " But a word in which the two differ is unknown to the model, so this says little."
    parts = [_section("Verdict", [f"<p>{verdict}</p>"])]
    for name, reading in (("Grammatical", pair.grammatical), ("Ungrammatical", pair.ungrammatical)):
        title = f"{name}: {' '.join(reading.words)}"
        picture = words_to_svg(reading.words, [reading.measure])
        parts.append(_section(title, [_figure(picture, title), *_reading_html(reading)]))
    return "".join(parts)


def _gold_html(analysis: SentenceAnalysis) -> str:
    """The gold tree, the scores against it, and the constituents that agree and disagree."""
    scores = analysis.scores()
    if scores is None:
        return ""
    words, tree = analysis.reading.words, InducedTree.from_spans(analysis.gold.words, analysis.gold.spans())
    whole_sentence = {(0, len(words))}
    induced, gold = set(analysis.tree.spans()) - whole_sentence, set(tree.spans()) - whole_sentence
    constituents = {"In both": induced & gold, "Only induced": induced - gold, "Only gold": gold - induced}
    lists = "".join(f"<dt>{name}</dt><dd>{_phrases(words, spans)}</dd>" for name, spans in constituents.items())
    figures = {
        "F1": scores.sentence_f1,
        "precision": scores.sentence_precision,
        "recall": scores.sentence_recall,
    }
    numbers = ", ".join(f"{name} <b>{100 * value:.1f}</b>" for name, value in figures.items())
    rule = "the whole sentence does not count, as in the papers"
    picture = _figure(compared_trees_to_svg(tree, {"induced": analysis.tree}), "Gold and induced tree")
    return f"<h3>Gold tree</h3>{picture}<p>Against it: {numbers} ({rule}).</p><dl>{lists}</dl>"


def _reading_html(reading: SentenceReading) -> list[str]:
    total = f"{reading.log_probability:.2f} (natural logarithm)"
    parts = [f"<p>Log probability {total}. The end of the sentence: {reading.end_surprisal:.1f} bits.</p>"]
    if reading.unknown_words:
        words = ", ".join(f"<b>{escape(word)}</b>" for word in dict.fromkeys(reading.unknown_words))
        parts.append(f"<p>Unknown to this model, which reads an unknown word instead: {words}.</p>")
    return parts


def _phrases(words: tuple[str, ...], spans: Iterable[tuple[int, int]]) -> str:
    phrases = [" ".join(words[start:end]) for start, end in sorted(spans)]
    return " · ".join(f"<span>{escape(phrase)}</span>" for phrase in phrases) or "none"


def _section(title: str, parts: Iterable[str]) -> str:
    return f'<section class="analysis"><h3>{escape(title)}</h3>{"".join(parts)}</section>'


def _figure(svg: str, name: str) -> str:
    """A picture that is scrolled where it is too wide, also by keyboard."""
    return f'<div class="figure" role="region" tabindex="0" aria-label="{escape(name)}">{svg}</div>'


def _links(addresses: Mapping[str, str]) -> str:
    return " ".join(f'<a href="{escape(address)}" download>{name}</a>' for name, address in addresses.items())
