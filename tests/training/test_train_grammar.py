"""Grammar: sums over trees against enumeration, votes, trees, and training runs."""

import json
import math
import random
import subprocess
import sys
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from eval import evaluate_parsing
from onlstm_hf import build_word_tokenizer
from onlstm_hf.trees.distances import distances_of_tree, tree_from_distances
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.rank_files import read_rank_file, write_rank_file
from onlstm_hf.trees.tree_files import SentenceDistances, read_tree_file
from onlstm_hf.utils.programs import split_weights
from tests.helpers.forked_processes import run_ranks
from tests.helpers.training_runs import check_resumption, command, log_of, run_in_process
from training import average_trees, train_grammar
from training.grammar.inside import GrammarScores, log_partition, span_marginals
from training.grammar.model import NeuralGrammar, NeuralGrammarConfig
from training.grammar.sentences import (
    UNVOTED_SCORE,
    EncodedSentences,
    GrammarBatches,
    SpanVotes,
    groups_of_one_length,
    parse_sentences,
)
from training.loop.model_setup import changed_config
from training.loop.task import ProcessShard
from training.train_grammar import parse_grammar_recipe

SIZES = {"vocab_size": 7, "num_nonterminals": 2, "num_preterminals": 3, "hidden_size": 8}


@pytest.fixture
def grammar():
    torch.manual_seed(0)
    model = NeuralGrammar(NeuralGrammarConfig(**SIZES)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)  # rules that differ
    return model


@cache
def binary_trees(start, end):
    """Returns all binary trees over the words from `start` to `end`; a tree is a word index or a pair of trees."""
    if end - start == 1:
        return [start]
    return [
        pair
        for split in range(start + 1, end)
        for pair in product(binary_trees(start, split), binary_trees(split, end))
    ]


def spans_of(tree, start=0):
    """Returns the end of a tree that begins at `start`, and the spans of its constituents."""
    if isinstance(tree, int):
        return start + 1, set()
    middle, left = spans_of(tree[0], start)
    end, right = spans_of(tree[1], middle)
    return end, left | right | {(start, end)}


def tables(model):
    """Returns the rule probabilities by the model's definition, `rule[A][child]` with nonterminals first."""
    with torch.no_grad():
        root = model.root_rule(model.root).softmax(-1)[0]
        words = model.word_rule(model.preterminals).softmax(-1)
        left, right = (rule(model.nonterminals).softmax(-1) for rule in (model.left_rule, model.right_rule))
    return root.tolist(), words.tolist(), left.tolist(), right.tolist()


def tree_weight(tree, sentence, model):
    """Returns the sum over all labellings of a tree of the product of its rule probabilities."""
    root, words, left, right = tables(model)
    num_nonterminals = len(root)

    def labelled(node):
        """Returns the weights of all labellings of a node, each with the node's label as a child index."""
        if isinstance(node, int):
            return [(num_nonterminals + label, row[sentence[node]]) for label, row in enumerate(words)]
        pairs = list(product(labelled(node[0]), labelled(node[1])))
        return [
            (label, left[label][first] * right[label][second] * weight * other)
            for label in range(num_nonterminals)
            for (first, weight), (second, other) in pairs
        ]

    return sum(root[label] * weight for label, weight in labelled(tree))


@pytest.mark.parametrize("num_words", [2, 3, 4])
def test_the_inside_sum_matches_enumeration_of_trees_and_labels(grammar, num_words):
    generator = torch.Generator().manual_seed(num_words)
    input_ids = torch.randint(SIZES["vocab_size"], (2, num_words), generator=generator)
    scores = torch.randn(2, num_words + 1, num_words + 1, generator=generator, dtype=torch.float64)
    for span_scores in (None, scores):
        log_likelihood = grammar(input_ids, span_scores)
        marginals = grammar.span_marginals(input_ids, span_scores)
        for row, sentence in enumerate(input_ids.tolist()):
            weights = {}
            for tree in binary_trees(0, num_words):
                spans = frozenset(spans_of(tree)[1])
                gain = 0.0 if span_scores is None else sum(scores[row][span].item() for span in spans)
                weights[spans] = tree_weight(tree, sentence, grammar) * math.exp(gain)
            total = sum(weights.values())
            assert log_likelihood[row].item() == pytest.approx(math.log(total), rel=1e-12)
            for start, end in product(range(num_words + 1), repeat=2):
                expected = sum(weight for spans, weight in weights.items() if (start, end) in spans) / total
                assert marginals[row, start, end].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("num_words", [2, 3, 5])
