"""Averaged trees of several models, and distillation into a model."""

import json
import lzma
import math
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from onlstm_hf import build_word_tokenizer
from onlstm_hf.scoring.agreement import tree_agreement
from onlstm_hf.trees.averaging import average_trees
from onlstm_hf.trees.baselines import right_branching_tree
from onlstm_hf.trees.distances import distances_of_tree, tree_from_distances
from onlstm_hf.trees.rank_files import read_rank_file
from onlstm_hf.trees.tree_files import SentenceDistances, read_tree_file, write_tree_file
from onlstm_hf.utils.files import fingerprint
from tests.helpers.forked_processes import run_ranks
from tests.helpers.tiny_models import MODEL_TYPES
from tests.helpers.training_runs import (
    DROPOUTS,
    NO_DROPOUT,
    check_resumption,
    command,
    log_of,
    run_in_process,
    write_recipe,
    write_texts,
)
from training import average_trees as averaging_script
from training import release, train_lm
from training.distillation.target_trees import (
    HELD_OUT_EVERY,
    TargetTrees,
    WithTargetTrees,
    splits_of_tree,
    splitting_loss,
)
from training.language_models.text_batches import Batch, TextLines
from training.loop.task import ProcessShard

# The index of a word is its distance, so that trees can be predicted from words.
WORDS = ["the", "a", "every", "some", "cat", "dog", "bird", "sees", "likes", "runs", "sleeps", "and"]
RECIPE = {
    "model": {"embedding_size": 8, "hidden_size": 12, "num_hidden_layers": 2, "chunk_size": 2},
    **{"tree_batch_size": 6, "optimizer": "adamw", "learning_rate": 0.02, "target_trees": "averaged.jsonl.xz"},
}
AVERAGE = ["--files", "train.txt", "--output-dir", "averages"]  # options of the script
MEMBERS = [
    {"model": "seed_1", "model_type": "onlstm", "layer": 1, "weight": 1},
    {"model": "seed_2", "model_type": "onlstm", "layer": 1, "weight": 1},
    {"model": "seed_3", "model_type": "prpn", "layer": None, "weight": 1},
]


def write_targets(rule="right", **header):
    sentences = [tuple(line.split()) for line in Path("train.txt").read_text().splitlines()]
    trees = [tree_from_distances([*map(WORDS.index, words)], words, rule) for words in sentences]
    distances = [distances_of_tree(tree, rule) for tree in trees]
    known = {"averaged": MEMBERS, "ties": "random", "text": fingerprint(TextLines(["train.txt"]))}
    known |= {"command": "python training/average_trees.py seed_1 seed_2 seed_3 --files train.txt"} | header
    write_tree_file("averaged.jsonl.xz", SentenceDistances(sentences, {None: distances}, None, known, rule))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with `recipe.yaml`, texts, and target trees in `averaged.jsonl.xz`."""
    folder = tmp_path_factory.mktemp("project")
    write_texts(folder, WORDS, train=110, valid=12)
    write_recipe(folder / "recipe.yaml", **RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_targets()
    return folder


@pytest.fixture
def project(written, tmp_path, monkeypatch):
    """A copy of that folder, which is the working directory."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


train = partial(run_in_process, train_lm.main)


def ids_of(tokenizer):
    names = ("eos_token_id", "pad_token_id")
    return {"vocab_size": len(tokenizer), **{name: getattr(tokenizer, name) for name in names}}


def as_tensor(*sentences):
    """Splits of a batch as `splitting_loss` takes them."""
    return torch.tensor([(row, *split) for row, splits in enumerate(sentences) for split in splits]).view(-1, 5)


