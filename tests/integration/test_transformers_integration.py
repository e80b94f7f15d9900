"""Saving, loading, auto classes, pipelines, compilation and `Trainer` of Transformers."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    pipeline,
)

from onlstm_hf import build_word_tokenizer

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
        special = {
            "vocab_size": len(tokenizer),
            "initializer_range": 0.5,
            "eos_token_id": tokenizer.eos_token_id,
            "bos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        }
        return kind.causal_class(kind.config(**{**special, **options})).eval()

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


# Saving and loading


def test_a_checkpoint_has_one_safetensors_file_with_tied_weights_once(kind, model, tmp_path):
    model.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.suffix in (".safetensors", ".bin", ".pt")] == [
        "model.safetensors"
    ]
    tensors = load_file(tmp_path / "model.safetensors")
    assert set(tensors) == set(model.state_dict()) - {"lm_head.weight"}

    loaded, report = kind.causal_class.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert loaded.lm_head.weight is loaded.model.embeddings.weight
    assert not loaded.training


def test_untied_weights_are_both_saved(kind, make_model, ids, tmp_path):
    model = make_model(tie_word_embeddings=False, layer_sizes=[12, 8, 16])
    model.save_pretrained(tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == set(model.state_dict())
    loaded = kind.causal_class.from_pretrained(tmp_path)
    assert loaded.config.layer_sizes == [12, 8, 16]
    torch.testing.assert_close(logits_of(loaded, ids), logits_of(model, ids))


def test_auto_classes_find_the_models(kind, model, ids, tmp_path):
    model.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    assert type(config) is kind.config_class
    assert config.to_diff_dict() == model.config.to_diff_dict()

    causal = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(causal) is kind.causal_class
    torch.testing.assert_close(logits_of(causal, ids), logits_of(model, ids))

    base = AutoModel.from_pretrained(tmp_path)
    assert type(base) is kind.model_class
    with torch.no_grad():
        torch.testing.assert_close(base(ids).last_hidden_state, model.model(ids).last_hidden_state)

    assert type(AutoModelForCausalLM.from_config(config)) is kind.causal_class
    assert type(AutoModel.from_config(config)) is kind.model_class


def test_bfloat16_is_loaded_on_request_and_saved(model, ids, tmp_path):
    model.save_pretrained(tmp_path / "float32")
    half = AutoModelForCausalLM.from_pretrained(tmp_path / "float32", dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    with torch.no_grad():
        loss = model(ids, labels=ids).loss
        torch.testing.assert_close(half(ids, labels=ids).loss, loss, rtol=0.01, atol=0)

    half.save_pretrained(tmp_path / "bfloat16")
    assert {tensor.dtype for tensor in load_file(tmp_path / "bfloat16" / "model.safetensors").values()} == {
        torch.bfloat16
    }
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "bfloat16", dtype="auto")
    assert again.dtype == torch.bfloat16
    torch.testing.assert_close(logits_of(again, ids), logits_of(half, ids))
    full = AutoModelForCausalLM.from_pretrained(tmp_path / "bfloat16", dtype=torch.float32)
    assert full.dtype == torch.float32


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("change", [5, -2])
def test_a_resized_vocabulary_is_saved_and_loaded(make_model, ids, tmp_path, tied, change):
    model = make_model(tie_word_embeddings=tied)
    before = logits_of(model, ids.clamp(max=5))
    size = model.config.vocab_size + change
    model.resize_token_embeddings(size)
    assert model.config.vocab_size == size
    assert model.lm_head.weight.shape[0] == model.lm_head.bias.shape[0] == size
    kept = min(size, before.shape[-1])
    torch.testing.assert_close(logits_of(model, ids.clamp(max=5))[..., :kept], before[..., :kept])
    model(ids.clamp(max=5), labels=ids.clamp(max=5)).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())

    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert (loaded.lm_head.weight is loaded.model.embeddings.weight) == tied
    torch.testing.assert_close(
        logits_of(loaded, torch.tensor([[size - 1]])), logits_of(model, torch.tensor([[size - 1]]))
    )


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


class Sentences(torch.utils.data.Dataset):
    """Items have the same number of labels, so the order of averaging does not matter."""

    def __init__(self, tokenizer, num_tokens=6):
        stream = [token for text in CORPUS * 4 for token in (*tokenizer(text)["input_ids"], tokenizer.eos_token_id)]
        starts = range(0, len(stream) - num_tokens, num_tokens)
        self.items = [torch.tensor(stream[start : start + num_tokens]) for start in starts]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return {"input_ids": self.items[index], "labels": self.items[index]}


def train(model, dataset, folder, **options):
    defaults = {
        "per_device_train_batch_size": 4,
        "max_steps": 10,
        "learning_rate": 0.02,
        "logging_steps": 1,
        "save_steps": 5,
        "seed": 1,
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
    }
    arguments = TrainingArguments(output_dir=str(folder), **{**defaults, **options})
    trainer = Trainer(model=model, args=arguments, train_dataset=dataset, eval_dataset=dataset)
    trainer.train()
    return trainer


def test_trainer_decreases_the_loss_and_its_checkpoints_load(kind, make_model, tokenizer, ids, tmp_path):
    model = make_model(**kind.no_dropout)
    options = {"per_device_train_batch_size": 20, "learning_rate": 0.05, "lr_scheduler_type": "constant"}
    trainer = train(model, Sentences(tokenizer), tmp_path, max_steps=40, save_steps=20, **options)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5])
    assert trainer.evaluate()["eval_loss"] < 0.95 * losses[0]

    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-40")
    torch.testing.assert_close(logits_of(loaded, ids), logits_of(model.eval(), ids))
    earlier = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-20")
    assert not torch.equal(logits_of(earlier, ids), logits_of(model, ids))


# Excludes the PRPN, whose batch normalisation differs between half and full batches.
@pytest.mark.parametrize("kind", ["onlstm", "rnn"], indirect=True)
def test_trainer_accumulates_gradients_to_those_of_the_larger_batch(kind, make_model, tokenizer, tmp_path):
    dataset = Sentences(tokenizer)
    at_once, accumulated = make_model(**kind.no_dropout), make_model(**kind.no_dropout)
    train(at_once, dataset, tmp_path / "at_once", optim="sgd")
    options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    train(accumulated, dataset, tmp_path / "accumulated", optim="sgd", **options)
    torch.testing.assert_close(accumulated.state_dict(), at_once.state_dict())


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_trainer_predicts_the_next_token_with_and_without_label_smoothing(
    kind, make_model, tokenizer, tmp_path, smoothing
):
    model, dataset = make_model(**kind.no_dropout), Sentences(tokenizer)
    arguments = TrainingArguments(
        output_dir=str(tmp_path), label_smoothing_factor=smoothing, use_cpu=True, report_to=[], disable_tqdm=True
    )
    trainer = Trainer(model=model, args=arguments, eval_dataset=dataset)
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
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[], disable_tqdm=True)
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    dataset = [{"input_ids": row} for row in rows]
    trainer = Trainer(model=model, args=arguments, eval_dataset=dataset, data_collator=collator)
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
    dataset = Sentences(tokenizer)
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[], disable_tqdm=True)
    trainer = Trainer(model=model, args=arguments)
    predictions = trainer.predict(dataset).predictions
    with torch.no_grad():
        expected = model(torch.stack(dataset.items)).logits
    assert predictions.shape == expected.shape
    torch.testing.assert_close(torch.tensor(predictions), expected)
