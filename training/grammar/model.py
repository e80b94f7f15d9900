"""Neural probabilistic context-free grammar, which computes rule probabilities from embeddings of its symbols.

Kim, Dyer & Rush (ACL 2019), "Compound Probabilistic Context-Free Grammars for Grammar Induction", section 2.1, with
independent children as in Liu et al. (Findings of EMNLP 2023), "Simple Hardware-Efficient PCFGs with Independent Left
and Right Productions".
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from training.grammar.inside import GrammarScores, log_partition, span_marginals


class NeuralGrammarConfig(PreTrainedConfig):
    """Configuration of a `NeuralGrammar`.

    Nonterminals are symbols over two words or more, preterminals over one. `treebank_preprocessing` is the
    preprocessing of gold trees, if not that of the papers.
    """

    model_type = "neural_grammar"

    def __init__(
        self,
        vocab_size: int = 10_000,
        num_nonterminals: int = 40,
        num_preterminals: int = 80,
        hidden_size: int = 128,
        treebank_preprocessing: dict[str, Any] | None = None,
        **kwargs: Any,
    ):
        self.vocab_size, self.num_nonterminals = vocab_size, num_nonterminals
        self.num_preterminals, self.hidden_size = num_preterminals, hidden_size
        self.treebank_preprocessing = treebank_preprocessing
        if min(vocab_size, num_nonterminals, num_preterminals, hidden_size) < 1:
            raise ValueError("vocab_size, num_nonterminals, num_preterminals and hidden_size must be positive")
        super().__init__(**kwargs)


class ResidualLayer(nn.Module):
    """`x + ReLU(V ReLU(U x))`, with biases."""

    def __init__(self, size: int):
        super().__init__()
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.second(self.first(inputs).relu()).relu()


class NeuralGrammar(PreTrainedModel):
    """Grammar over sentences of two words or more; the root is a nonterminal."""

    config_class = NeuralGrammarConfig
    main_input_name = "input_ids"

    def __init__(self, config: NeuralGrammarConfig):
        super().__init__(config)
        size, children = config.hidden_size, config.num_nonterminals + config.num_preterminals
        self.root = nn.Parameter(torch.empty(1, size))
        self.nonterminals = nn.Parameter(torch.empty(config.num_nonterminals, size))
        self.preterminals = nn.Parameter(torch.empty(config.num_preterminals, size))
        self.root_rule = self._layers(size, config.num_nonterminals)
        self.word_rule = self._layers(size, config.vocab_size)
        self.left_rule = self._layers(size, children)
        self.right_rule = self._layers(size, children)
        self.post_init()

    @staticmethod
    def _layers(size: int, num_outcomes: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(size, size), ResidualLayer(size), nn.Linear(size, num_outcomes))

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, NeuralGrammar):
            for vectors in (module.root, module.nonterminals, module.preterminals):
                nn.init.xavier_uniform_(vectors)

    def forward(self, input_ids: torch.Tensor, span_scores: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the log-probability of each sentence, `[B]`; with scores, the log of the weighted sum over trees.

        Args:
            input_ids: `[B, n]`, sentences of one length, one token per word, at least two words.
            span_scores: `[B, n + 1, n + 1]`, added to the log weight of each tree with the span from `i` to `j`.
        """
        return log_partition(self.scores(input_ids, span_scores))

    @torch.no_grad()
    def span_marginals(self, input_ids: torch.Tensor, span_scores: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the probability that the tree of a sentence has the span from `i` to `j`, `[B, n + 1, n + 1]`."""
        return span_marginals(self.scores(input_ids, span_scores))

    def scores(self, input_ids: torch.Tensor, span_scores: torch.Tensor | None = None) -> GrammarScores:
        """Returns the probabilities of the rules and of the words of sentences."""
        root = self.root_rule(self.root).softmax(-1)[0]
        words = self.word_rule(self.preterminals).log_softmax(-1)[:, input_ids].permute(1, 2, 0)
        left, right = self.left_rule(self.nonterminals).softmax(-1), self.right_rule(self.nonterminals).softmax(-1)
        scales = words.detach().amax(-1)
        words = (words - scales.unsqueeze(-1)).exp()
        count = self.config.num_nonterminals
        left_words, right_words = words @ left[:, count:].T, words @ right[:, count:].T
        return GrammarScores(left_words, right_words, scales, left[:, :count], right[:, :count], root, span_scores)