@given(st.lists(st.integers(0, 5), max_size=9), st.randoms(use_true_random=False), st.sampled_from(["right", "none"]))
def test_distances_yield_the_tree_if_and_only_if_every_split_is_correct(target, random, rule):
    distances = [*range(len(target))]
    random.shuffle(distances)
    words, splits = ["w"] * len(target), splits_of_tree(target, rule)
    found = [max(range(split.start, split.end), key=distances.__getitem__) for split in splits]
    all_right = all(split.right_start <= word < split.right_end for split, word in zip(splits, found, strict=True))
    trees = [tree_from_distances(own, words, rule).spans() for own in (target, distances)]
    assert all_right == (trees[0] == trees[1])
    assert all(split.right_end - split.right_start < split.end - split.start for split in splits) or rule == "none"


@pytest.mark.parametrize("rule", ["right", "none"])
def test_the_splitting_loss_and_its_gradient_match_the_definition(rule):
    generator = torch.Generator().manual_seed(0)
    distances = torch.rand(4, 7, generator=generator, dtype=torch.float64).requires_grad_()
    targets = [torch.randint(9, (length,), generator=generator).tolist() for length in (7, 5, 2, 7)]
    splits = [splits_of_tree(target, rule) for target in targets]

    def by_definition(row, splits, temperature):
        losses = []
        for start, end, right_start, right_end in splits:
            odds = [math.exp(row[word] / temperature) for word in range(start, end)]
            losses.append(-math.log(sum(odds[right_start - start : right_end - start]) / sum(odds)))
        return sum(losses) / len(losses) if losses else 0.0

    for temperature in (1.0, 0.3):
        expected = [by_definition(*row, temperature) for row in zip(distances.tolist(), splits, strict=True)]
        losses = splitting_loss(distances, as_tensor(*splits), temperature)
        assert losses.tolist() == pytest.approx(expected, abs=1e-12)
        torch.autograd.gradcheck(lambda d, t=temperature: splitting_loss(d, as_tensor(*splits), t), distances)
    assert expected[2] == 0


def test_only_the_tree_loss_is_computed_without_dropout(project):
    target_trees = TargetTrees.read("averaged.jsonl.xz", temperature=0.1)
    tokenizer = build_word_tokenizer(TextLines(["train.txt"]))
    model = MODEL_TYPES["onlstm"].make(**ids_of(tokenizer), **dict.fromkeys(DROPOUTS, 0.5)).train()
    source = WithTargetTrees(None, target_trees, tokenizer, ProcessShard(5), seed=0)
    losses = [target_trees.loss(model, source._batch(range(5))) for _ in range(2)]
    assert torch.equal(*losses) and losses[0].requires_grad
    assert model.training and all(module.training for module in model.modules())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "rule", "least_f1"), [("onlstm", "right", 0.85), ("onlstm", "none", 0.95), ("prpn", "right", 0.8)]
)
def test_a_model_learns_trees_and_word_prediction_together(project, model_type, rule, least_f1):
    write_targets(rule)
    options = ["--model_type", model_type, "--tree_batch_size", 16, "--max_steps", 150, "--eval_every_steps", 150]
    if model_type == "prpn":
        dropouts = dict.fromkeys(("input_dropout", "output_dropout", "recurrent_dropout"), 0)
        shape = {"embedding_size": 24, "hidden_size": 24, "num_hidden_layers": 1, "num_slots": 4, "lookback": 1}
    else:
        dropouts = dict.fromkeys(DROPOUTS, 0)
        shape = {"embedding_size": 32, "num_hidden_layers": 1, "chunk_size": 2, "parse_layer": 0}
    write_recipe(**RECIPE | {"model": shape | dropouts})
    results = train("run", *options, "--num_epochs", 99)
    first, *_, last = log_of("run", "tree_loss")
    assert last["tree_loss"] < 0.8 * first["tree_loss"] and last["loss"] < first["loss"]
    assert math.isfinite(results["validation_perplexity"])

    stored = TargetTrees.read("averaged.jsonl.xz", temperature=0.1).stored
    model, tokenizer = (auto.from_pretrained("run/best") for auto in (AutoModelForCausalLM, AutoTokenizer))
    for own_rule in {rule, "none"}:
        own = model.parse([list(words) for words in stored.sentences], tokenizer, branching_bias=own_rule)
        assert tree_agreement([own, stored.trees(branching_bias=rule)])[0, 1] > least_f1