@pytest.mark.parametrize("with_scores", [False, True])
def test_gradients_match_finite_differences(num_words, with_scores):
    def positive(*shape):
        return torch.rand(*shape, dtype=torch.float64).add(0.1).requires_grad_()

    words = positive(2, num_words, 3), positive(2, num_words, 3), torch.randn(2, num_words)
    spans = [positive(2, num_words + 1, num_words + 1)] if with_scores else []
    scores = GrammarScores(*words, positive(3, 3), positive(3, 3), positive(3), *spans)
    assert torch.autograd.gradcheck(lambda *values: log_partition(GrammarScores(*values)), tuple(scores))
    if with_scores:  # marginals are the derivatives by the scores of the spans
        derivatives = torch.autograd.grad(log_partition(scores).sum(), spans)[0]
        torch.testing.assert_close(span_marginals(scores), derivatives)


def test_long_sentences_of_rare_words_neither_underflow_nor_overflow():
    torch.manual_seed(0)
    model = NeuralGrammar(NeuralGrammarConfig(vocab_size=10_000, num_nonterminals=5, num_preterminals=6))
    with torch.no_grad():
        model.word_rule[-1].weight.mul_(20)
    input_ids = torch.randint(10_000, (2, 80))
    scores = torch.full((2, 81, 81), UNVOTED_SCORE)
    for start in range(79):
        scores[:, start, 80] = 5.0
    for span_scores in (None, scores):
        log_likelihood = model(input_ids, span_scores)
        exact = model.double()(input_ids, None if span_scores is None else span_scores.double())
        model.float()
        assert log_likelihood.tolist() == pytest.approx(exact.tolist(), rel=1e-5)
        log_likelihood.sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    marginals = model.span_marginals(input_ids, scores)
    assert marginals[:, range(79), 80].min() > 0.999


def test_the_tree_of_a_sentence_maximises_the_expected_spans(grammar):
    ids = [[1, 2, 3, 4, 5], [3, 1, 2], [5, 5], [1], []]
    sentences = EncodedSentences([tuple(map(str, own)) for own in ids], ids)
    trees = parse_sentences(grammar, sentences, batch_size=6)
    assert [tree.words for tree in trees] == sentences.words and all(tree.is_binary for tree in trees)
    for tree, own in zip(trees[:2], ids, strict=False):
        marginals = grammar.span_marginals(torch.tensor([own]))[0]
        candidates = [spans_of(candidate)[1] for candidate in binary_trees(0, len(own))]
        assert set(tree.spans()) == max(candidates, key=lambda spans: sum(marginals[span].item() for span in spans))


def test_a_word_that_contains_a_special_token_has_one_id():
    tokenizer = build_word_tokenizer(["the old cat sat"])
    sentences = EncodedSentences.from_lines(["the <unk>-old cat", "", "sat"], tokenizer)
    assert sentences.words == [("the", "<unk>-old", "cat"), ("sat",)]
    the, unknown, cat, sat = tokenizer.convert_tokens_to_ids(["the", "<unk>", "cat", "sat"])
    assert sentences.ids == [[the, unknown, cat], [sat]]


SENTENCES = [("a", "b", "c"), ("a", "b"), ("c", "b", "a")]


