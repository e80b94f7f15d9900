"""Released folders: weights, results and model card."""

import json
import re
import shlex
import shutil

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from onlstm_hf import PRPNConfig
from onlstm_hf.hub.export import export_checkpoint
from onlstm_hf.trees.treebank import PRESETS, GoldTree
from onlstm_hf.utils.tokenizer_check import tokenizer_fingerprint
from tests.helpers.folders import contents
from training import release, train_lm
from training.language_models.recipe import parse_recipe
from training.toy_english import generate_toy_treebank, write_toy_corpus

TINY = ["--model.embedding_size=8", "--model.hidden_size=12", "--max_steps", "3", "--mixed_precision", "no"]
RECIPES = {
    "onlstm": ["onlstm_ptb_small", "--model.chunk_size=4"],
    "prpn": ["prpn_ptb_small"],
    "rnn": ["lstm_ptb_small"],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_toy_corpus(folder / "corpus", num_train=200, num_validation=20, num_test=20)
    trees = generate_toy_treebank(20)
    (folder / "trees.mrg").write_text("\n".join(trees))
    (folder / "text.txt").write_text("\n".join(" ".join(GoldTree.from_bracket(tree).words) for tree in trees))
    return folder


@pytest.fixture(scope="module", params=list(RECIPES))
def run(request, data, tmp_path_factory, project_root):
    """Run of each model type: folder, options of release.py without gold trees, and model type."""
    name, *overrides = RECIPES[request.param]
    toy_english = str(project_root / "training" / "texts" / "toy_english.yaml")
    folder = tmp_path_factory.mktemp("run") / "run"
    recipe = str(project_root / "training" / "recipes" / f"{name}.yaml")
    corpus = ["--dataset", str(data / "corpus"), "--output_dir", str(folder)]
    train_lm.main([recipe, *corpus, *TINY, *overrides])
    text = str(data / "text.txt")
    options = ["--recipe", name, "--text", toy_english, "--validation_files", text, "--test_files", text]
    return folder, options, request.param


@pytest.fixture(scope="module")
def released(run, data):
    folder, options, model_type = run
    treebank = [] if model_type == "rnn" else ["--treebank", str(data / "trees.mrg")]
    results = release.main([str(folder), str(folder.parent / "tiny-model"), *options, *treebank])
    return folder.parent / "tiny-model", results, model_type


@pytest.fixture
def write(run, tmp_path):
    """Returns a function that releases the run with more options, and returns the results and the card."""
    folder, options, _ = run

    def release_with(*further, folder=folder, options=options):
        results = release.main([str(folder), str(tmp_path / "model"), *options, *map(str, further)])
        return results, (tmp_path / "model" / "README.md").read_text()

    return release_with


@pytest.fixture
def write_with_trees(run, write):
    """Like `write`, for models that induce trees."""
    if run[2] == "rnn":
        pytest.skip("the model induces no trees")
    return write


def test_a_released_model_has_half_precision_computes_in_float32_and_knows_its_tokenizer(run, released):
    folder, _, model_type = released
    assert {weight.dtype for weight in load_file(folder / "model.safetensors").values()} == {torch.float16}
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert (model.dtype, model.config.model_type) == (torch.float32, model_type)
    for checkpoint in (run[0] / "best", folder):
        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        assert config["tokenizer_fingerprint"] == tokenizer_fingerprint(tokenizer)
        assert tokenizer.padding_side == "left"  # needed for text generation


def test_weights_can_be_bfloat16_and_split_into_several_files(run, write, tmp_path):
    results, _ = write("--dtype", "bfloat16", "--max_shard_size", "5KB")
    assert results["command"].endswith("--dtype bfloat16 --max_shard_size 5KB")
    files = sorted((tmp_path / "model").glob("*.safetensors"))
    assert len(files) > 1
    for path in files:
        assert {weight.dtype for weight in load_file(path).values()} == {torch.bfloat16}
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    best = AutoModelForCausalLM.from_pretrained(run[0] / "best")
    assert model.dtype == torch.float32
    for name, weight in best.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight.bfloat16().float()), name
    export_checkpoint(str(tmp_path / "model"), str(tmp_path / "exported"))
    assert {path.name for path in files} <= {path.name for path in (tmp_path / "exported").iterdir()}


def test_the_card_has_a_table_of_stages_if_the_run_started_from_a_released_model(released, write, data, tmp_path):
    first, of_first, model_type = released
    assert "| stage |" not in (first / "README.md").read_text()
    name, *overrides = RECIPES[model_type]
    places = ["--dataset", str(data / "corpus"), "--output_dir", str(tmp_path / "second"), "--init_from", str(first)]
    averaging = ["--optimizer", "sgd", "--average_from_start", "--adam_beta1", "0.5"]
    train_lm.main([f"{release.RECIPES}/{name}.yaml", *places, *TINY, *overrides, "--max_steps", "2", *averaging])
    results, card = write(folder=tmp_path / "second")
    stages = results["training"]["stages"]
    assert [(stage["goes_on"], stage["updates"]) for stage in stages] == [(False, 3), (True, 2)]
    assert stages[0]["test"] == of_first["perplexity"]["test"]
    assert results["training"]["recipe"]["init_from"] == str(first)  # although the folder exists
    assert "2 updates in the last of 2 stages" in card and f"--init_from {first}" in card
    assert "--optimizer sgd" in card and "--average_from_start true" in card
    assert "--adam_" not in card  # SGD does not use these fields
    start = stages[0]
    assert f"| 1 |  | 3 | {start['seconds'] / 3600:.1f} | {start['validation']:.2f} | {start['test']:.2f} |" in card
    assert "\n| 2 |  | 2 | " in card and "\n\n## Limits" in card


