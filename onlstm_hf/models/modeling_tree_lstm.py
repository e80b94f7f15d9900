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

    Level 0 has the words of all trees, and level `h` the constituents of height `h`. A level hands every node on to
    the level of the constituent that the node is a part of, and the whole of a tree to one level more at the end. Its
    nodes are in the order of the levels that they go to, so that it hands them on as slices; and a level puts
    together what it is handed in the order of the givers.

    Attributes:
        words: `[W]`, the token of every word.
        handed_on: for each level, how many of its nodes it hands on to each level, the one at the end included.
        parts: for each level from 1 on, where in what it is handed the left and the right part of each constituent
            are, `[N, 2]`.
        roots: `[B]`, where in what is handed to the end each tree is.
    """

    words: torch.LongTensor
    handed_on: list[list[int]]
    parts: list[torch.LongTensor]
    roots: torch.LongTensor


def read_brackets(rows: list[list[int]], open_bracket_id: int, close_bracket_id: int) -> TreeLevels:
    """Reads the trees of token ids with brackets, each of which holds two constituents or words.

    Raises:
        ValueError: if the brackets of a row make no binary tree.
    """
    # Nodes are numbered in the order in which they end. Each has its height, the level that it is handed to, and its
    # token or its two parts.
    heights: list[int] = []
    receivers: list[int] = []
    contents: list = []
    roots: list[int] = []
    for number, row in enumerate(rows):
        stack: list[int | None] = []  # numbers of nodes, and `None` for every bracket that is still open
        for token in row:
            if token == open_bracket_id:
                stack.append(None)
                continue
            height, content = 0, token
            if token == close_bracket_id:
                if len(stack) < 3 or [node is None for node in stack[-3:]] != [True, False, False]:
                    raise ValueError(f"sequence {number} is no binary tree: a bracket closes what has not two parts")
                _, left, right = stack[-3:]
                height, content = max(heights[left], heights[right]) + 1, (left, right)
                receivers[left] = receivers[right] = height
                del stack[-3:]
            stack.append(len(heights))
            heights.append(height)
            receivers.append(-1)
            contents.append(content)
        if len(stack) != 1 or stack[0] is None:
            raise ValueError(f"sequence {number} is no binary tree: its brackets must enclose all of it in one pair")
        roots.append(stack[0])

    end = max(heights) + 1
    for root in roots:
        receivers[root] = end
    levels: list[list[int]] = [[] for _ in range(end)]
    for node in sorted(range(len(heights)), key=receivers.__getitem__):
        levels[heights[node]].append(node)
    handed_on = [[0] * (end + 1) for _ in levels]
    num_handed, places = [0] * (end + 1), [0] * len(heights)
    for level, counts in zip(levels, handed_on, strict=True):
        for node in level:
            receiver = receivers[node]
            places[node] = num_handed[receiver]
            num_handed[receiver] += 1
            counts[receiver] += 1
    words, *constituents = [[contents[node] for node in level] for level in levels]
    return TreeLevels(
        torch.tensor(words),
        handed_on,
        [torch.tensor([[places[left], places[right]] for left, right in level]) for level in constituents],
        torch.tensor([places[root] for root in roots]),
    )


class TreeLSTMPreTrainedModel(RecurrentPreTrainedModel):
    """Loading, saving and initialisation of all Tree-LSTMs."""

    config: TreeLSTMConfig
    config_class = TreeLSTMConfig


class TreeLSTMModel(TreeLSTMPreTrainedModel):
    """Composes the words of a bracketed sequence, two constituents at a time."""

    auto_class_name = "AutoModel"

    def __init__(self, config: TreeLSTMConfig):
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        self.word_projection = nn.Linear(config.embedding_size, 3 * config.hidden_size)
        self.composition = nn.Linear(2 * config.hidden_size, 5 * config.hidden_size)
        self.post_init()

    def forward(self, input_ids: torch.LongTensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """The hidden state of each sequence's root, `(num_sequences, hidden_size)`.

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

        # The state of a node: its hidden state and its cell, one after the other.
        words = F.dropout(self.embeddings(trees.words.to(device)), self.config.input_dropout, self.training)
        input_gate, output_gate, candidate = self.word_projection(words).float().chunk(3, dim=-1)
        cell = input_gate.sigmoid() * candidate.tanh()
        states = torch.cat([output_gate.sigmoid() * cell.tanh(), cell], dim=-1)
        received: list[list[torch.Tensor]] = [[] for _ in range(len(trees.handed_on) + 1)]

        def hand_on(states: torch.Tensor, counts: list[int]) -> None:
            for receiver, part in zip(received, states.split(counts), strict=True):
                receiver.append(part)

        hand_on(states, trees.handed_on[0])
        for level, parts in enumerate(trees.parts, start=1):
            states = self._compose(_collect(received[level], parts.to(device)))
            hand_on(states, trees.handed_on[level])
        return _collect(received[-1], trees.roots.to(device))[:, : self.config.hidden_size]

    def _compose(self, parts: torch.Tensor) -> torch.Tensor:
        """The states of constituents, `[N, 2 H]`, from those of their left and right parts, `[N, 2, 2 H]`."""
        hiddens, cells = parts.chunk(2, dim=-1)
        gates = self.composition(hiddens.flatten(1)).float().chunk(5, dim=-1)
        input_gate, left_forget_gate, right_forget_gate, output_gate = (gate.sigmoid() for gate in gates[:4])
        cell = input_gate * gates[4].tanh() + left_forget_gate * cells[:, 0] + right_forget_gate * cells[:, 1]
        return torch.cat([output_gate * cell.tanh(), cell], dim=-1)


def _collect(received: list[torch.Tensor], places: torch.LongTensor) -> torch.Tensor:
    """The states at certain places of what a level received. (Indexing would do, but its gradient is slow.)"""
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
            labels: as for the other models that classify sequences, by `config.problem_type`: the classes
                `(batch_size,)`, 0 or 1 of each class `(batch_size, num_labels)`, or numbers.

        With `return_dict=False` it returns a tuple.

        Raises:
            ValueError: if the brackets of a sequence make no binary tree.
        """
        logits = self.score(self.model(input_ids, attention_mask))
        loss = None if labels is None else class_loss(self, labels, logits)
        return SequenceClassifierOutput(loss=loss, logits=logits)