def write_votes(path, trees, sentences, rule=None):
    """Writes a rank file of binary trees."""
    distances = [distances_of_tree(tree, rule or "right") for tree in trees]
    write_rank_file(path, SentenceDistances(sentences, {None: distances}, branching_bias=rule))


def test_votes_are_sums_of_parser_weights_by_span(tmp_path):
    left, right = [(0, 2)], [(1, 3)]
    for name, spans in (("left", (left, [], left)), ("right", (right, [], left))):
        trees = [InducedTree.from_spans(words, own) for words, own in zip(SENTENCES, spans, strict=True)]
        write_votes(tmp_path / f"{name}.ranks.xz", trees, SENTENCES, "none")
    names = [f"{tmp_path}/left.ranks.xz", f"{tmp_path}/right.ranks.xz=3"]
    votes = SpanVotes.read(names, SENTENCES, "right", 0.5)
    scores = votes.scores([0, 2], 3)
    assert scores[0, 0, 2] == 0.5 and scores[0, 1, 3] == 1.5
    assert scores[1, 0, 2] == 2.0 and scores[1, 1, 3] == UNVOTED_SCORE
    assert scores[0, 0, 3] == scores[1, 0, 3] == 2.0
    assert votes.scores([1], 2)[0, 0, 2] == 2.0


def test_trees_with_unvoted_spans_get_no_weight(grammar):
    input_ids = torch.tensor([[1, 2, 3, 4]])
    one_tree = {(0, 4): 3.0, (1, 4): 1.0, (1, 3): 2.0}
    scores = SpanVotes([one_tree], 0.5).scores([0], 4).double()
    tree = (0, ((1, 2), 3))
    expected = math.log(tree_weight(tree, [1, 2, 3, 4], grammar)) + 0.5 * 6
    assert grammar(input_ids, scores).item() == pytest.approx(expected, abs=1e-9)


def test_votes_may_have_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a=b.xz").write_text("")
    assert split_weights(["a=b.xz", "c.xz=2.5"]) == [("a=b.xz", 1.0), ("c.xz", 2.5)]
    with pytest.raises(ValueError, match="named twice"):
        split_weights(["a=b.xz", "./a=b.xz=2"])
    for weight in ("0", "-1", "nan", "inf", "many", ""):
        with pytest.raises(ValueError, match="give NAME or NAME=WEIGHT"):
            split_weights([f"a=b.xz={weight}"])


def test_batches_have_one_length_and_are_shared_by_processes():
    ids = [[index] * (2 + index % 5) for index in range(43)]
    indices = list(range(3, 43))
    groups = groups_of_one_length(indices, ids, 12)
    assert sorted(index for group in groups for index in group) == indices
    for group in groups:
        assert len({len(ids[index]) for index in group}) == 1 and sum(len(ids[index]) for index in group) <= 12
    assert groups_of_one_length([0], [[1] * 30], 12) == [[0]]

    def rows(shard, epoch=0, start=0):
        batches = GrammarBatches(ids, indices, None, shard, seed=1).batches(epoch, start)
        return [(batch.input_ids[:, 0].tolist(), batch.num_items) for batch in batches]

    alone = rows(ProcessShard(12))
    assert sorted(index for own, _ in alone for index in own) == indices
    assert rows(ProcessShard(12), start=4) == alone[4:] and rows(ProcessShard(12), epoch=1) != alone
    both = [rows(ProcessShard(6, process, 2)) for process in (0, 1)]
    assert all(own and other for (own, _), (other, _) in zip(*both, strict=True))
    shared = [sorted(own + other) for (own, _), (other, _) in zip(*both, strict=True)]
    assert shared == [sorted(own) for own, _ in alone if len(own) > 1]
    with pytest.raises(ValueError, match="no sentence of a length"):
        GrammarBatches(ids, [], None, ProcessShard(12), seed=1)


