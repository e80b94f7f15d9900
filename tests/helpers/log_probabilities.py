"""Log probabilities by their definition, for tests of faster ways to compute them."""

import torch


@torch.no_grad()
def sequence_log_probability(model, ids) -> float:
    """Returns the log probability of the ids after the first one, all in one call."""
    log_probabilities = model(torch.tensor([ids])).logits[0].double().log_softmax(dim=-1)
    return sum(log_probabilities[place, token].item() for place, token in enumerate(ids[1:]))


@torch.no_grad()
def token_log_probabilities(model, ids) -> list[float]:
    """Returns the log probability of each id after the first one, one token per call."""
    state, values = None, []
    for token, following in zip(ids[:-1], ids[1:], strict=True):
        output = model(torch.tensor([[token]]), state=state, use_cache=True)
        state = output.state
        values.append(output.logits[0, -1].double().log_softmax(-1)[following].item())
    return values
