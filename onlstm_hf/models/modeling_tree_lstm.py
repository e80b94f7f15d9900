"""The binary Tree-LSTM of Tai, Socher & Manning (ACL 2015, section 3.2), which composes along gold brackets."""

from itertools import compress

import torch
from torch import nn
from torch.nn import functional as F
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .configuration_tree_lstm import TreeLSTMConfig
from .heads import PairClassifier, SequencePairClassifier, class_loss, stacked_sides
from .state import RecurrentPreTrainedModel, check_inputs, real_tokens


def read_brackets(
    rows: list[list[int]], open_bracket_id: int, close_bracket_id: int
) -> tuple[list[torch.LongTensor], list[list[int]], torch.LongTensor]:
    """Reads the trees of token ids with brackets, each of which holds two constituents or words.

    Level 0 has the words of all trees, and level `h` the constituents of height `h`, so that each level is one step.
    Each level passes its nodes to the level of their parent, and roots to a final level. Nodes are sorted by receiving
    level, so they are passed as slices. A level concatenates the slices that it receives, lowest sender first.

    Returns:
        For each level the tokens of its words, `[W]`, or the indices of the left and the right part of each
        constituent among the nodes that the level receives, `[N, 2]`; for each level, how many nodes it passes to each
        level; and the index of each tree among the nodes that the final level receives, `[B]`.

    Raises:
        ValueError: if the brackets of a row make no binary tree.
    """
    # Nodes are numbered by where they end. The content of a word is its token twice, else the numbers of both parts.
    heights: list[int] = []
    receivers: list[int] = []
    contents: list[tuple[int, int]] = []
    roots: list[int] = []
    for number, row in enumerate(rows):
        stack: list[int | None] = []  # node numbers, and `None` for each open bracket
        for token in row:
            if token == open_bracket_id:
                stack.append(None)
                continue
            height, content = 0, (token, token)
            if token == close_bracket_id:
                if len(stack) < 3 or [node is None for node in stack[-3:]] != [True, False, False]:
                    raise ValueError(f"sequence {number} is no binary tree: a bracket must close exactly two parts")
                content = left, right = stack[-2:]
                height = max(heights[left], heights[right]) + 1
                receivers[left] = receivers[right] = height
                del stack[-3:]
            stack.append(len(heights))
            heights.append(height)
            receivers.append(-1)
            contents.append(content)
        if len(stack) != 1 or stack[0] is None:
            raise ValueError(f"sequence {number} is no binary tree: one pair of brackets must enclose all of it")
        roots.append(stack[0])

    num_levels = max(heights) + 1
    height, receiver, content = torch.tensor(heights), torch.tensor(receivers), torch.tensor(contents)
    receiver[roots] = num_levels
    sender_and_receiver = height * (num_levels + 1) + receiver
    counts = sender_and_receiver.bincount(minlength=num_levels * (num_levels + 1)).view(num_levels, -1)
    levels = sender_and_receiver.argsort(stable=True).split(counts.sum(dim=1).tolist())
    by_receiver = (receiver * num_levels + height).argsort(stable=True)
    num_received = counts.sum(dim=0)
    places = torch.empty_like(by_receiver)
    places[by_receiver] = torch.arange(len(places)) - (num_received.cumsum(0) - num_received)[receiver[by_receiver]]
    contents_by_level = [content[levels[0], 0], *(places[content[level]] for level in levels[1:])]
    return contents_by_level, counts.tolist(), places[roots]


class TreeLSTMPreTrainedModel(RecurrentPreTrainedModel):
    """Base class of all Tree-LSTMs."""

    config: TreeLSTMConfig