def test_a_prpn_is_distilled_on_padded_sentences(project):
    """The text updates running statistics that the tree loss uses."""
    shape = {"embedding_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_slots": 4, "lookback": 1}
    write_recipe(**RECIPE | {"model": shape})
    train("run", "--model_type", "prpn", "--independent_sentences", "--max_steps", 2)
    assert len(log_of("run", "tree_loss")) == 2


def test_the_best_checkpoint_has_the_lowest_validation_loss_plus_weighted_held_out_tree_loss(project):
    train("run", "--tree_loss_weight", 3, "--num_epochs", 3)
    validations = log_of("run", "held_out_tree_loss")
    scores = [entry["validation_loss"] + 3 * entry["held_out_tree_loss"] for entry in validations]
    progress = json.loads(Path("run/last/training_state/run.json").read_text())["progress"]
    assert progress["validation_losses"] == pytest.approx(scores)
    assert progress["best_epoch"] == 1 + scores.index(min(scores))


@pytest.mark.parametrize(
    "options",
    [[], ["--gradient_accumulation_steps", "3", "--mixed_precision", "bf16"], ["--streaming"]],
    ids=["stream", "accumulation", "streaming"],
)
def test_a_resumed_run_equals_an_uninterrupted_one(project, monkeypatch, options):
    known = ["--log_every_steps", "3", "--save_every_steps", "2", "--max_steps", "9"]
    check_resumption(monkeypatch, train, *known, *options)


def test_a_run_cannot_resume_with_other_target_trees(project):
    train("run", "--max_steps", 1)
    write_targets(rule="none")
    with pytest.raises(ValueError, match="the target trees changed since run.last was written"):
        train("run", "--max_steps", 2, "--resume")


@pytest.mark.slow
def test_two_processes_equal_one_with_twice_the_batch(project):
    options = [*NO_DROPOUT, "--max_steps", 6]
    train("one", *options)
    run_ranks(2, train_lm.main, command("two", *options, "--batch_size", 2, "--tree_batch_size", 3))
    for name in ("loss", "tree_loss", "held_out_tree_loss"):
        values, expected = ([entry[name] for entry in log_of(folder, name)] for folder in ("two", "one"))
        assert values == pytest.approx(expected, rel=1e-4)


def test_tree_batches_differ_by_epoch_are_shared_by_processes_and_restart_anywhere():
    class Text:
        def num_batches(self, epoch):
            return 7

        def batches(self, epoch, start=0):
            yield from [Batch(None, None, None, False, 1.0, 1.0)] * (7 - start)

    sentences = [("the",) * (3 + index % 4) for index in range(20)]
    distances = [[0.0] * len(words) for words in sentences]
    target_trees = TargetTrees(SentenceDistances(sentences, {None: distances}, branching_bias="right"), 1.0)
    tokenizer = build_word_tokenizer(["the"])

    def numbers(shard, epoch=0, start=0):
        source = WithTargetTrees(Text(), target_trees, tokenizer, shard, seed=1)
        source._batch = lambda indices: [*indices]
        return [batch.trees for batch in source.batches(epoch, start)]

    alone = numbers(ProcessShard(6))
    first_pass = [number for batch in alone[:3] for number in batch]
    assert len(set(first_pass)) == 18 and alone[3:] == [*alone[:3], alone[0]]
    assert numbers(ProcessShard(6), start=4) == alone[4:]
    assert numbers(ProcessShard(6), epoch=1) != alone
    both = [numbers(ProcessShard(3, process, 2)) for process in (0, 1)]
    assert [first + second for first, second in zip(*both, strict=True)] == alone
    with pytest.raises(ValueError, match="20 target trees are too few for 21 rows: lower tree_batch_size"):
        numbers(ProcessShard(21))