def test_the_folder_has_no_code_and_an_export_adds_it(released, tmp_path):
    folder, results, model_type = released
    files = contents(folder)
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= files.keys()
    assert not [name for name in files if name.endswith(".py")]
    config = json.loads(files["config.json"])
    assert not config.keys() & {"auto_map", "custom_pipelines"}
    assert json.loads(files["results.json"]) == results

    exported = tmp_path / folder.name
    export_checkpoint(str(folder), str(exported))
    shared = contents(exported)
    assert f"modeling_{model_type}.py" in shared
    assert json.loads(shared.pop("config.json")).items() >= config.items()
    assert shared.items() >= files.items() - {("config.json", files["config.json"])}


def test_the_card_has_valid_metadata_the_measured_numbers_and_no_other_text(released):
    folder, results, model_type = released
    card = ModelCard.load(folder / "README.md")
    assert (card.data.license, card.data.library_name) == ("apache-2.0", "transformers")
    assert card.data.pipeline_tag == "text-generation"
    measured = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert measured["test perplexity"] == round(results["perplexity"]["test"], 2)
    assert f"| toy English test (one stream) | {results['perplexity']['test']:.2f} |" in card.text
    assert f"training/recipes/{RECIPES[model_type][0]}.yaml" in card.text
    if model_type != "rnn":
        row = {"onlstm": "layer 2", "prpn": "induced trees"}[model_type]
        sentence_f1 = results["parsing"]["all"][row]["sentence_f1"]
        assert f"| {row} | {100 * sentence_f1:.1f} |" in card.text
    assert card.data.language == "en" and not card.data.datasets
    assert {result.dataset_name for result in card.data.eval_results} <= {"Toy English", "Toy English, trees"}
    text = " ".join(card.text.split())
    assert "trained on toy English, sentences that onlstm_hf draws from a small grammar" in text
    assert "--train_files corpus/train.txt" in text and "words of this grammar" in text
    assert not re.search("Penn|PTB|ptb/|Wall Street|WSJ|newspaper|Published|company", text.replace("_ptb_", ""))


def test_the_training_command_has_the_overrides_of_the_recipe(released):
    _, results, model_type = released
    recipe = parse_recipe(shlex.split(results["training"]["command"])[3:])
    run = results["training"]["recipe"]
    for name, value in (recipe.fields("fixed") | {"max_steps": 3}).items():
        assert run[name] == value
    assert ("chunk_size 4" in results["training"]["command"]) == (model_type == "onlstm")


def test_the_example_of_the_card_runs(released, capsys):
    folder, _, _ = released
    block = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    exec(block.replace(f'"{folder.name}"', repr(str(folder))).replace("trust_remote_code=True", ""))
    assert "the" in capsys.readouterr().out


def test_a_card_without_gold_trees_has_no_parsing_scores_and_models_without_trees_refuse_them(
    run, write, data, tmp_path
):
    if run[2] == "rnn":
        with pytest.raises(ValueError, match="leave out --treebank"):
            write("--treebank", data / "trees.mrg")
        assert not (tmp_path / "model").exists()
        return
    results, text = write()
    assert "parsing" not in results and "Unsupervised parsing" not in text and "--treebank" not in text
    assert "| toy English test (one stream) |" in text and "model.parse(" in text


def test_the_card_states_unknown_words_and_trees_get_the_saved_preprocessing(run, write_with_trees, tmp_path):
    shutil.copytree(run[0], tmp_path / "run")
    config = json.loads((tmp_path / "run/best/config.json").read_text())
    config["treebank_preprocessing"] = PRESETS["universal"].to_dict()
    (tmp_path / "run/best/config.json").write_text(json.dumps(config))
    (tmp_path / "trees.mrg").write_text("((S (NP (N the) (N Wug)) (PUNCT ,) (V sees)))\n((x (PUNCT .)))\n")
    results, text = write_with_trees("--treebank", tmp_path / "trees.mrg", folder=tmp_path / "run")
    assert results["parsing"]["all"][next(iter(results["parsing"]["all"]))]["num_sentences"] == 1
    assert 0 <= results["unknown_words"]["test"] < 0.05
    assert results["unknown_words"]["treebank"] == pytest.approx(1 / 3)
    assert "| text | perplexity | unknown words |" in text and "33.3 % of their words are unknown." in text


