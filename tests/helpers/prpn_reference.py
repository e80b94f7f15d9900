"""The PRPN's equations, one sentence and one step at a time: truth for tests, and a baseline for its speed."""

import math

import torch

from onlstm_hf import PRPNForCausalLM


def read_sentence(model: PRPNForCausalLM, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits `[T, V]` and distances `[T]` of a sentence, read from the start in evaluation mode.

    The model has a parsing network and both attentions.
    """
    config, base = model.config, model.model
    embeddings = [base.embeddings.weight[token] for token in ids]
    distances, next_distances, logits = [], [], []
    # The pairs (h, c) of each layer, newest first. Before the first word there is one empty memory.
    nothing = torch.zeros_like(base.reading_network[0].cell_norm.bias)
    tapes = [[(nothing, nothing)] for _ in base.reading_network]
    for step, embedding in enumerate(embeddings):
        distance, next_distance = _distances(base.parsing_network, embeddings[: step + 1], config.lookback)
        distances.append(distance)
        next_distances.append(next_distance)
        layer_input = embedding
        for layer, tape in zip(base.reading_network, tapes, strict=True):
            layer_input, cell = _read(layer, layer_input, tape, _gates(config, distances, distance, step))
            tape.insert(0, (layer_input, cell))
        past = [hidden for hidden, _ in tapes[-1][1:]]
        gates = _gates(config, distances, next_distance, step)
        logits.append(_predict(model, layer_input, past, gates))
    return torch.stack(logits), torch.stack(distances)


def _distances(parser, embeddings, lookback):
    """`d_t` and `d'_{t+1}` from the last words."""
    window = [torch.zeros_like(embeddings[0])] * lookback + embeddings
    window = torch.stack(window[-lookback - 1 :], dim=-1)  # [E, lookback + 1]
    hidden = (parser.convolution.weight * window).sum(dim=(1, 2)) + parser.convolution.bias
    hidden = _batch_norm(parser.norm, hidden).clamp(min=0)
    halves = hidden.view(2, -1)
    output = parser.distance_convolution
    return torch.sigmoid((output.weight.view_as(halves) * halves).sum(dim=-1) + output.bias)


def _batch_norm(norm, values):
    scaled = (values - norm.running_mean) / torch.sqrt(norm.running_var + norm.epsilon)
    return norm.weight * scaled + norm.bias


def _gates(config, distances, own, step):
    """The gate of each memory `step - 1, step - 2, ...` for a word with the distance `own`. The gate of the newest
    one compares with the distance of this word itself, that of an older one with those of the words between, too."""
    gate, gates = 1.0, []
    for memory in range(step - 1, max(-2, step - 1 - config.num_slots), -1):
        difference = (own - distances[memory + 1]) / config.resolution
        alpha = (difference + 1).clamp(0, 1) if config.hard else torch.sigmoid(10 * difference + 5)
        gate = gate * alpha
        gates.append(gate)
    return gates


def _attention(key, memories, gates):
    """Weights of the memories."""
    scores = [(key @ memory) / math.sqrt(len(key)) for memory in memories]
    weights = [gate * torch.exp(score - max(scores)) for gate, score in zip(gates, scores, strict=True)]
    return [weight / (sum(weights) + 1e-8) for weight in weights]


def _layer_norm(norm, values):
    return norm.weight * (values - values.mean()) / (values.std() + 1e-6) + norm.bias


def _read(layer, layer_input, tape, gates):
    """The new hidden and cell state."""
    hiddens, cells = zip(*tape[: len(gates)], strict=True)
    key = layer.key_projection.weight @ torch.cat([layer_input, hiddens[0]]) + layer.key_projection.bias
    weights = _attention(key, hiddens, gates)
    summary_hidden = sum(weight * hidden for weight, hidden in zip(weights, hiddens, strict=True))
    summary_cell = sum(weight * cell for weight, cell in zip(weights, cells, strict=True))
    of_input = layer.input_projection.weight @ layer_input + layer.input_projection.bias
    of_past = layer.recurrent_projection.weight @ summary_hidden + layer.recurrent_projection.bias
    activations = _layer_norm(layer.input_norm, of_input) + _layer_norm(layer.recurrent_norm, of_past)
    input_gate, forget_gate, candidate, output_gate = activations.chunk(4)
    cell = torch.sigmoid(forget_gate) * summary_cell + torch.sigmoid(input_gate) * torch.tanh(candidate)
    return torch.sigmoid(output_gate) * torch.tanh(_layer_norm(layer.cell_norm, cell)), cell


def _predict(model, hidden, past, gates):
    network = model.model.predict_network
    key = network.key_projection.weight @ hidden + network.key_projection.bias
    memories = past[: len(gates)]
    weights = _attention(key, memories, gates)
    summary = sum(weight * memory for weight, memory in zip(weights, memories, strict=True))
    features = torch.cat([hidden, summary])
    for block in network.residual_blocks:
        inner = _batch_norm(block.input_norm, block.input_projection.weight @ features + block.input_projection.bias)
        inner = block.output_projection.weight @ inner.clamp(min=0) + block.output_projection.bias
        features = (features + _batch_norm(block.output_norm, inner)).clamp(min=0)
    output = network.output_projection.weight @ features + network.output_projection.bias
    output = torch.tanh(_batch_norm(network.output_norm, output))
    return model.lm_head.weight @ output + model.lm_head.bias