def test_tree_batches_have_eos_first_tokens_of_words_and_splits(project):
    target_trees = TargetTrees.read("averaged.jsonl.xz", temperature=0.1)
    train_trees, held_out = target_trees.split()
    assert len(held_out.stored.sentences) == math.ceil(len(target_trees.stored.sentences) / HELD_OUT_EVERY)
    assert not set(held_out.stored.sentences) & set(train_trees.stored.sentences)
    assert min(map(len, target_trees.stored.sentences)) == 3
    tokenizer = build_word_tokenizer(TextLines(["train.txt"]), split="characters")
    sentences, distances = [("the", "cat", "runs"), ("the", "cat")], [[0.0, 0.0, 1.0], [0.0, 0.0]]
    two = TargetTrees(SentenceDistances(sentences, {None: distances}, branching_bias="none"), 1.0)
    batch = WithTargetTrees(None, two, tokenizer, ProcessShard(1), 0)._batch([1, 0])
    assert tokenizer.convert_ids_to_tokens(batch.input_ids[:, 0]) == [tokenizer.eos_token] * 2
    assert tokenizer.convert_ids_to_tokens(batch.input_ids[1, batch.first_tokens[1]]) == ["t", " ", " "]
    assert batch.splits.tolist() == [[1, 1, 3, 2, 3]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target_trees", "missing.xz"], "there is no file missing.xz"),
        (["--target_trees", "train.txt"], "train.txt is no file of trees"),
        (["--target_trees", "one_model.xz"], "one_model.xz has the distances of one model, not averaged trees"),
        (["--target_trees", "short.xz"], "short.xz has too few sentences of 3 words or more"),
        (["--tree_batch_size", "500"], "too few for 500 rows"),
        (["--model_type", "rnn"], 'models of type "rnn" induce no trees: leave out the target trees'),
    ],
)
def test_bad_target_trees_are_refused(project, options, message):
    sentences, distances = [("a", "cat")] * 5, [[1.0, 0.0]] * 5
    write_tree_file("one_model.xz", SentenceDistances(sentences, {None: distances}))
    known = {"averaged": MEMBERS}
    write_tree_file("short.xz", SentenceDistances(sentences, {None: distances}, None, known, "right"))
    if "rnn" in options:
        write_recipe(**RECIPE | {"model": {"embedding_size": 8, "hidden_size": 12}})
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        train("run", *options)
    assert not Path("run/best").exists()


@pytest.fixture
def members(project):
    """Folders of an untrained ON-LSTM and of a PRPN with the same vocabulary. Returns their tokenizer."""
    tokenizer = build_word_tokenizer(TextLines(["train.txt"]))
    for name in ("onlstm", "prpn"):
        MODEL_TYPES[name].make(**ids_of(tokenizer)).save_pretrained(name)
        tokenizer.save_pretrained(name)
    return tokenizer


def average(*options):
    assert averaging_script.main([*options, *AVERAGE]) == 0
    return read_tree_file("averages/averaged.jsonl.xz")


def trees_of_models(tokenizer, **options):
    lines = Path("train.txt").read_text().splitlines()
    models = [AutoModelForCausalLM.from_pretrained(name) for name in ("onlstm", "prpn")]
    return [model.parse(lines, tokenizer, **options) for model in models]


def averages_of(trees, weights=None, rule="right", ties="random"):
    generator = np.random.default_rng(0)
    return [average_trees(own, weights, rule, ties, generator) for own in zip(*trees, strict=True)]