WORDS = ["the", "a", "old", "cat", "dog", "sees", "likes", "sleeps"]
RECIPE = """
model: {num_nonterminals: 4, num_preterminals: 6, hidden_size: 16}
train_files: [train.txt]
batch_size: 40
eval_batch_size: 200
num_epochs: 2
log_every_steps: 1
num_threads: 1
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Working directory with a recipe, a text, trees of two parsers for it, and gold trees."""
    monkeypatch.chdir(tmp_path)
    generator = random.Random(0)

    def noun_phrase():
        adjective = [WORDS[2]] if generator.random() < 0.5 else []
        return [generator.choice(WORDS[:2]), *adjective, generator.choice(WORDS[3:5])]

    sentences, golds, trees = [], [], {"gold": [], "random": []}
    for _ in range(60):
        subject, verb = noun_phrase(), generator.choice(WORDS[5:])
        rest = [] if verb == "sleeps" else noun_phrase()
        words = (*subject, verb, *rest)
        first = len(subject)
        spans = [(0, first), (first, len(words)), (first + 1, len(words)), (1, first), (first + 2, len(words))]
        sentences.append(words)
        trees["gold"].append(InducedTree.from_spans(words, [span for span in spans if span[1] - span[0] > 1]))
        trees["random"].append(tree_from_distances([generator.random() for _ in words], words))
        rest_bracket = f" (NP {' '.join(f'(X {word})' for word in rest)})" if rest else ""
        golds.append(f"(S (NP {' '.join(f'(X {word})' for word in subject)}) (VP (X {verb}){rest_bracket}))")
    Path("recipe.yaml").write_text(RECIPE)
    Path("train.txt").write_text("\n" + "\n".join(map(" ".join, sentences)) + "\n")
    Path("gold.mrg").write_text("\n".join(golds[:20]) + "\n(S (X cat))\n")
    for name, own in trees.items():
        write_votes(f"{name}.ranks.xz", own, sentences, "none" if name == "gold" else None)
    return sentences


train = partial(run_in_process, train_grammar.main)


def test_a_run_writes_its_grammar_trees_and_results(project, capsys):
    results = train("run", "--gold_trees", "gold.mrg", "--votes", "gold.ranks.xz=2", "random.ranks.xz")
    assert json.loads(Path("run/results.json").read_text()) == results
    assert results["votes"] == [{"file": "gold.ranks.xz", "weight": 2.0}, {"file": "random.ranks.xz", "weight": 1.0}]
    assert results["updates"] > 0 and results["training_sentences"] + results["held_out_sentences"] == len(project)
    assert {"training text", "votes", "gold trees"} <= set(results["fingerprints"])

    text = read_rank_file("run/text.ranks.xz", project)
    assert all(tree.is_binary for tree in text.trees())
    stored = read_tree_file("run/trees.jsonl.xz")
    assert stored.trees(branching_bias="right") == stored.trees(branching_bias="none")
    assert stored.trees()[:20] == text.trees()[:20]
    # evaluate_parsing.py computes the same scores from the file of trees.
    for bias in ("right", "none"):
        options = ["--treebank", "gold.mrg", "--branching-bias", bias, "--output", "scores.json"]
        assert evaluate_parsing.main(["--trees-from", "run/trees.jsonl.xz", *options]) == 0
        scores = json.loads(Path("scores.json").read_text())["models"][0]["scores"]["all"]["induced trees"]
        assert scores["sentence_f1"] == pytest.approx(results["parsing"]["sentence_f1"])


def test_a_grammar_parses_another_text_for_the_average(project):
    train("run")
    own = read_rank_file("run/text.ranks.xz", project)
    Path("other.txt").write_text("\n".join(map(" ".join, project[:7])) + "\n")
    options = ["run/best", "--files", "other.txt", "--output-dir", "ranks", "--only-ranks"]
    assert average_trees.main(options) == 0
    (path,) = Path("ranks").iterdir()
    found = read_rank_file(path, project[:7])
    assert found.trees() == own.trees()[:7] and found.model["model_type"] == "neural_grammar"
    assert average_trees.main(options) == 0  # reads the existing file
    assert list(Path("ranks").iterdir()) == [path]


