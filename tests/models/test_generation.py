"""`generate`, compared with definitions that read the whole sequence again for every token."""

import copy

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from onlstm_hf.models.state import ModelState
from tests.helpers.tiny_models import KINDS, assert_same_state

VOCAB_SIZE, PAD = 5, 0
NEW_TOKENS = 6
USE_CACHE = pytest.mark.parametrize("use_cache", [True, False])


@pytest.fixture(scope="module", params=list(KINDS))
def model(request):
    model = KINDS[request.param].make(vocab_size=VOCAB_SIZE, pad_token_id=PAD, eos_token_id=None)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.2)
    return model


@pytest.fixture
def prompts() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randint(2, VOCAB_SIZE, (length,)) for length in (4, 1, 3)]


@pytest.fixture
def batch(prompts) -> dict[str, torch.Tensor]:
    """Returns the prompts with padding on the left."""
    return padded(prompts, "left")


def padded(prompts: list[torch.Tensor], side: str) -> dict[str, torch.Tensor]:
    input_ids = pad_sequence(prompts, batch_first=True, padding_value=PAD, padding_side=side)
    ones = [torch.ones_like(prompt) for prompt in prompts]
    return {"input_ids": input_ids, "attention_mask": pad_sequence(ones, batch_first=True, padding_side=side)}


@torch.no_grad()
def next_log_probabilities(model, sequence: list[int]) -> torch.Tensor:
    """Returns log probabilities `[V]` after a sequence."""
    return model(torch.tensor([sequence])).logits[0, -1].log_softmax(-1)


def greedy(model, prompt: torch.Tensor, eos: int | None = None) -> list[int]:
    """Returns the new tokens of greedy search."""
    sequence = prompt.tolist()
    for _ in range(NEW_TOKENS):
        sequence.append(next_log_probabilities(model, sequence).argmax().item())
        if sequence[-1] == eos:
            break
    return sequence[len(prompt) :]


def beam_search(model, prompt: torch.Tensor, num_beams: int):
    """Returns the new tokens of all beams, best first, and their mean log probabilities; no sequence ends early."""
    beams = [(0.0, [])]
    for _ in range(NEW_TOKENS):
        candidates = [
            (score + log_probability.item(), tokens + [token])
            for score, tokens in beams
            for token, log_probability in enumerate(next_log_probabilities(model, prompt.tolist() + tokens))
        ]
        beams = sorted(candidates, reverse=True)[:num_beams]
    return [tokens for _, tokens in beams], [score / NEW_TOKENS for score, _ in beams]


def new_tokens(output: torch.Tensor, prompt_length: int) -> list[list[int]]:
    return output[:, prompt_length:].tolist()


@pytest.fixture
def lengths_read(model):
    """Records the number of tokens per row in each call of the model."""
    lengths = []
    embeddings = model.get_input_embeddings()
    handle = embeddings.register_forward_hook(lambda _, inputs, __: lengths.append(inputs[0].shape[1]))
    yield lengths
    handle.remove()


@USE_CACHE
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_change_greedy_search(model, prompts, side, use_cache):
    batch = padded(prompts, side)
    output = model.generate(**batch, max_new_tokens=NEW_TOKENS, do_sample=False, use_cache=use_cache)
    assert new_tokens(output, 4) == [greedy(model, prompt) for prompt in prompts]


def test_a_missing_mask_is_inferred_from_the_padding(model, prompts, batch):
    output = model.generate(batch["input_ids"], max_new_tokens=NEW_TOKENS, do_sample=False)
    assert new_tokens(output, 4) == [greedy(model, prompt) for prompt in prompts]


@USE_CACHE
def test_the_cache_avoids_reading_the_past_again(model, prompts, lengths_read, use_cache):
    model.generate(prompts[0].unsqueeze(0), max_new_tokens=4, do_sample=False, use_cache=use_cache)
    assert lengths_read == ([4, 1, 1, 1] if use_cache else [4, 5, 6, 7])


@pytest.mark.parametrize("eos", range(VOCAB_SIZE))
def test_rows_end_at_the_end_of_sequence_token_and_are_padded(model, prompts, batch, eos):
    output = model.generate(**batch, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=eos, pad_token_id=PAD)
    expected = [greedy(model, prompt, eos) for prompt in prompts]
    longest = max(map(len, expected))
    assert new_tokens(output, 4) == [tokens + [PAD] * (longest - len(tokens)) for tokens in expected]


@USE_CACHE
@pytest.mark.parametrize("num_beams", [2, 4])
def test_beam_search_keeps_the_best_sequences_of_every_step(model, prompts, batch, use_cache, num_beams):
    options = {"num_beams": num_beams, "num_return_sequences": num_beams, "use_cache": use_cache}
    options |= {"return_dict_in_generate": True, "output_scores": True}
    output = model.generate(**batch, max_new_tokens=NEW_TOKENS, do_sample=False, **options)
    expected = [beam_search(model, prompt, num_beams) for prompt in prompts]
    assert new_tokens(output.sequences, 4) == [tokens for beams, _ in expected for tokens in beams]
    scores = torch.tensor([score for _, scores in expected for score in scores])
    torch.testing.assert_close(output.sequences_scores, scores)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_input_embeddings_give_the_same_continuation(model, prompts, batch, num_beams):
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "num_beams": num_beams}
    expected = model.generate(**batch, **options)
    embedded = model.get_input_embeddings()(batch["input_ids"])
    output = model.generate(inputs_embeds=embedded, attention_mask=batch["attention_mask"], **options)
    assert output.tolist() == new_tokens(expected, 4)


@pytest.fixture
def read_before(model) -> tuple[torch.Tensor, ModelState]:
    """Returns earlier text of three rows and the state after it."""
    torch.manual_seed(4)
    text = torch.randint(2, VOCAB_SIZE, (3, 5))
    with torch.no_grad():
        return text, model(text).state


@USE_CACHE
@pytest.mark.parametrize("num_beams", [1, 3])
def test_generation_continues_from_a_given_state(model, batch, prompts, read_before, use_cache, num_beams):
    text, state = read_before
    before = copy.deepcopy(state)
    options = {"num_beams": num_beams, "num_return_sequences": num_beams, "use_cache": use_cache}
    output = model.generate(**batch, state=state, max_new_tokens=NEW_TOKENS, do_sample=False, **options)
    whole = [torch.cat([past, prompt]) for past, prompt in zip(text, prompts, strict=True)]
    expected = [beam_search(model, sequence, num_beams)[0] for sequence in whole]
    assert new_tokens(output, 4) == [tokens for beams in expected for tokens in beams]
    assert_same_state(state, before, rtol=0, atol=0)


def test_the_returned_state_continues_the_text(model, prompts):
    """The last token is not yet in the state, so it is the next prompt."""
    prompt = prompts[0]
    first = model.generate(prompt.unsqueeze(0), max_new_tokens=3, do_sample=False, return_dict_in_generate=True)
    state = first.get("cache") or first.past_key_values  # name before Transformers 5.24
    second = model.generate(first.sequences[:, -1:], state=state, max_new_tokens=NEW_TOKENS - 3, do_sample=False)
    assert first.sequences[0, len(prompt) :].tolist() + second[0, 1:].tolist() == greedy(model, prompt)
