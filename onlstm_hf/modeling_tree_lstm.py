"""The binary Tree-LSTM of Tai, Socher & Manning (ACL 2015, section 3.2), which composes along gold brackets."""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from .configuration_tree_lstm import TreeLSTMConfig
from .recurrent_language_model import RecurrentModel
from .sequence_pair_classification import ForSequencePairClassification, PairClassifier


class TreeLevels(NamedTuple):
    """Binary trees of a whole batch, level by level, so that each level is one step.

    Nodes are numbered: first the words of all trees, then the constituents of height 1, those of height 2, and so on.

    Attributes:
        words: `[W]`, the token of every word.
        children: for every height, from 1 on, the left and the right child of each constituent, `[2, N]`.
        roots: `[B]`, the node that is the whole of each tree.
    """

    words: torch.LongTensor
    children: list[torch.LongTensor]
    roots: torch.LongTensor


def read_brackets(rows: list[list[int]], open_bracket_id: int, close_bracket_id: int) -> TreeLevels:
    """Reads the trees of token ids with brackets, each of which holds two constituents or words.

    Raises:
        ValueError: if the brackets of a row make no binary tree.
    """
    words: list[int] = []
    levels: list[list[tuple]] = []
    roots: list[tuple[int, int]] = []
    for number, row in enumerate(rows):
        # Nodes as (height, index among those of the height); `None` is a bracket that is open.
        stack: list[tuple[int, int] | None] = []
        for token in row:
            if token == open_bracket_id:
                stack.append(None)
            elif token != close_bracket_id:
                stack.append((0, len(words)))
                words.append(token)
            elif len(stack) < 3 or [node is None for node in stack[-3:]] != [True, False, False]:
                raise ValueError(f"sequence {number} is no binary tree: a bracket closes what has not two parts")
            else:
                _, left, right = stack[-3:]
                height = max(left[0], right[0]) + 1
                if height > len(levels):
                    levels.append([])
                stack[-3:] = [(height, len(levels[height - 1]))]
                levels[height - 1].append((left, right))
        if len(stack) != 1 or stack[0] is None:
            raise ValueError(f"sequence {number} is no binary tree: its brackets must enclose all of it in one pair")
        roots.append(stack[0])

    starts = [0, len(words)]
    for level in levels:
        starts.append(starts[-1] + len(level))
    children = [
        torch.tensor([[starts[height] + index for height, index in side] for side in zip(*level, strict=True)])
        for level in levels
    ]
    return TreeLevels(torch.tensor(words), children, torch.tensor([starts[height] + index for height, index in roots]))


class TreeLSTMModel(RecurrentModel):
    """Composes the words of a bracketed sequence, two constituents at a time."""

    config: TreeLSTMConfig
    config_class = TreeLSTMConfig

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
        self.check_inputs(input_ids, None)
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        rows = [ids[keep].tolist() for ids, keep in zip(input_ids.cpu(), mask.cpu().bool(), strict=True)]
        trees = read_brackets(rows, self.config.open_bracket_id, self.config.close_bracket_id)
        device = input_ids.device

        words = F.dropout(self.embeddings(trees.words.to(device)), self.config.input_dropout, self.training)
        input_gate, output_gate, candidate = self.word_projection(words).float().chunk(3, dim=-1)
        cell = input_gate.sigmoid() * candidate.tanh()
        hiddens, cells = output_gate.sigmoid() * cell.tanh(), cell
        for children in trees.children:
            left, right = children.to(device)
            pair = torch.cat([hiddens[left], hiddens[right]], dim=-1)
            gates = self.composition(pair).float().chunk(5, dim=-1)
            input_gate, left_forget_gate, right_forget_gate, output_gate = (gate.sigmoid() for gate in gates[:4])
            cell = input_gate * gates[4].tanh() + left_forget_gate * cells[left] + right_forget_gate * cells[right]
            hiddens = torch.cat([hiddens, output_gate * cell.tanh()])
            cells = torch.cat([cells, cell])
        return hiddens[trees.roots.to(device)]


class TreeLSTMForSequencePairClassification(ForSequencePairClassification):
    """A Tree-LSTM that composes both sequences of a pair, and a classifier that compares what it made of them."""

    config: TreeLSTMConfig
    config_class = TreeLSTMConfig

    def __init__(self, config: TreeLSTMConfig):
        super().__init__(config)
        self.model = TreeLSTMModel(config)
        self.classifier = PairClassifier(config.hidden_size, config.num_labels, config.classifier_dropout)
        self.post_init()

    def encode(self, input_ids: torch.LongTensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """The hidden states of the roots."""
        return self.model(input_ids, attention_mask)


__all__ = ["TreeLSTMForSequencePairClassification", "TreeLSTMModel"]
