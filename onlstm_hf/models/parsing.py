"""`parse()` without the package `onlstm_hf`. The package's own `parse` gives the same trees and has more options."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import torch
from tokenizers import PreTokenizedString
from torch.nn.utils.rnn import pad_sequence
from transformers import Pipeline, PreTrainedTokenizerBase

# A number that a normalizer replaced by N: the first digit after the previous word, and all that follows.
_NUMBER = re.compile(r"\.?\d.*", re.DOTALL)


@dataclass(frozen=True)
class Tree:
    """A binary constituency tree over the words of a sentence, with the syntactic distance of each word."""

    words: tuple[str, ...]
    distances: tuple[float, ...]
    constituents: tuple[tuple[int, int], ...]  # half-open word spans, by start, then longest first

    def spans(self) -> list[tuple[int, int]]:
        """Returns the constituents, including the whole sentence."""
        return list(self.constituents)

    def to_bracket(self) -> str:
        """Returns the tree as text, `(the (old cat))`; brackets in words are escaped as in the Penn Treebank."""
        escaped = (re.sub(r"\\|-(?=[LR]RB[-()])", r"\\\g<0>", word) for word in self.words)
        escaped = (word.replace("(", "-LRB-").replace(")", "-RRB-") for word in escaped)
        words = [re.sub(r"\s", lambda space: f"\\u{ord(space[0]):04x}", word) for word in escaped]
        if len(words) < 2:
            return f"({''.join(words)})"
        for start, end in self.constituents:
            words[start], words[end - 1] = f"({words[start]}", f"{words[end - 1]})"
        return " ".join(words)

    def __getattr__(self, name: str):
        """Raises an error that names the package, which has `to_svg`, `compare` and more."""
        raise AttributeError(f"no {name} without onlstm_hf: install its wheel, or `pip install .` in a checkout")

    __str__ = to_bracket


def tree_from_distances(distances: Sequence[float], words: Sequence[str], branching_bias: str = "right") -> Tree:
    """Splits a sentence at its largest syntactic distance (the first in a tie), and its parts likewise.

    The `branching_bias` is `"right"`, the papers' rule `[before i, [i, after i]]`, or `"none"`, `[before i, from i]`.
    """
    if branching_bias not in ("right", "none"):
        raise ValueError(f'branching_bias must be "right" or "none" without the package, not {branching_bias!r}')
    is_right, spans, parts = branching_bias == "right", set(), [(0, len(words))]
    while parts:
        start, end = parts.pop()
        if end - start > 1:
            split = max(range(start if is_right else start + 1, end), key=distances.__getitem__)
            spans |= {(start, end), (split, end)}
            parts += [(start, split), (split + is_right, end)]
    constituents = sorted((span for span in spans if span[1] - span[0] > 1), key=lambda span: (span[0], -span[1]))
    return Tree(tuple(words), tuple(distances), tuple(constituents))


def encode_sentence(
    tokenizer: PreTrainedTokenizerBase, sentence: str
) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Returns the offsets and the token ids of each word in a sentence.

    The tokenizer's own rule finds the words if the package built it; otherwise they are split at whitespace. A token
    belongs to the word in which it begins. A word without tokens gets the unknown token.
    """
    backend, offsets, previous_end = tokenizer.backend_tokenizer, [], 0
    if type(backend.model).__name__ == "WordLevel" or getattr(backend.model, "continuing_subword_prefix", None):
        pieces = PreTokenizedString(sentence)
        if backend.normalizer is not None:
            pieces.normalize(backend.normalizer.normalize)
        backend.pre_tokenizer.pre_tokenize(pieces)
        for piece, (start, end), _ in pieces.get_splits("original", "char"):
            number = _NUMBER.search(sentence[previous_end:end])
            if piece == "N" and sentence[start:end] != "N" and number:
                start = previous_end + number.start()
            offsets.append((start, end))
            previous_end = end
    else:
        offsets = [match.span() for match in re.finditer(r"\S+", sentence)]
    encoding = tokenizer(sentence, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ends, tokens = [end for _, end in offsets], [[] for _ in offsets]
    token_offsets = zip(encoding["input_ids"], encoding["offset_mapping"], strict=True) if offsets else ()
    for token, (start, end) in token_offsets:
        start += len(sentence[start:end]) - len(sentence[start:end].lstrip())  # a space belongs to the next word
        tokens[min(bisect_right(ends, start), len(ends) - 1)].append(token)
    return offsets, [ids or [tokenizer.unk_token_id] for ids in tokens]


class ParsingMixin:
    """Adds `parse` to a model with `syntactic_distances(input_ids, attention_mask, layer=...)`."""

    induces_trees = True

    @torch.no_grad()
    def parse(
        self,
        sentences: str | Iterable[str],
        tokenizer: PreTrainedTokenizerBase,
        *,
        layer: int | None = None,
        branching_bias: str = "right",
        batch_size: int = 64,
        **options,
    ) -> Tree | list[Tree]:
        """Returns the constituency trees that the model induces for one sentence or several.

        Each sentence follows one `<eos>`, as at the start of a line of the training text. A word's distance is that of
        its first token.

        Args:
            sentences: a string, or several.
            tokenizer: the checkpoint's fast tokenizer.
            layer: layer whose distances are used, counted from 0; the configuration's `parse_layer` by default.
            branching_bias: see `tree_from_distances`.
            batch_size: sentences per forward pass.
        """
        if isinstance(sentences, str):
            return self.parse([sentences], tokenizer, layer=layer, branching_bias=branching_bias, **options)[0]
        in_training, trees, sentences = {module for module in self.modules() if module.training}, {}, list(sentences)
        if options or not all(isinstance(sentence, str) for sentence in sentences):
            raise ValueError(
                "without onlstm_hf parsing takes strings and the options layer, branching_bias and batch_size, not "
                f"{', '.join(options) or 'lists of words or ids'}: install its wheel, or `pip install .` in a checkout"
            )
        encoded = [encode_sentence(tokenizer, sentence) for sentence in sentences]
        ids = [[tokenizer.eos_token_id, *chain.from_iterable(tokens)] for _, tokens in encoded]
        order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
        self.eval()
        try:
            for start in range(0, len(order), batch_size):
                batch = order[start : start + batch_size]
                rows = [torch.tensor(ids[index], device=self.device) for index in batch]
                mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
                distances, _ = self.syntactic_distances(pad_sequence(rows, batch_first=True), mask, layer=layer)
                for index, row in zip(batch, distances.float().tolist(), strict=True):
                    words = [sentences[index][start:end] for start, end in encoded[index][0]]
                    first_tokens = accumulate(map(len, encoded[index][1]), initial=1)
                    by_word = [row[place] for _, place in zip(words, first_tokens, strict=False)]
                    trees[index] = tree_from_distances(by_word, words, branching_bias)
        finally:
            self.apply(lambda module: setattr(module, "training", module in in_training))
        return [trees[index] for index in range(len(encoded))]


class ConstituencyParsingPipeline(Pipeline):
    """`pipeline("constituency-parsing")`: gives the record of each sentence's tree, as the package does."""

    _load_tokenizer = True

    def _sanitize_parameters(self, **options) -> tuple[dict, dict, dict]:
        return {}, options, {}

    def preprocess(self, sentence: str) -> dict:
        return {"text": sentence if isinstance(sentence, str) else [sentence]}  # `parse` refuses a list of lists

    def _forward(self, inputs: dict, **options) -> dict:
        return inputs | {"tree": self.model.parse(inputs["text"], self.tokenizer, **options)}  # one, or a batch

    def postprocess(self, outputs: dict) -> dict:
        text, tree = outputs["text"], outputs["tree"]
        offsets, tokens = encode_sentence(self.tokenizer, text)
        spans = []
        for word_start, word_end in tree.spans():
            start, end = offsets[word_start][0], offsets[word_end - 1][1]
            places = {"start": start, "end": end, "word_start": word_start, "word_end": word_end}
            spans.append({"text": text[start:end], **places})
        return {
            "text": text,
            "words": list(tree.words),
            "offsets": [list(place) for place in offsets],
            "unknown": [self.tokenizer.unk_token_id in ids for ids in tokens],
            "brackets": tree.to_bracket(),
            "spans": spans,
            "distances": list(tree.distances),
        }
