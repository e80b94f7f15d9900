"""Classifiers of single sequences: logits, fine-tuning, saving, loading and pipelines."""

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding, Trainer, pipeline

from onlstm_hf import build_word_tokenizer
from tests.helpers.tiny_models import KINDS, MODEL_TYPES, PAD, pad, random_rows
from tests.helpers.training_runs import trainer_arguments

IDS = torch.tensor([[3, 5, 7, 1], [2, 9, 4, 6]])
# The last word decides whether a text is positive.
TEXTS = [
    *("the film is good", "bad things end good", "good", "a bad film that ends good"),
    *("the film is bad", "good things end bad", "bad", "a good film that ends bad"),
]
LABELS = [1, 1, 1, 1, 0, 0, 0, 0]


@pytest.fixture(params=list(KINDS))
def model(request):
    kind = KINDS[request.param]
    return kind.make(kind.sequence_class, num_labels=3, pad_token_id=PAD, **kind.no_dropout)


@pytest.fixture(params=list(MODEL_TYPES))
def kind(request):
    return MODEL_TYPES[request.param]


def logits_of(model, *arguments, **options):
    with torch.no_grad():
        return model(*arguments, **options).logits


def expected_logits(model, rows):
    """Computes one sequence at a time, without padding."""
    with torch.no_grad():
        last = torch.stack([model.model(row[None]).last_hidden_state[0, -1] for row in rows])
        return F.linear(last, model.score.weight, model.score.bias)


@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_are_a_linear_map_of_the_output_at_the_last_real_token(model, side):
    rows = random_rows()
    ids, mask, _ = pad(rows, side)
    expected = expected_logits(model, rows)
    torch.testing.assert_close(logits_of(model, ids, attention_mask=mask), expected, rtol=1e-4, atol=1e-5)
    embedded = model.get_input_embeddings()(ids)
    found = logits_of(model, inputs_embeds=embedded, attention_mask=mask, token_type_ids=torch.zeros_like(ids))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_without_a_mask_every_token_counts(model):
    torch.testing.assert_close(logits_of(model, IDS), expected_logits(model, IDS), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("labels", "loss"),
    [
        (torch.tensor([2, 0]), F.cross_entropy),
        (torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]), F.binary_cross_entropy_with_logits),
    ],
)
def test_the_loss_depends_on_the_labels_and_on_every_weight(model, labels, loss):
    output = model(IDS, labels=labels)
    torch.testing.assert_close(output.loss, loss(output.logits, labels))
    output.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert torch.equal(model(IDS, labels=labels, return_dict=False)[0], output.loss)


def test_several_labels_may_be_integers(model):
    model.config.problem_type = "multi_label_classification"
    labels = torch.tensor([[1, 0, 1], [0, 0, 1]])
    assert torch.equal(model(IDS, labels=labels).loss, model(IDS, labels=labels.float()).loss)


def test_one_label_is_a_regression(kind):
    model = kind.make(kind.sequence_class, num_labels=1)
    ids, labels = torch.randint(PAD, (3, 4)), torch.tensor([0.5, -1.0, 2.0])
    output = model(ids, labels=labels)
    torch.testing.assert_close(output.loss, F.mse_loss(output.logits.squeeze(-1), labels))


@pytest.mark.parametrize(
    "pair", [{"input_ids_pair": torch.ones(1, 2).long()}, {"token_type_ids": torch.tensor([[0, 0, 1]])}]
)
def test_a_pair_is_refused(kind, pair):
    model = kind.make(kind.sequence_class)
    with pytest.raises(ValueError, match="takes no pairs: use its class ForSequencePair"):
        model(torch.tensor([[1, 2, 3]]), **pair)


def test_a_language_model_can_be_loaded_as_a_classifier(kind, tmp_path):
    language_model = kind.make()
    language_model.save_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=5)
    assert type(model) is kind.sequence_class
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        expected, found = (each.model(ids).last_hidden_state for each in (language_model, model))
    torch.testing.assert_close(found, expected)  # products round differently for another memory alignment
    assert model.score.out_features == 5
    weights = model.model.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in language_model.model.state_dict().items())


def test_each_classifier_is_loaded_with_its_class(kind, tmp_path):
    for model_class in filter(None, (kind.sequence_class, kind.pair_class)):
        model_class(kind.config(num_labels=3)).save_pretrained(tmp_path)
        assert type(AutoModelForSequenceClassification.from_pretrained(tmp_path)) is model_class


def test_trainer_accumulates_gradients_to_those_of_the_larger_batch(tmp_path):
    kind = MODEL_TYPES["rnn"]  # a PRPN normalises by the batch
    ids, labels = torch.randint(PAD, (4, 5)), [0, 1, 2, 1]
    rows = [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]
    trained = []
    for size, steps in ((4, 1), (2, 2)):
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps, "max_steps": 1}
        arguments = trainer_arguments(tmp_path, optim="sgd", learning_rate=1.0, save_strategy="no", **options)
        model = kind.make(kind.sequence_class, num_labels=3, **kind.no_dropout)
        Trainer(model=model, args=arguments, train_dataset=rows).train()
        trained.append(model.state_dict())
    torch.testing.assert_close(*trained)


def test_trainer_fine_tunes_on_texts_of_different_lengths(kind, tmp_path):
    tokenizer = build_word_tokenizer(TEXTS)
    options = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "initializer_range": 0.5}
    labels = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    torch.manual_seed(0)
    model = kind.sequence_class(kind.config(**kind.no_dropout, **options, **labels))
    rows = [{**tokenizer(text), "labels": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    steps = {"max_steps": 30, "learning_rate": 0.05, "lr_scheduler_type": "constant", "save_strategy": "no"}
    arguments = trainer_arguments(tmp_path / "run", **steps)
    collator = DataCollatorWithPadding(tokenizer)
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, data_collator=collator)
    trainer.train()
    assert trainer.predict(rows).predictions.argmax(axis=-1).tolist() == LABELS

    trainer.save_model(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    classify = pipeline("text-classification", model=str(tmp_path / "saved"), device="cpu")
    expected = [labels["id2label"][label] for label in LABELS]
    assert [found["label"] for found in classify(TEXTS, batch_size=3)] == expected
