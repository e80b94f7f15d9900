"""The binary Tree-LSTM of Tai, Socher & Manning (ACL 2015, section 3.2), which composes along gold brackets."""

from itertools import compress
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

from .configuration_tree_lstm import TreeLSTMConfig
from .heads import PairClassifier, SequencePairClassifier, class_loss, stacked_sides
from .state import RecurrentPreTrainedModel, check_inputs, real_tokens


class TreeLevels(NamedTuple):
    """Binary trees of a whole batch, level by level, so that each level is one step.

    Level 0 has the words of all trees, and level `h` the constituents of height `h`. Each level passes its nodes to
    the level of their parent, and roots to a final level. Nodes are sorted by receiving level, so they are passed as
    slices. A level concatenates the slices that it receives, lowest sender first.

    Attributes:
        words: `[W]`, the token of every word.
        receivers_per_level: for each level, how many nodes it passes to each level; the last entry is the final level.
        parts: for each level above 0, the indices of the left and the right part of each constituent among the nodes
            that the level receives, `[N, 2]`.
        roots: `[B]`, the index of each tree among the nodes that the final level receives.
    """

    words: torch.LongTensor
    receivers_per_level: list[list[int]]
    parts: list[torch.LongTensor]
    roots: torch.LongTensor


def read_brackets(rows: list[list[int]], open_bracket_id: int, close_bracket_id: int) -> TreeLevels:
    """Reads the trees of token ids with brackets, each of which holds two constituents or words.

    Raises:
        ValueError: if the brackets of a row make no binary tree.
    """
    # Nodes are numbered by where they end. Each has its height, its receiving level, and its token or its two parts.
    heights: list[int] = []
    receivers: list[int] = []
    contents: list = []
    roots: list[int] = []
    for number, row in enumerate(rows):
        stack: list[int | None] = []  # node numbers, and `None` for each open bracket
        for token in row:
            if token == open_bracket_id:
                stack.append(None)
                continue
            height, content = 0, token
            if token == close_bracket_id:
                if len(stack) < 3 or [node is None for node in stack[-3:]] != [True, False, False]:
                    raise ValueError(f"sequence {number} is no binary tree: a bracket must close exactly two parts")
                _, left, right = stack[-3:]
                height, content = max(heights[left], heights[right]) + 1, (left, right)
                receivers[left] = receivers[right] = height
                del stack[-3:]
            stack.append(len(heights))
            heights.append(height)
            receivers.append(-1)
            contents.append(content)
        if len(stack) != 1 or stack[0] is None:
            raise ValueError(f"sequence {number} is no binary tree: one pair of brackets must enclose all of it")
        roots.append(stack[0])

    end = max(heights) + 1
    for root in roots:
        receivers[root] = end
    levels: list[list[int]] = [[] for _ in range(end)]
    for node in sorted(range(len(heights)), key=receivers.__getitem__):
        levels[heights[node]].append(node)
    receivers_per_level = [[0] * (end + 1) for _ in levels]
    num_received, places = [0] * (end + 1), [0] * len(heights)
    for level, counts in zip(levels, receivers_per_level, strict=True):
        for node in level:
            receiver = receivers[node]
            places[node] = num_received[receiver]
            num_received[receiver] += 1
            counts[receiver] += 1
    words, *constituents = [[contents[node] for node in level] for level in levels]
    return TreeLevels(
        torch.tensor(words),
        receivers_per_level,
        [torch.tensor([[places[left], places[right]] for left, right in level]) for level in constituents],
        torch.tensor([places[root] for root in roots]),
    )


