"""Inside and outside recursions of a grammar with independent children, for batches of sentences of one length.

A rule of the grammar is `A -> B C` with the probability `p(A -> B C) = left(B | A) right(C | A)` (SimplePCFG, Liu et
al., Findings of EMNLP 2023). Hence the sum over pairs of children is a product of two sums over single children, and
the cost of a split is linear in the number of nonterminals. With `i < k < j`, and word `i` between `i` and `i + 1`:

    inside(A, i, j) = exp(score(i, j)) sum over k of Left(A, i, k) Right(A, k, j)
    Left(A, i, k)   = sum over B of left(B | A) inside(B, i, k)        B a preterminal if k = i + 1, else a nonterminal
    Right(A, k, j)  = sum over C of right(C | A) inside(C, k, j)
    Z               = sum over A of root(A) inside(A, 0, n)

`score(i, j)` is the log weight of the span. Without scores (all 0), Z is the probability of the sentence. The
derivative of log Z with respect to `score(i, j)` is the probability that the tree of a sentence has the span.

Sums are stored as `exp(scale(i, j)) value(A, i, j)`, where the largest value of a span is 1. This takes one logarithm
per span and one exponential per split, instead of one per nonterminal.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable


class GrammarScores(NamedTuple):
    """Scores of words in sentences of one length, and rules over nonterminals.

    Attributes:
        left_words, right_words: `[B, n, N]`, `Left` and `Right` of single words, divided by `exp(word_scales)`.
        word_scales: `[B, n]`, treated as constants, because their choice does not change the result.
        left: `[N, N]`, probability of each nonterminal (column) as the left child of each nonterminal (row).
        right: `[N, N]`, the same for right children.
        root: `[N]`, probability of each nonterminal at the root.
        spans: `[B, n + 1, n + 1]`, `score(i, j)` of spans of two words or more; `None` if all are 0.
    """

    left_words: torch.Tensor
    right_words: torch.Tensor
    word_scales: torch.Tensor
    left: torch.Tensor
    right: torch.Tensor
    root: torch.Tensor
    spans: torch.Tensor | None = None


def log_partition(scores: GrammarScores) -> torch.Tensor:
    """Returns log Z of each sentence of two words or more, `[B]`. It can be differentiated once."""
    return _LogPartition.apply(*scores)


def span_marginals(scores: GrammarScores) -> torch.Tensor:
    """Returns the probability of each span of two words or more, `[B, n + 1, n + 1]`; 0 elsewhere."""
    with torch.no_grad():
        chart = _Chart(scores)
        return chart.gradients(torch.ones_like(chart.log_partition)).spans


class _LogPartition(torch.autograd.Function):
    """Log Z that saves only the tables of the spans. Autograd would save a tensor for every split of each span."""

    @staticmethod
    def forward(ctx, *scores: torch.Tensor | None) -> torch.Tensor:
        ctx.chart = _Chart(GrammarScores(*scores))
        return ctx.chart.log_partition

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients = ctx.chart.gradients(gradient)
        return tuple(value if needed else None for value, needed in zip(gradients, ctx.needs_input_grad, strict=True))


class _Chart:
    """Inside sums of all spans of a batch.

    One table, indexed by width and start, has the left parts of all spans of a width in one slice. Another table,
    indexed by width and end, has the right parts. Its rows are in reverse order, from wide to narrow spans, because
    the right part of a split is narrow where the left part is wide.
    """

    def __init__(self, scores: GrammarScores):
        self.scores = scores
        batch, self.num_words, size = scores.left_words.shape
        n, new = self.num_words, scores.left_words.new_zeros
        # Row w of the left tables has the spans of w words by start. Row n - w of the right tables has them by end.
        self.left, self.right = new(batch, n, n, size), new(batch, n, n + 1, size)
        self.left_scales, self.right_scales = new(batch, n, n), new(batch, n, n + 1)
        self.values: dict[int, torch.Tensor] = {}
        self.sums: dict[int, torch.Tensor] = {}
        self._store(1, scores.left_words, scores.right_words, scores.word_scales)
        for width in range(2, n + 1):
            left, right, weights, scales = self._parts(width)
            sums = (left * weights.unsqueeze(-1)).mul_(right).sum(1)
            largest = sums.amax(-1, keepdim=True).clamp_min_(torch.finfo(sums.dtype).tiny)
            values, scales = sums / largest, scales + largest.squeeze(-1).log()
            if scores.spans is not None:
                scales = scales + scores.spans.diagonal(width, 1, 2)
            self.values[width], self.sums[width] = values, largest
            if width < n:
                self._store(width, values @ scores.left.T, values @ scores.right.T, scales)
        self.root_sum = self.values[n][:, 0] @ scores.root
        self.log_partition = scales[:, 0] + self.root_sum.log()

    def _left_rows(self, width: int, table: torch.Tensor) -> torch.Tensor:
        """Returns the left parts of all spans of a width, `[B, width - 1, number of spans, ...]`, narrowest first."""
        return table[:, 1:width, : self.num_words - width + 1]

    def _right_rows(self, width: int, table: torch.Tensor) -> torch.Tensor:
        """Returns the right parts of the same splits, widest first."""
        return table[:, self.num_words - width + 1 : self.num_words, width:]

    def _parts(self, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns values of the left and right parts of all splits, weights of the splits, and scales of the spans."""
        scales = self._left_rows(width, self.left_scales) + self._right_rows(width, self.right_scales)
        largest = scales.amax(1, keepdim=True)
        weights = (scales - largest).exp_()
        return self._left_rows(width, self.left), self._right_rows(width, self.right), weights, largest.squeeze(1)

    def _store(self, width: int, left: torch.Tensor, right: torch.Tensor, scales: torch.Tensor) -> None:
        last = self.num_words - width
        self.left[:, width, : last + 1], self.right[:, last, width:] = left, right
        self.left_scales[:, width, : last + 1], self.right_scales[:, last, width:] = scales, scales

    def gradients(self, gradient: torch.Tensor) -> GrammarScores:
        """Returns the gradients of log Z with respect to all scores, times `gradient` `[B]`.

        This is the outside recursion: from wide to narrow spans, each span passes its gradient on to its parts. Scales
        are constants, since their choice does not change the sums.
        """
        scores, n = self.scores, self.num_words
        left, right = torch.zeros_like(self.left), torch.zeros_like(self.right)
        by_left, by_right = torch.zeros_like(scores.left), torch.zeros_like(scores.right)
        batch = len(gradient)
        spans = scores.left_words.new_zeros(batch, n + 1, n + 1)
        of_root = (gradient / self.root_sum).unsqueeze(-1)
        by_root = (of_root * self.values[n][:, 0]).sum(0)
        of_values = (of_root * scores.root).unsqueeze(1)
        for width in range(n, 1, -1):
            values = self.values[width]
            if width < n:
                of_left, of_right = left[:, width, : n - width + 1], right[:, n - width, width:]
                of_values = of_left @ scores.left + of_right @ scores.right
                by_left += of_left.flatten(0, 1).T @ values.flatten(0, 1)
                by_right += of_right.flatten(0, 1).T @ values.flatten(0, 1)
            spans.diagonal(width, 1, 2).copy_((of_values * values).sum(-1))
            left_parts, right_parts, weights, _ = self._parts(width)
            of_sums = (of_values / self.sums[width]).unsqueeze(1) * weights.unsqueeze(-1)
            self._left_rows(width, left).addcmul_(of_sums, right_parts)
            self._right_rows(width, right).addcmul_(of_sums, left_parts)
        return GrammarScores(left[:, 1], right[:, n - 1, 1:], None, by_left, by_right, by_root, spans)
