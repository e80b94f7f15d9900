"""Recipes from a YAML file and command-line overrides."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch

from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM, RNNConfig, RNNForCausalLM
from training.language_models.model_setup import build_config
from training.language_models.recipe import ARGUMENTS, parse_recipe

RECIPE = """
output_dir: runs/here
model:
  hidden_size: 40
  embedding_dropout: 1e-1
train_files: [a.txt, b.txt]
validation_files: [c.txt]
learning_rate: 1e-3
"""


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def parse(path, *overrides: str):
    return parse_recipe([str(path), *overrides])


def test_values_come_from_the_file_and_defaults_fill_the_rest(recipe_file):
    recipe = parse(recipe_file)
    assert recipe.run.output_dir == "runs/here"
    assert recipe.data.train_files == ["a.txt", "b.txt"]
    assert recipe.optimization.learning_rate == 0.001
    assert recipe.optimization.batch_size == 20
    assert recipe.model.model == {"hidden_size": 40, "embedding_dropout": 0.1}


def test_the_command_line_overrides_the_file(recipe_file):
    recipe = parse(recipe_file, "--learning-rate", "5", "--train_files", "d.txt", "--no_random_bptt")
    assert recipe.optimization.learning_rate == 5.0
    assert recipe.data.train_files == ["d.txt"]
    assert recipe.data.random_bptt is False


def test_values_of_a_list_may_begin_with_a_hyphen_and_a_list_may_be_empty(recipe_file):
    recipe_file.write_text(f"{RECIPE}\ndropped_tags: [-NONE-, PU]\n", encoding="utf-8")
    assert parse(recipe_file).data.dropped_tags == ["-NONE-", "PU"]
    recipe = parse(recipe_file, "--dropped_tags", "-LRB-", "-RRB-", "--seed", "2")
    assert recipe.data.dropped_tags == ["-LRB-", "-RRB-"]
    recipe_file.write_text(f"{RECIPE}\ndropped_tags: []\n", encoding="utf-8")
    assert parse(recipe_file).data.dropped_tags == []


def test_fields_of_the_model_are_overridden_one_by_one(recipe_file):
    overrides = ["--model.hidden_size", "60", "--model.layer_sizes=[60, 40]", "--model.tie_word_embeddings", "false"]
    model = parse(recipe_file, *overrides, "--model.initializer_range", "1e-2").model.model
    assert model == {
        "hidden_size": 60,
        "embedding_dropout": 0.1,
        "layer_sizes": [60, 40],
        "tie_word_embeddings": False,
        "initializer_range": 0.01,
    }


@pytest.mark.parametrize(
    ("arguments", "resume"),
    [([], False), (["--resume"], True), (["--resume", "true"], True), (["--resume", "--seed", "3"], True),
     (["--resume", "false"], False)],
)  # fmt: skip
def test_resume_is_a_flag(recipe_file, arguments, resume):
    assert parse(recipe_file, *arguments).run.resume is resume


def test_yaml_words_are_parsed_as_intended(recipe_file):
    words = "mixed_precision: no\nresume: yes\nvocab_size: null\ntrackers: []\nmax_grad_norm: .inf\n"
    recipe_file.write_text(RECIPE + words)
    recipe = parse(recipe_file)
    assert recipe.optimization.mixed_precision == "no"
    assert recipe.run.resume is True
    assert recipe.data.vocab_size is None
    assert recipe.run.trackers == []
    assert recipe.optimization.max_grad_norm == float("inf")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (RECIPE + "learning_rat: 3\n", "unknown arguments: --learning_rat=3"),
        ("- a\n- b\n", "must be a mapping"),
        ("a: [1\n", "not a YAML file"),
        ("a: \xff\n", "not a YAML file"),
        (RECIPE + "learning_rate: 2\n", "recipe.yaml has learning_rate in line 8 and in line 9: leave out one"),
        ("model:\n  chunk_size: 2\n  chunk_size: 3\n", "has chunk_size in line 2 and in line 3"),
        ("model: 3\n", "model section"),
        (RECIPE + "batch_size: many\n", "invalid int value: 'many'"),
        (RECIPE + "optimizer: adagrad\n", "invalid choice: 'adagrad'"),
        ("learning_rate: 3\n", "--output_dir"),
    ],
)
def test_an_invalid_or_missing_recipe_file_is_refused(tmp_path, content, message):
    with pytest.raises(FileNotFoundError, match="no recipe"):
        parse(tmp_path / "recipe.yaml")
    path = tmp_path / "recipe.yaml"
    path.write_text(content, "latin-1")
    with pytest.raises(ValueError, match=message):
        parse(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--learning_rat 3", "unknown arguments: --learning_rat 3"),
        ("--learning 3", "unknown arguments"),
        ("other.yaml", "unknown arguments: other.yaml"),
        ("--seed", "expected one argument"),
        ("--resume perhaps", "--resume"),
        ("--model.hidden_size", "hidden_size: expected one argument"),
        ("--model.layer_sizes [60,40", r"--model.layer_sizes: \[60,40 is no YAML"),
        ("--model {}", "one by one"),
        ("--model.hidden_size --seed 3", "hidden_size: expected one argument"),
        ("--dataset toy", "either dataset or train_files"),
        ("--gold_tree_column tree", "needs a dataset"),
        ("--streaming --independent_sentences", "not streaming"),
        ("--streaming --schedule cosine", "max_steps"),
        ("--streaming --schedule warmup_stable_decay --decay_steps 9", "max_steps"),
        ("--schedule warmup_stable_decay", "decay_steps"),
        ("--schedule cosine --decay_steps 9", "decay_steps"),
        ("--optimizer adamw --stop_when_averaging_stalls", "nt-asgd"),
        ("--optimizer adamw --average_decay 0.9", "average_from_start"),
        ("--output_dir x", "either dataset or train_files"),
        ("--output_dir x --train_files a", "validation_files"),
        ("--output_dir x --dataset toy --test_files a", "test_split"),
        ("--output_dir x --dataset toy --gold_trees a --gold_tree_column b", "takes the place"),
    ],
)
def test_invalid_and_contradictory_arguments_are_refused(recipe_file, arguments, message):
    recipe = [] if "--output_dir" in arguments else [str(recipe_file)]
    with pytest.raises(ValueError, match=message):
        parse_recipe([*recipe, *arguments.split()])


@pytest.mark.parametrize(
    "arguments",
    ["--batch_size 0", "--gradient_accumulation_steps 0", "--num_epochs 0", "--max_steps 0", "--bptt_length 0",
     "--learning_rate 0", "--learning_rate nan", "--learning_rate inf", "--weight_decay -1", "--max_grad_norm 0",
     "--adam_beta1 1", "--adam_beta2 -0.1", "--adam_epsilon 0", "--warmup_steps -1", "--nonmonotone_interval 0",
     "--log_every_steps 0", "--eval_every_steps 0", "--save_every_steps 0", "--eval_batch_size 0", "--num_threads 0",
     "--num_threads 100000",
     "--test_batch_size 0", "--max_sentence_length 0", "--vocab_size 0", "--min_count 0", "--seed -1",
     "--tree_batch_size 0", "--tree_temperature 0", "--tree_loss_weight -1"],
)  # fmt: skip
def test_values_out_of_range_are_refused_by_name(recipe_file, arguments):
    name = arguments.split()[0].removeprefix("--")
    with pytest.raises(ValueError, match=rf"{name} must be"):
        parse(recipe_file, *arguments.split())


def test_free_fields_are_those_without_effect_on_results(recipe_file):
    free = {"output_dir", "resume", "log_every_steps", "save_every_steps", "trackers", "num_threads"}
    assert parse(recipe_file).fields("free").keys() == free


def test_help_documents_every_field(capsys):
    with pytest.raises(SystemExit) as exit_status:
        parse_recipe(["--help"])
    assert exit_status.value.code == 0
    text = capsys.readouterr().out
    for group in ARGUMENTS:
        for item in fields(group):
            assert f"--{item.name}" in text
            assert len(item.metadata["help"]) > 10


# Recipes of language models; the names of other recipes begin with their task.
FOLDER = Path(__file__).parents[2] / "training" / "recipes"
RECIPES = sorted(
    path.relative_to(FOLDER).with_suffix("").as_posix()
    for path in FOLDER.rglob("*.yaml")
    if not path.stem.startswith(("logic_", "listops_", "grammar_"))
)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_of_the_project_lack_only_the_data(name):
    path = FOLDER / f"{name}.yaml"
    data = {"quickstart": ["--dataset", "d"], "onlstm_wikipedia": []}  # onlstm_wikipedia names its dataset
    recipe = parse(path, *data.get(name, ["--train_files", "a", "--validation_files", "b"]))
    if recipe.model.init_from is None:
        build_config(recipe.model)
    assert f"training/recipes/{name}.yaml" in path.read_text() or name == "quickstart"


def read_recipe(name):
    return parse(FOLDER / f"{name}.yaml", "--train_files", "a", "--validation_files", "b")


NT_ASGD = {
    "optimizer": "nt-asgd", "learning_rate": 30.0, "weight_decay": 1.2e-6, "max_grad_norm": 0.25, "bptt_length": 70,
    "random_bptt": True, "nonmonotone_interval": 5, "eval_batch_size": 10, "test_batch_size": 1,
    "eval_every_steps": None, "independent_sentences": False, "schedule": "constant", "warmup_steps": 0,
    "gradient_accumulation_steps": 1, "average_from_start": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "config_class", "batch_size", "num_epochs"),
    [("onlstm_ptb", ONLSTMConfig, 20, 1000), ("lstm_ptb", RNNConfig, 40, 750)],
)
def test_the_full_recipes_have_the_settings_of_the_papers(name, config_class, batch_size, num_epochs):
    recipe = read_recipe(name)
    paper = config_class(**recipe.model.model)
    assert paper.to_dict() == config_class().to_dict()
    assert paper.layer_sizes == [1150, 1150, 400]
    expected = NT_ASGD | {"batch_size": batch_size, "num_epochs": num_epochs}
    assert {name: recipe.fields()[name] for name in expected} == expected


def test_recipes_of_the_prpn_paper_have_its_settings():
    """Sections 6.1 and 6.2 of Shen et al. (2018); the text8 model is the character model with these changes."""
    characters, text8 = (read_recipe(name) for name in ("prpn_char_ptb", "prpn_text8"))
    expected = {
        "embedding_size": 128, "hidden_size": 1024, "num_hidden_layers": 2, "num_slots": 20, "lookback": 10,
        "resolution": 0.1, "hard": True, "num_residual_blocks": 1, "output_dropout": 0.0, "input_dropout": 0.25,
        "recurrent_dropout": 0.1, "tie_word_embeddings": False,
    }  # fmt: skip
    assert characters.model.model == expected
    assert text8.model.model == expected | {"output_dropout": 0.4, "input_dropout": 0.2, "recurrent_dropout": 0.2}
    expected = {
        "optimizer": "adam", "learning_rate": 0.003, "weight_decay": 1e-6, "adam_beta1": 0.9, "adam_beta2": 0.999,
        "adam_epsilon": 1e-8, "max_grad_norm": 1.0, "schedule": "plateau", "plateau_factor": 0.1, "batch_size": 64,
        "bptt_length": 100, "random_bptt": False, "independent_sentences": False,
    }  # fmt: skip
    changed = expected | {"adam_beta1": 0.0, "batch_size": 128}
    for recipe, settings in ((characters, expected), (text8, changed)):
        assert {name: recipe.fields()[name] for name in settings} == settings


def test_the_small_recipes_differ_only_in_the_model_and_have_equally_many_parameters():
    onlstm, lstm = (read_recipe(f"{name}_ptb_small") for name in ("onlstm", "lstm"))
    own = {"model_type", "model", "output_dir"}
    settings = [{k: v for k, v in recipe.fields().items() if k not in own} for recipe in (onlstm, lstm)]
    assert settings[0] == settings[1]
    own = {"hidden_size", "chunk_size", "cell_type"}
    settings = [{k: v for k, v in recipe.model.model.items() if k not in own} for recipe in (onlstm, lstm)]
    assert settings[0] == settings[1]
    with torch.device("meta"):
        ours = RNNForCausalLM(RNNConfig(**lstm.model.model)).num_parameters()
        theirs = ONLSTMForCausalLM(ONLSTMConfig(**onlstm.model.model)).num_parameters()
    assert ours == pytest.approx(theirs, rel=0.01)