def test_averages_are_built_from_the_trees_of_the_models(members, monkeypatch, capsys):
    trees = trees_of_models(members)
    stored = average("onlstm", "prpn")
    assert stored.trees() == averages_of(trees)
    averaged = [(member["model"], member["layer"]) for member in stored.model["averaged"]]
    assert averaged == [("onlstm", 1), ("prpn", None)]
    assert stored.model["text"] == fingerprint(TextLines(["train.txt"]))
    agreement = tree_agreement(trees)[0, 1]
    assert f"{100 * agreement:5.1f} mean agreement (F1) with the others: prpn" in capsys.readouterr().out
    # Cached distances of the models also yield the trees of the other rule.
    monkeypatch.setattr(averaging_script, "distances_of_layers", None)
    unbiased = trees_of_models(members, branching_bias="none")
    stored = average("onlstm", "prpn", "--branching-bias", "none", "--ties", "right")
    assert (stored.branching_bias, stored.model["ties"]) == ("none", "right")
    assert stored.trees() == averages_of(unbiased, rule="none", ties="right")


def test_rank_files_replace_their_models(members):
    expected = average("onlstm", "prpn")
    assert averaging_script.main(["onlstm", "--files", "train.txt", "--output-dir", "kept", "--only-ranks"]) == 0
    (kept,) = Path("kept").iterdir()
    for names in (["prpn", str(kept)], [str(kept), "prpn"]):
        stored = average(*names)
        assert [member["model"] for member in stored.model["averaged"]] == names
    assert stored.trees() == expected.trees() and stored.sentences == expected.sentences
    content = lzma.decompress(kept.read_bytes())
    assert not any(word.encode() in content for word in WORDS if len(word) > 3)


def test_punctuation_marks_are_cues_with_the_option(members, refusal):
    rule = {"split": "treebank", "drop_punctuation": True}
    build_word_tokenizer(TextLines(["train.txt"]), **rule).save_pretrained("onlstm")
    tokenizer = AutoTokenizer.from_pretrained("onlstm")
    lines = [line.replace(" the ", ", the ") for line in Path("train.txt").read_text().splitlines()]
    Path("train.txt").write_text("\n".join(lines) + "\n")
    model = AutoModelForCausalLM.from_pretrained("onlstm")
    stored = {}
    for punctuation in ("cue", "drop"):
        kept = ["--output-dir", "kept", "--only-ranks", "--punctuation", punctuation]
        assert averaging_script.main(["onlstm", "--files", "train.txt", *kept]) == 0
        expected = model.parse(lines, tokenizer, punctuation=punctuation)
        sentences = [tree.words for tree in expected]
        found = [read_rank_file(path, sentences).trees(model.parse_layer) for path in Path("kept").iterdir()]
        assert expected in found
        stored[punctuation] = expected
    assert len(found) == 2 and stored["cue"] != stored["drop"]  # each option has its own file

    # Rank files do not contain the words.
    files = [*map(str, Path("kept").iterdir())]
    assert "has the trees of another text" in refusal(averaging_script, *files, *AVERAGE)
    assert average(*files, "--tokenizer", "onlstm").sentences == sentences


def test_right_branching_trees_are_a_member_of_the_average(members, refusal):
    trees = trees_of_models(members)
    right = [right_branching_tree(tree.words) for tree in trees[0]]
    stored = average("onlstm", "prpn", "right-branching=1.5")
    assert stored.trees() == averages_of([*trees, right], [1, 1, 1.5]) != averages_of(trees)
    described = TargetTrees.read("averages/averaged.jsonl.xz", 1.0).describe()
    assert (described["num_models"], described["model_types"]) == (2, {"onlstm": 1, "prpn": 1})
    assert described["right_branching_share"] == pytest.approx(1.5 / 3.5)
    assert average("onlstm", "right-branching=9").trees() == right
    assert "only one was given" in refusal(averaging_script, "right-branching", *AVERAGE)


