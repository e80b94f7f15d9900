"""Pipelines, compilation, derivatives and `Trainer`; test_common_models.py tests saving and loading."""

import copy

import pytest
import torch
from transformers import DataCollatorForLanguageModeling, Trainer, pipeline

from onlstm_hf import build_word_tokenizer
from tests.helpers.training_runs import trainer_arguments

CORPUS = [
    "the old cat saw the dog",
    "the dog saw a bird",
    "a bird sang",
    "the cat sat on the mat and the bird sang",
    "a dog and a cat sat",
    "the old dog sat on a mat",
    "a bird saw the mat",
    "the cat and the dog sang and sat",
]


@pytest.fixture(scope="module")
def tokenizer():
    return build_word_tokenizer(CORPUS)


@pytest.fixture
def make_model(kind, tokenizer):
    def make(**options):
        torch.manual_seed(0)
        special = dict.fromkeys(("eos_token_id", "bos_token_id"), tokenizer.eos_token_id)
        special |= {"pad_token_id": tokenizer.pad_token_id, "vocab_size": len(tokenizer), "initializer_range": 0.5}
        return kind.causal_class(kind.config(**special, **options)).eval()

    return make


@pytest.fixture
def model(make_model):
    return make_model()


@pytest.fixture
def ids(tokenizer):
    return tokenizer(CORPUS[0], return_tensors="pt")["input_ids"]


def logits_of(model, ids):
    with torch.no_grad():
        return model(ids).logits


# Pipelines


def test_text_generation_pipeline(model, tokenizer, tmp_path):
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    generate = pipeline("text-generation", model=str(tmp_path))
    # The pipeline appends the decoded words to the prompt without a space.
    prompts = ["the old cat ", "a ", "the dog and a "]
    options = {"max_new_tokens": 4, "do_sample": False}
    alone = [generate(prompt, **options)[0]["generated_text"] for prompt in prompts]
    for prompt, text in zip(prompts, alone, strict=True):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        expected = tokenizer.decode(model.generate(ids, **options)[0], skip_special_tokens=True)
        assert text.strip() == expected and text.startswith(prompt)
    batched = generate(prompts, batch_size=3, **options)
    assert [outputs[0]["generated_text"] for outputs in batched] == alone


def test_feature_extraction_pipeline_does_not_depend_on_batches(model, tokenizer, tmp_path):
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    extract = pipeline("feature-extraction", model=str(tmp_path))
    texts = [CORPUS[0], CORPUS[1] + " on", CORPUS[6] + " sat"]  # same lengths, since outputs include padding
    with torch.no_grad():
        expected = model.model(tokenizer(texts, return_tensors="pt")["input_ids"]).last_hidden_state
    for batch_size in (1, 2):
        found = torch.tensor(extract(texts, batch_size=batch_size))
        torch.testing.assert_close(found.squeeze(1), expected)


# torch.compile


def step(model, ids):
    model.zero_grad()
    output = model(ids, labels=ids)
    output.loss.backward()
    return output.loss.detach(), [parameter.grad.clone() for parameter in model.parameters()]


# tests/training/test_torch_compile.py compiles an ON-LSTM with Inductor. An RNN has no custom operator.
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["prpn"], indirect=True)
def test_training_compiles_with_inductor_without_graph_breaks(make_model, kind, tokenizer):
    ids = tokenizer(CORPUS[:3], padding=True, return_tensors="pt")["input_ids"]
    torch._dynamo.reset()
    # One layer, because Inductor gives the C++ compiler a file for nearly every layer.
    model = make_model(num_hidden_layers=1, parse_layer=0, **kind.no_dropout).train()
    torch.testing.assert_close(step(torch.compile(model, fullgraph=True), ids), step(model, ids))


@pytest.mark.slow
def test_dropout_and_a_carried_state_compile_without_graph_breaks(make_model, ids):
    model = make_model(num_hidden_layers=2).train()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    first = compiled(ids, labels=ids, state=model.model.initial_state(1))
    second = compiled(ids, labels=ids, state=first.state.detach())
    second.loss.backward()
    assert second.loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


# Derivatives without fast paths


def test_functional_gradients_equal_those_of_backward(make_model, ids):
    model = make_model().eval().double()
    model.set_implementation("reference")
    parameters = dict(model.named_parameters())

    def loss(parameters):
        return torch.func.functional_call(model, parameters, (ids,), {"labels": ids}).loss

    loss(parameters).backward()
    for name, gradient in torch.func.grad(loss)(parameters).items():
        expected = parameters[name].grad
        torch.testing.assert_close(gradient, torch.zeros_like(gradient) if expected is None else expected)