def test_a_text_without_a_test_part_has_no_test_scores_on_the_card(run, write, tmp_path, project_root):
    *options, _, text = run[1]
    with pytest.raises(ValueError, match="--test_files goes with `test` of the text .* give both or neither"):
        write(options=options)
    descriptions = (project_root / "training" / "texts" / "toy_english.yaml").read_text()
    lines = descriptions.replace("  test: corpus/test.txt", "  license: cc-by-nc-4.0").partition("treebank:")[0]
    (tmp_path / "text.yaml").write_text(lines)
    options = [*options, "--text", str(tmp_path / "text.yaml")]
    with pytest.raises(ValueError, match="give both or neither"):
        write("--test_files", text, options=options)
    results, _ = write(options=options)
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert results["perplexity"].keys() == results["unknown_words"].keys() == {"validation"}
    assert "--test_files" not in card.text and "test (one stream)" not in card.text
    assert card.data.license == "cc-by-nc-4.0"
    assert [result.metric_name for result in card.data.eval_results] == ["validation perplexity"]


def test_a_treebank_without_short_sentences_has_no_column_for_them(write_with_trees, tmp_path):
    sentence = f"(np (N the) (N cat)) {'(adv (A now)) ' * 10}(vp (V sees) (np (N the) (N dog)))"
    (tmp_path / "trees.mrg").write_text(f"((cl {sentence}))\n")
    results, card = write_with_trees("--treebank", tmp_path / "trees.mrg")
    f1 = results["parsing"]["all"]["right branching"]["sentence_f1"]
    assert results["parsing"].keys() == {"all"} and f"| right branching | {100 * f1:.1f} |\n" in card
    assert "at most 10 words" not in card


def unread_results(name, **changes):
    """Results of an evaluation of two runs, with the fields that the card needs."""
    f1 = {"mean": 0.5, "standard_deviation": 0.0123, "min": 0.4913, "max": 0.5087, "interval": [0.48, 0.52]}
    summary = {"num_checkpoints": 2, "sentence_f1": f1}
    one = {"num_checkpoints": 1, "sentence_f1": f1 | {"mean": 0.6543, "standard_deviation": None}}
    results = {
        "sentences_read": "no",
        "protocol": {"branching_bias": "right"},
        "max_words": 10,
        "summary": {"all": {name: summary, "right branching": one}, "short": {name: summary, "right branching": one}},
    }
    return json.dumps(results | changes)


def test_the_card_first_states_held_out_scores_of_other_runs(run, write_with_trees, data, tmp_path):
    name = {"onlstm": "layer 2 (--layer 1)", "prpn": "induced trees"}[run[2]]
    unread = tmp_path / "unread.json"
    unread.write_text(unread_results(name))
    results, card = write_with_trees("--treebank", data / "trees.mrg", "--unread_results", unread)
    assert results["unread"].keys() == {"all", "short"} and results["unread"]["short"]["num_checkpoints"] == 2
    assert results["command"].endswith(" --unread_results eval/results/unread.json")
    stated = "F1 of 2 runs of this recipe that had not read these sentences: 50.0 ± 1.2 (49.1 to 50.9); 50.0"
    assert stated in card and card.index(stated) < card.index("| right branching |")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("induced trees", {"sentences_read": None}, "does not state that the sentences were not read"),
        ("induced trees", {"protocol": {"branching_bias": "none"}}, "another rule than the papers'"),
        ("layer 2 (--layer 1)", {}, "has no trees of induced trees"),
    ],
)
def test_results_without_held_out_scores_of_the_model_are_refused(tmp_path, name, changes, message):
    (tmp_path / "unread.json").write_text(unread_results(name, **changes))
    with pytest.raises(ValueError, match=message):
        release.read_held_out_scores(tmp_path / "unread.json", PRPNConfig())


def test_a_missing_recipe_and_a_folder_of_runs_are_refused(write, tmp_path):
    with pytest.raises(ValueError, match="no .*training/recipes/elsewhere.yaml"):
        write("--recipe", "elsewhere")
    (tmp_path / "seeds" / "seed_1").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=r"no finished run of train_lm.py: it has no results.json$"):
        write(folder=tmp_path / "seeds")
    (tmp_path / "seeds" / "seed_1" / "results.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="it holds the runs .*seeds/seed_1$"):
        write(folder=tmp_path / "seeds")


def test_trees_and_text_must_be_described(write, data, tmp_path, project_root):
    descriptions = (project_root / "training" / "texts" / "toy_english.yaml").read_text()
    (tmp_path / "text.yaml").write_text(descriptions.partition("treebank:")[0])
    options = ["--treebank", data / "trees.mrg", "--text", tmp_path / "text.yaml"]
    with pytest.raises(ValueError, match="does not describe the gold trees"):
        write(*options)
    (tmp_path / "text.yaml").write_text(descriptions.replace("spelling:", "orthography:"))
    with pytest.raises(ValueError, match="description of the text must have the fields name, .*orthography"):
        write(*options)


def test_results_have_no_private_paths(released, data):
    folder, _, _ = released
    for name in ("README.md", "results.json", "config.json"):
        for place in (folder.parent, data):
            assert str(place) not in (folder / name).read_text()