def test_right_branching_trees_are_split_before_marks_first(members, refusal):
    rule = {"split": "treebank", "drop_punctuation": True}
    build_word_tokenizer(TextLines(["train.txt"]), **rule).save_pretrained("onlstm")
    Path("train.txt").write_text("the cat sees, the dog runs, every bird sleeps\n")
    options = ["right-branching=9", "--punctuation", "cue"]
    (tree,) = average("onlstm", *options, "--branching-bias", "none").trees(branching_bias="none")
    assert tree.to_bracket() == "((the (cat sees)) ((the (dog runs)) (every (bird sleeps))))"
    (kept,) = Path("averages").glob("*.cue.ranks.xz")
    assert average(str(kept), *options, "--tokenizer", "onlstm").sentences == [tree.words]
    Path("train.txt").write_text(" ".join(tree.words))
    assert "give --tokenizer MODEL" in refusal(averaging_script, str(kept), *options, *AVERAGE)


def test_models_have_the_given_weights(members):
    trees = trees_of_models(members)
    stored = average("onlstm=0.5", "prpn=3")
    assert [member["weight"] for member in stored.model["averaged"]] == [0.5, 3]
    assert stored.trees() == averages_of(trees, [0.5, 3]) != averages_of(trees, [3, 0.5])


def test_rank_files_of_another_text_are_refused_as_input_and_overwritten_as_cache(members, refusal):
    average("onlstm", "prpn")
    (first, *_) = sorted(Path("averages").glob("*.ranks.xz"))
    shutil.copy(first, "kept.ranks.xz")
    with open("train.txt", "a") as file:
        file.write("the cat runs\n")
    assert "has the trees of another text" in refusal(averaging_script, "prpn", "kept.ranks.xz", *AVERAGE)
    assert average("onlstm", "prpn").sentences[-1] == ("the", "cat", "runs")


def test_training_reads_the_averaged_file_and_recognises_its_text(members):
    average("onlstm", "prpn")
    options = ["--target_trees", "averages/averaged.jsonl.xz", "--max_steps", 1]
    assert train("same", *options)["target_trees"]["of_training_text"]
    with open("train.txt", "a") as file:
        file.write("the cat runs\n")
    assert not train("other", *options)["target_trees"]["of_training_text"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prpn"], "an average needs several models, but only one was given"),
        (["onlstm", "letters"], "letters splits the text into other words than onlstm does"),
        (["onlstm", "missing"], "there is no checkpoint folder missing"),
    ],
)
def test_bad_input_of_the_average_is_refused_in_one_line(members, refusal, arguments, message):
    shutil.copytree("prpn", "letters")
    tokenizer = build_word_tokenizer(TextLines(["train.txt"]), split="characters", vocab_size=len(members))
    tokenizer.save_pretrained("letters")
    assert refusal(averaging_script, *arguments, *AVERAGE) == message
    assert not Path("averages/averaged.jsonl.xz").exists()


def test_the_card_describes_the_averaged_trees(project, project_root):
    write_targets(averaged=[*MEMBERS, {"model": "right-branching", "model_type": "right-branching", "weight": 1}])
    results = train("run", "--max_steps", 1)
    described = {"num_models": 3, "model_types": {"onlstm": 2, "prpn": 1}, "num_averaged": 3}
    described |= {"branching_bias": "right", "ties": "random", "of_training_text": True}
    described |= {"right_branching_share": 0.25}
    assert results["target_trees"].items() >= described.items()
    texts = ["--validation_files", "valid.txt", "--test_files", "valid.txt"]
    texts += ["--text", str(project_root / "training" / "texts" / "toy_english.yaml")]
    released = release.main(["run", "released", "--recipe", "onlstm_ptb_small_distilled", *texts])
    assert released["training"]["target_trees"] == results["target_trees"]
    assert "target_trees" not in released["training"]["recipe"]
    card = " ".join(Path("released/README.md").read_text().split())
    number = len(TargetTrees.read("averaged.jsonl.xz", 1.0).stored.sentences)
    assert f"3 models' trees of its training text (2 ON-LSTM, 1 PRPN; {number} sentences)" in card
    assert "right-branching trees, which had 25 % of the weight" in card
    assert "python training/average_trees.py seed_1 seed_2 seed_3" in card
