"""`pipeline("constituency-parsing")`: from raw sentences to plain records of the trees that a model induces."""

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import islice
from types import GeneratorType

from torch.utils.data import Dataset
from transformers import Pipeline

from ..text.word_alignment import encode_sentence
from ..utils.tokenizer_check import tokenizer_fingerprint

CONSTITUENCY_PARSING = "constituency-parsing"
# Options of `parse` that the pipeline sets itself.
OWN_OPTIONS = ("batch_size", "progress", "units")


class ConstituencyParsingPipeline(Pipeline):
    """Parses sentences with a model that has `parse`, such as `ONLSTMForCausalLM`.

    ```python
    >>> from transformers import pipeline
    >>> parse = pipeline("constituency-parsing", model=path)  # trust_remote_code=True without `import onlstm_hf`
    >>> parse("the old cat", layer=1)["brackets"]
    '(the (old cat))'

    ```

    A string gives one record. A list, or another sequence such as a column of a dataset, gives a list of them; a
    generator, another iterator or a `torch.utils.data.Dataset` gives them one by one while it is read. A record is a
    dictionary of plain values, which JSON can hold:

    - `words`: the words as they stand in the text.
    - `brackets`: the tree, as `InducedTree.to_bracket` writes it.
    - `spans`: a dictionary for each constituent of two words or more, in the order in which they begin, the longest
      first: its `text`, and half-open pairs of places, `start` and `end` in characters of the sentence and
      `word_start` and `word_end` in words.
    - `distances`: a number for each word.

    Options, here or in a call: `batch_size` (64; it changes the speed alone) and those of the model's `parse`, which
    are `layer`, `branching_bias`, `max_length`, and what only some models have, such as `hard`.

    Raises:
        ValueError: if the model induces no trees or lacks an option, or the input is no text.
    """

    _load_tokenizer = True

    def __init__(self, model, *args, batch_size: int = 64, **kwargs):
        if not getattr(model, "induces_trees", False):
            raise ValueError(
                f'a model of type "{model.config.model_type}" induces no trees: the task {CONSTITUENCY_PARSING} needs '
                'one with `parse`, such as "onlstm"'
            )
        super().__init__(model, *args, batch_size=batch_size, **kwargs)

    def __call__(self, inputs: str | Iterable[str], **options) -> dict | list[dict] | Iterator[dict]:
        """See the class. Options that are given here hold for this call."""
        if isinstance(inputs, Mapping) or not isinstance(inputs, Iterable | Dataset):
            raise ValueError(f"{CONSTITUENCY_PARSING} needs a sentence or several, not a {type(inputs).__name__}")
        if not isinstance(inputs, str | Dataset | GeneratorType):
            inputs = list(inputs) if isinstance(inputs, Sized) else (sentence for sentence in inputs)
        return super().__call__(inputs, **options) if inputs != [] else []

    def save_pretrained(self, save_directory: str | os.PathLike, **options) -> None:
        """Saves the model, which names this pipeline, brings its code and knows its tokenizer, and the tokenizer."""
        self.model.config.tokenizer_fingerprint = tokenizer_fingerprint(self.tokenizer)
        self.model.save_pretrained(save_directory, **options)
        self.tokenizer.save_pretrained(save_directory, **options)

    def _sanitize_parameters(self, **options) -> tuple[dict, dict, dict]:
        known = [name for name in _parse_options(type(self.model)) if name not in OWN_OPTIONS]
        for name in options:
            if name not in known:
                raise ValueError(
                    f'a model of type "{self.model.config.model_type}" has no option {name} in parsing, only '
                    f"{', '.join(known)}"
                )
        return {}, options, {}

    def get_iterator(
        self,
        inputs: Iterable[str],
        num_workers: int,
        batch_size: int,
        preprocess_params: dict,
        forward_params: dict,
        postprocess_params: dict,
    ) -> Iterator[dict]:
        """The records, a batch at a time. No workers and no padding are needed: `parse` does what there is to do."""
        sentences = iter(inputs)
        while batch := list(islice(sentences, batch_size)):
            encoded = [self.preprocess(sentence) for sentence in batch]
            yield from map(self.postprocess, self.forward(encoded, **forward_params))

    def run_single(self, inputs: str, preprocess_params: dict, forward_params: dict, postprocess_params: dict) -> dict:
        return next(self.get_iterator([inputs], 0, 1, preprocess_params, forward_params, postprocess_params))

    def preprocess(self, sentence: str) -> dict:
        """The text and the character offsets of its words."""
        if not isinstance(sentence, str):
            raise ValueError(f"{CONSTITUENCY_PARSING} needs sentences that are strings, not {type(sentence).__name__}")
        return {"text": sentence, "offsets": encode_sentence(self.tokenizer, sentence)[3]}

    def _forward(self, encoded: list[dict], **parse_options) -> list[dict]:
        """Adds its tree to each sentence of a batch."""
        texts = [sentence["text"] for sentence in encoded]
        trees = self.model.parse(texts, self.tokenizer, batch_size=len(texts), progress=False, **parse_options)
        return [sentence | {"tree": tree} for sentence, tree in zip(encoded, trees, strict=True)]

    def postprocess(self, sentence: dict) -> dict:
        """The record of a sentence."""
        text, offsets, tree = sentence["text"], sentence["offsets"], sentence["tree"]
        spans = []
        for word_start, word_end in tree.spans():
            start, end = offsets[word_start][0], offsets[word_end - 1][1]
            spans.append(
                {"text": text[start:end], "start": start, "end": end, "word_start": word_start, "word_end": word_end}
            )
        return {
            "words": list(tree.words),
            "brackets": tree.to_bracket(),
            "spans": spans,
            "distances": list(tree.distances),
        }


def _parse_options(model_class: type) -> list[str]:
    """The names of the options of `parse`, where a class may add its own to those of the next."""
    methods = [vars(base)["parse"] for base in model_class.__mro__ if "parse" in vars(base)]
    parameters = [parameter for method in methods for parameter in inspect.signature(method).parameters.values()]
    return [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]


__all__ = ["ConstituencyParsingPipeline"]