class TreeLSTMPreTrainedModel(RecurrentPreTrainedModel):
    """Loading, saving and initialisation of all Tree-LSTMs."""

    config: TreeLSTMConfig
    config_class = TreeLSTMConfig


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
        check_inputs(self.embeddings, input_ids, None)
        real = real_tokens(attention_mask, input_ids.shape, input_ids.device)
        mask = torch.ones_like(input_ids) if real is None else real
        rows = [list(compress(*row)) for row in zip(input_ids.tolist(), mask.tolist(), strict=True)]
        trees = read_brackets(rows, self.config.open_bracket_id, self.config.close_bracket_id)
        device = input_ids.device

        # The state of a node is its hidden state, then its cell state.
        words = F.dropout(self.embeddings(trees.words.to(device)), self.config.input_dropout, self.training)
        input_gate, output_gate, candidate = self.word_projection(words).float().chunk(3, dim=-1)
        cell = input_gate.sigmoid() * candidate.tanh()
        states = torch.cat([output_gate.sigmoid() * cell.tanh(), cell], dim=-1)
        received: list[list[torch.Tensor]] = [[] for _ in range(len(trees.receivers_per_level) + 1)]

        def pass_on(states: torch.Tensor, counts: list[int]) -> None:
            for receiver, part in zip(received, states.split(counts), strict=True):
                receiver.append(part)

        pass_on(states, trees.receivers_per_level[0])
        for level, parts in enumerate(trees.parts, start=1):
            states = self._compose(_collect(received[level], parts.to(device)))
            pass_on(states, trees.receivers_per_level[level])
        return _collect(received[-1], trees.roots.to(device))[:, : self.config.hidden_size]

    def _compose(self, parts: torch.Tensor) -> torch.Tensor:
        """Returns the states of constituents `[N, 2 H]` from the states of their two parts, `[N, 2, 2 H]`."""
        hiddens, cells = parts.chunk(2, dim=-1)
        gates = self.composition(hiddens.flatten(1)).float().chunk(5, dim=-1)
        input_gate, left_forget_gate, right_forget_gate, output_gate = (gate.sigmoid() for gate in gates[:4])
        cell = input_gate * gates[4].tanh() + left_forget_gate * cells[:, 0] + right_forget_gate * cells[:, 1]
        return torch.cat([output_gate * cell.tanh(), cell], dim=-1)


def _collect(received: list[torch.Tensor], places: torch.LongTensor) -> torch.Tensor:
    """Returns the received states at the given indices. The gradient of plain indexing is slower."""
    return F.embedding(places, torch.cat(received))


class TreeLSTMForSequencePairClassification(SequencePairClassifier, TreeLSTMPreTrainedModel):
    """A Tree-LSTM that composes both sequences of a pair, and a classifier that compares the states of their roots."""

    auto_class_name = "AutoModelForSequenceClassification"

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
        r"""
        Args:
            input_ids, attention_mask, input_ids_pair, attention_mask_pair, token_type_ids: see `stacked_sides`.
            labels: `(batch_size,)`, the class of every pair, from 0 to `config.num_labels - 1`.
        """
        both = stacked_sides(input_ids, attention_mask, input_ids_pair, attention_mask_pair, token_type_ids)
        # `chunk` instead of `unflatten` would fix the batch size of an exported graph.
        left, right = self.model(*both).unflatten(0, (2, -1))
        logits, loss = self.classifier(left, right), None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class TreeLSTMForSequenceClassification(TreeLSTMPreTrainedModel):
    """A Tree-LSTM that composes one sequence, and a linear map that classifies the state of its root."""

    auto_class_name = "AutoModelForSequenceClassification"
    accepts_loss_kwargs = False

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
        r"""
        Args:
            input_ids: `(batch_size, sequence_length)`, words and brackets.
            attention_mask: the same shape, 0 at padding on either side.
            labels: see `SequenceClassifier` in `heads.py`.

        Returns:
            A `SequenceClassifierOutput`, or a tuple with `return_dict=False`.

        Raises:
            ValueError: if the brackets of a sequence make no binary tree.
        """
        logits = self.score(self.model(input_ids, attention_mask))
        loss = None if labels is None else class_loss(self, labels, logits)
        return SequenceClassifierOutput(loss=loss, logits=logits)