@pytest.mark.parametrize("name", ["grammar_ptb", "grammar_ptb_focused"])
def test_recipes_of_the_project_lack_only_the_data(project_root, name):
    path = project_root / "training" / "recipes" / f"{name}.yaml"
    recipe = parse_grammar_recipe([str(path), "--train_files", "a"])
    assert f"training/recipes/{name}.yaml" in path.read_text()
    model = NeuralGrammar(changed_config(NeuralGrammarConfig(), {}, recipe.model.model))
    assert (len(model.nonterminals), len(model.preterminals)) == (40, 80)


def test_a_grammar_learns_the_trees_of_its_votes(project):
    options = ["--max_steps", 60, "--num_epochs", 99, "--eval_every_steps", 60]
    train("run", "--votes", "gold.ranks.xz", *options)
    found = read_rank_file("run/text.ranks.xz", project).trees()
    gold = read_rank_file("gold.ranks.xz", project).trees()
    assert np.mean([tree == other for tree, other in zip(found, gold, strict=True)]) > 0.9


def test_training_lowers_the_loss_without_votes(project):
    train("run", "--max_steps", 40, "--num_epochs", 99, "--eval_every_steps", 20, "--parse_text", "False")
    losses = [entry["validation_loss"] for entry in log_of("run") if "validation_loss" in entry]
    first = next(entry["loss"] for entry in log_of("run") if "loss" in entry)
    assert losses[-1] < first < math.log(20)
    assert not Path("run/text.ranks.xz").exists()


@pytest.mark.parametrize("votes", [[], ["--votes", "random.ranks.xz"]], ids=["alone", "votes"])
def test_a_resumed_run_equals_an_uninterrupted_one(project, monkeypatch, votes):
    options = ["--save_every_steps", 2, "--max_steps", 9, "--num_epochs", 99, *votes]
    check_resumption(monkeypatch, train, *options)


def test_a_run_cannot_resume_with_other_votes(project):
    train("run", "--max_steps", 1, "--votes", "random.ranks.xz")
    with pytest.raises(ValueError, match="the votes changed since run.last was written"):
        train("run", "--max_steps", 2, "--resume", "--votes", "random.ranks.xz=2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--train_files", "missing.txt"], "there is no file missing.txt"),
        (["--gold_trees", "missing.mrg"], "there is no file missing.mrg"),
        (["--votes", "missing.xz"], "there is no file missing.xz"),
        (["--votes", "other.ranks.xz"], "has the trees of another text"),
        (["--min_length", "9", "--max_length", "8"], "max_length 8 is less than min_length 9"),
        (["--min_length", "30"], "no sentence of a length between min_length and max_length"),
        (["--model.num_nonterminals", "0"], "num_nonterminals, num_preterminals and hidden_size must be positive"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(project, options, message):
    write_rank_file("other.ranks.xz", SentenceDistances(SENTENCES, {None: [[1.0] * len(own) for own in SENTENCES]}))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train("run", *options)
    assert not Path("run/best").exists()


@pytest.mark.slow
def test_two_processes_equal_one_with_twice_the_batch(project):
    train("one", "--max_steps", 4)
    run_ranks(2, train_grammar.main, command("two", "--max_steps", 4, "--batch_size", 20))
    one, two = (log_of(name)[-1]["validation_loss"] for name in ("one", "two"))
    assert two == pytest.approx(one, rel=0.05)


def test_the_script_needs_no_library_of_the_train_extra():
    code = (
        "import sys\n"
        "for name in ('datasets', 'evaluate', 'nltk', 'pandas', 'scipy', 'sklearn'): sys.modules[name] = None\n"
        "from training import average_trees, train_grammar\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(train_grammar.__file__).parents[1])
