"""Tiny classifiers of pairs of formulas, and results files like those of training on logical inference."""

import json
from pathlib import Path

import torch
from transformers import PreTrainedModel

from onlstm_hf import TreeLSTMConfig, TreeLSTMForSequencePairClassification
from onlstm_hf.logic.formulas import RELATIONS
from onlstm_hf.logic.scores import score_logic
from tests.helpers.tiny_models import KINDS
from training.train_logic import build_logic_tokenizer

MODELS = {name: (kind.config, kind.pair_class) for name, kind in KINDS.items() if kind.pair_class}
MODELS["tree_lstm"] = (TreeLSTMConfig, TreeLSTMForSequencePairClassification)


def make_logic_model(name: str) -> PreTrainedModel:
    """Returns a classifier of the relations in evaluation mode."""
    make_config, model_class = MODELS[name]
    labels = {"id2label": dict(enumerate(RELATIONS)), "label2id": {name: i for i, name in enumerate(RELATIONS)}}
    torch.manual_seed(0)
    return model_class(make_config(vocab_size=14, hidden_size=12, embedding_size=8, pad_token_id=13, **labels)).eval()


def save_logic_run(folder: Path, name: str) -> dict:
    """Writes `best/` and `results.json`, and returns the results: 5 pairs, 3 correct."""
    model = make_logic_model(name)
    model.save_pretrained(folder / "best")
    build_logic_tokenizer().save_pretrained(folder / "best")
    results = {
        "task": "logical inference",
        "parameters": model.num_parameters(),
        "test": score_logic(list("<##=#"), list("<#v=|"), [1, 1, 2, 7, 12]),
        "validation_accuracy": 0.974,
        "best_epoch": 45,
        "epochs": 50,
        "updates": 47650,
        "training_pairs": 121977,
        "recipe": {"pairs": "propositionallogic", "max_train_operators": 6},
        "command": "python training/train_logic.py training/recipes/logic.yaml --pairs propositionallogic",
        "date": "2026-11-21T14:36:22+00:00",
        "versions": {"onlstm_hf": "0.1.0", "torch": "2.13.0"},
    }
    (folder / "results.json").write_text(json.dumps(results))
    return results
