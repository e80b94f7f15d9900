"""What README and docs/your-language.md say of other languages is what the results of the runs have."""

import pytest

from eval.report.by_task.languages import is_by_language, language_table
from eval.report.results_files import Run
from onlstm_hf.scoring.agreement import tree_agreement
from onlstm_hf.trees.tree_files import read_tree_file
from tests.helpers.pages import ROOT, figures, percent, read_json, text_of

LANGUAGES = {"Portuguese": "pt", "Spanish": "es", "Dutch": "nl", "Chinese": "zh"}
ONLSTM = ("layer 2 (--layer 1)", "layer 2 (--layer 1), no branching bias")
PRPN = ("induced trees", "induced trees, no branching bias")


def figures_of_systems() -> dict[str, dict[str, str]]:
    """The table of RESULTS.md: for each row its figure of each language."""
    files = sorted((ROOT / "eval" / "results").glob("parsing_*.json"))
    runs = [Run(number, path.name, read_json(path)) for number, path in enumerate(files)]
    header, rows = language_table([run for run in runs if is_by_language(run)])
    assert set(LANGUAGES.values()) == set(header[1:])
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


def table_in(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    section = (ROOT / page).read_text(encoding="utf-8").split(f"\n{heading}\n")[1].split("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")][2:]


def shown(suffix: str = "") -> list[str]:
    """The rows of models with one kind of token, in the order of the columns of the pages."""
    return [
        f"onlstm{suffix}, words unknown to it",
        *(f"onlstm{suffix}, {row}" for row in ONLSTM),
        *(f"prpn{suffix}, {row}" for row in PRPN),
    ]


def test_the_table_of_languages_has_the_figures_of_the_results():
    systems, rows = figures_of_systems(), table_in("README.md", "### Other languages")
    assert [language for language, *_ in rows] == list(LANGUAGES)
    for language, _, unknown_words, *cells in rows:
        expected = [
            systems[row][LANGUAGES[language]] for row in (*shown(), "right branching", "balanced", "upper bound")
        ]
        assert [unknown_words.removesuffix(" %"), *cells] == expected


def test_the_table_of_words_subwords_and_characters_has_the_figures_of_the_results():
    systems, rows = figures_of_systems(), table_in("docs/your-language.md", "### Words, subwords or characters?")
    assert [tokens for _, tokens, *_ in rows] == ["words", "subwords", "words", "subwords", "characters"]
    for language, tokens, unknown_words, *cells in rows:
        expected = [systems[row][LANGUAGES[language]] for row in shown("" if tokens == "words" else f"_{tokens}")]
        assert [unknown_words.removesuffix(" %"), *cells] == expected


@pytest.mark.parametrize("language", ["pt", "es", "nl", "zh"])
def test_the_released_model_of_a_language_is_the_seed_that_agrees_most_and_scores_as_its_run(language):
    card = read_json(ROOT / "model_cards" / f"prpn-{language}-small" / "results.json")
    kind = "_characters" if card["training"]["recipe"].get("subwords") else ""
    folder = ROOT / "eval" / "results" / "languages" / f"prpn_{language}{kind}"
    stored = {path.name.split(".")[0]: read_tree_file(path) for path in sorted(folder.glob("*.trees.jsonl.xz"))}
    released = f"seed_{card['training']['recipe']['seed']}"
    with_others = tree_agreement([distances.trees(None, "right") for distances in stored.values()]).sum(axis=1)
    assert released == list(stored)[with_others.argmax()]
    run = read_json(folder / f"{released}.json")
    assert card["perplexity"]["validation"] == pytest.approx(run["validation_perplexity"], rel=1e-3)
    for rule, row in (("right", "induced trees"), ("none", "induced trees, no branching bias")):
        measured = 100 * card["parsing"]["all"][row]["sentence_f1"]
        assert measured == pytest.approx(float(percent(run["sentence_f1_by_layer"]["all layers"][rule])), abs=0.15)


def test_figures_of_what_is_learned_in_other_languages_are_those_of_the_results():
    def recall(language: str, label: str, *names: str, rule: str = "") -> tuple[str, ...]:
        results = read_json(ROOT / "eval" / "results" / f"parsing_{language}{rule}.json")["summary"]["all"]
        return tuple(f"{100 * results[name]['label_recall'][label]['mean']:.0f}" for name in names)

    onlstm, prpn, right = "layer 2 (--layer 1)", "induced trees", "right branching"
    of_dutch = (*recall("nl", "np", prpn), *recall("nl", "pp", prpn))
    baseline = (*recall("nl", "np", right), *recall("nl", "pp", right))
    start = "PRPN finds {} % of the noun phrases and {} % of the prepositional phrases"
    assert figures("README.md", f"{start} (right branching: {{}} % and {{}} %)") == of_dutch + baseline
    page = "docs/your-language.md"
    assert figures(page, f"{start}; right branching finds {{}} % and {{}} %") == of_dutch + baseline
    unbiased = "by which it finds {} % of the prepositional phrases, and not {} %"
    assert figures(page, unbiased) == recall("nl", "pp", onlstm, rule="_no_bias") + recall("nl", "pp", onlstm)
    folder = ROOT / "eval" / "results" / "languages"
    seeds = [read_json(folder / "onlstm_pt" / f"seed_{seed}.json") for seed in (1111, 2222, 3333)]
    perplexities = tuple(f"{seed['validation_perplexity']:.2f}" for seed in seeds)
    assert figures(page, "though not in perplexity ({}, {} and {})") == perplexities
    second, third = (
        [percent(seed["sentence_f1_by_layer"][f"layer {layer}"]["right"]) for seed in seeds] for layer in (2, 3)
    )
    portuguese = (
        "the second layer has F1 {}, above right branching, and the third {}; with the second these are {} and {}, "
        "with the third {} and {}"
    )
    assert figures(page, portuguese) == (second[0], third[0], second[1], third[1], second[2], third[2])
    portuguese = (
        "one is above right branching with {}; the second layers of the others have {} and {}, and in one of these "
        "the third layer has the phrases ({})"
    )
    assert figures("README.md", portuguese) == (*second, third[1])
    f1 = [
        percent(read_json(path)["sentence_f1_by_layer"]["all layers"]["right"])
        for path in sorted((folder / "prpn_pt").glob("seed_????.json"))
    ]
    assert figures(page, "seeds lie closer together ({} to {}), below right branching") == (min(f1), max(f1))
    spanish = "more noun phrases than right branching ({} % by both models, {} %), but fewer clauses"
    assert figures(page, spanish) == recall("es", "sn", onlstm, right)
    assert recall("es", "sn", onlstm) == recall("es", "sn", prpn)
    assert figures(page, "fewer clauses ({} % and {} % against {} %)") == recall("es", "S", onlstm, prpn, right)
    chinese = "have {} % and {} % of the prepositional phrases (balanced: {} %)"
    assert figures(page, chinese) == recall("zh", "PP", onlstm, prpn, "balanced", rule="_no_bias")
    (most, left) = figures(page, "at most {} % of such verb phrases, of which left branching has {} %")
    found = [recall("zh", "VP‧的", onlstm, prpn, rule=rule) for rule in ("", "_no_bias")]
    assert max(int(share) for shares in found for share in shares) <= int(most)
    assert (left,) == recall("zh", "VP‧的", "left branching")
    characters = figures_of_systems()["onlstm_characters, layer 2 (--layer 1), no branching bias"]["zh"]
    assert f"instead of words comes to {characters.removesuffix(' (3)')} by it" in text_of("README.md")