class TreeLSTMModel(TreeLSTMPreTrainedModel):
    """Composes the words of a bracketed sequence, two parts at a time."""

    auto_class_name = "AutoModel"

    def __init__(self, config: TreeLSTMConfig):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        self.word_projection = nn.Linear(config.embedding_size, 3 * config.hidden_size)
        self.composition = nn.Linear(2 * config.hidden_size, 5 * config.hidden_size)
        self.post_init()

    def forward(self, input_ids: torch.LongTensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the hidden state of each sequence's root, `(num_sequences, hidden_size)`.

        Args:
            input_ids: `(num_sequences, sequence_length)`, words and brackets.
            attention_mask: the same shape, 0 at padding on either side.

        Raises:
            ValueError: if the brackets of a sequence make no binary tree.
        """
        check_inputs(self, input_ids)
        real = real_tokens(attention_mask, input_ids)
        mask = torch.ones_like(input_ids) if real is None else real
        rows = [list(compress(*row)) for row in zip(input_ids.tolist(), mask.tolist(), strict=True)]
        levels, counts, roots = read_brackets(rows, self.config.open_bracket_id, self.config.close_bracket_id)
        device = input_ids.device

        received: list[list[torch.Tensor]] = [[] for _ in range(len(levels) + 1)]
        for level, content in enumerate(levels):
            if level == 0:
                states = self._read_words(content.to(device))
            else:
                # `embedding` looks up rows; the gradient of plain indexing is slower.
                states = self._compose(F.embedding(content.to(device), torch.cat(received[level])))
            for receiver, part in zip(received, states.split(counts[level]), strict=True):
                receiver.append(part)
        return F.embedding(roots.to(device), torch.cat(received[-1]))[:, : self.config.hidden_size]

    def _read_words(self, words: torch.LongTensor) -> torch.Tensor:
        """Returns the states `[W, 2 H]` of words: their hidden states, then their cell states."""
        inputs = F.dropout(self.embeddings(words), self.config.input_dropout, self.training)
        input_gate, output_gate, candidate = self.word_projection(inputs).float().chunk(3, dim=-1)
        cell = input_gate.sigmoid() * candidate.tanh()
        return torch.cat([output_gate.sigmoid() * cell.tanh(), cell], dim=-1)

    def _compose(self, parts: torch.Tensor) -> torch.Tensor:
        """Returns the states of constituents `[N, 2 H]` from the states of their two parts, `[N, 2, 2 H]`."""
        hiddens, cells = parts.chunk(2, dim=-1)
        gates = self.composition(hiddens.flatten(1)).float().chunk(5, dim=-1)
        input_gate, left_forget_gate, right_forget_gate, output_gate = (gate.sigmoid() for gate in gates[:4])
        cell = input_gate * gates[4].tanh() + left_forget_gate * cells[:, 0] + right_forget_gate * cells[:, 1]
        return torch.cat([output_gate * cell.tanh(), cell], dim=-1)


class TreeLSTMForSequencePairClassification(SequencePairClassifier, TreeLSTMPreTrainedModel):
    """A Tree-LSTM that composes both sequences of a pair, and a classifier that compares the states of their roots."""

    def __init__(self, config: TreeLSTMConfig):
        super().__init__(config)
        self.model = TreeLSTMModel(config)
        self.classifier = PairClassifier(config.hidden_size, config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        input_ids_pair: torch.LongTensor | None = None,
        attention_mask_pair: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        labels: torch.LongTensor | None = None,
    ) -> SequenceClassifierOutput | tuple:
        """Takes the arguments of `SequencePairClassifier`."""
        both = stacked_sides(input_ids, attention_mask, input_ids_pair, attention_mask_pair, token_type_ids)
        # `chunk` instead of `unflatten` would fix the batch size of an exported graph.
        left, right = self.model(*both).unflatten(0, (2, -1))
        logits = self.classifier(left, right)
        loss = None if labels is None else class_loss(self, labels, logits)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class TreeLSTMForSequenceClassification(TreeLSTMPreTrainedModel):
    """A Tree-LSTM that composes one sequence, and a linear map that classifies the state of its root."""

    auto_class_name = "AutoModelForSequenceClassification"

    def __init__(self, config: TreeLSTMConfig):
        super().__init__(config)
        self.model = TreeLSTMModel(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput | tuple:
        """Takes the arguments of `TreeLSTMModel`, and `labels` as for `SequenceClassifier`."""
        logits = self.score(self.model(input_ids, attention_mask))
        loss = None if labels is None else class_loss(self, labels, logits)
        return SequenceClassifierOutput(loss=loss, logits=logits)