def test_the_norm_of_the_gradient_can_be_differentiated(make_model, ids):
    model = make_model().eval().double()
    model.set_implementation("reference")
    weight = model.get_output_embeddings().weight

    def squared_norm():
        (gradient,) = torch.autograd.grad(model(ids, labels=ids).loss, weight, create_graph=True)
        return gradient.square().sum()

    before = squared_norm()
    (direction,) = torch.autograd.grad(before, weight)
    with torch.no_grad():
        weight += 1e-6 * direction
    increase = (squared_norm() - before) / 1e-6
    torch.testing.assert_close(increase, direction.square().sum(), rtol=1e-3, atol=0)


# Trainer


def sentences(tokenizer) -> list[dict[str, torch.Tensor]]:
    """Returns items of the same number of labels, so that the order of averaging does not matter."""
    stream = [token for text in CORPUS * 4 for token in (*tokenizer(text)["input_ids"], tokenizer.eos_token_id)]
    return [{"input_ids": ids, "labels": ids} for ids in torch.tensor(stream).split(6)[:-1]]


# Excludes the PRPN, whose batch normalisation differs between half and full batches.
@pytest.mark.parametrize("kind", ["onlstm", "rnn"], indirect=True)
def test_trainer_accumulates_gradients_to_those_of_the_larger_batch(kind, make_model, tokenizer, tmp_path):
    weights = []
    for batch_size, accumulated in ((4, 1), (2, 2)):
        model = make_model(**kind.no_dropout)
        batches = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulated}
        arguments = trainer_arguments(tmp_path, max_steps=10, learning_rate=0.02, optim="sgd", **batches)
        Trainer(model, arguments, train_dataset=sentences(tokenizer)).train()
        weights.append(model.state_dict())
    torch.testing.assert_close(*weights)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_trainer_predicts_the_next_token_with_and_without_label_smoothing(
    kind, make_model, tokenizer, tmp_path, smoothing
):
    model, dataset = make_model(**kind.no_dropout), sentences(tokenizer)
    trainer = Trainer(model, trainer_arguments(tmp_path, label_smoothing_factor=smoothing), eval_dataset=dataset)
    inputs = {name: torch.stack([item[name] for item in dataset]) for name in ("input_ids", "labels")}
    with torch.no_grad():
        losses = -logits_of(model, inputs["input_ids"])[:, :-1].log_softmax(dim=-1)
    right = losses.gather(-1, inputs["labels"][:, 1:, None]).mean()
    expected = (1 - smoothing) * right + smoothing * losses.mean()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected.item(), rel=1e-4)

    # The Trainer only passes the number of labels in training, where a PRPN normalises by the batch.
    num_items = trainer._get_num_items_in_batch([inputs], "cpu")
    loss = trainer.compute_loss(model.eval(), inputs, num_items_in_batch=num_items)
    torch.testing.assert_close(loss.detach(), expected)


@pytest.mark.parametrize("side", ["left", "right"])
def test_trainer_counts_the_same_labels_with_padding_on_either_side(kind, make_model, tokenizer, tmp_path, side):
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.padding_side = side
    model, rows = make_model(**kind.no_dropout), [[3, 4, 5, 6, 7], [8, 9], [5, 4, 3]]
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    dataset = [{"input_ids": row} for row in rows]
    trainer = Trainer(model, trainer_arguments(tmp_path), eval_dataset=dataset, data_collator=collator)
    with torch.no_grad():
        sums = [
            logits_of(model, row[None])[0, :-1].log_softmax(dim=-1).gather(-1, row[1:, None]).sum()
            for row in map(torch.tensor, rows)
        ]
    expected = -sum(sums).item() / sum(len(row) - 1 for row in rows)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-4)
    inputs = collator(dataset)
    num_items = trainer._get_num_items_in_batch([inputs], "cpu")
    assert trainer.compute_loss(model.eval(), inputs, num_items_in_batch=num_items).item() == pytest.approx(expected)


def test_trainer_predicts_logits(model, tokenizer, tmp_path):
    dataset = sentences(tokenizer)
    predictions = Trainer(model, trainer_arguments(tmp_path)).predict(dataset).predictions
    torch.testing.assert_close(
        torch.tensor(predictions), logits_of(model, torch.stack([item["input_ids"] for item in dataset]))
    )
