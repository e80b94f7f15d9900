"""`pipeline("constituency-parsing")`: turns raw sentences into records of the trees that a model induces."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import islice

from torch.utils.data import Dataset
from transformers import Pipeline
from transformers.utils.logging import get_logger

from ..text.sentence_splitting import sentence_splitter
from ..utils.tokenizer_check import tokenizer_fingerprint

logger = get_logger(__name__)


class ConstituencyParsingPipeline(Pipeline):
    """Parses sentences with a model that has `parse`, such as `ONLSTMForCausalLM`.

    ```python
    >>> from transformers import pipeline
    >>> parse = pipeline("constituency-parsing", model=path)  # trust_remote_code=True without `import onlstm_hf`
    >>> parse("the old cat", layer=1)["brackets"]
    '(the (old cat))'

    ```

    A string gives one record. A list, or another sequence such as a column of a dataset, gives a list of records. A
    generator, another iterator or a `torch.utils.data.Dataset` gives records lazily. A record is a JSON-compatible
    dictionary: `text`, `words`, `offsets`, `unknown`, `brackets`, `spans` and `distances` (`InducedTree.to_record`).

    With `split_sentences` (`True`, or a language code such as `"de"`) a string is split into sentences and gives a
    list of records. Each also has `start`, the position of its sentence in the string. Without it a string counts as
    one sentence, and a warning names each string that has several.

    Options, here or in a call: `batch_size` (64; it only changes the speed) and those of the model's `parse`: `layer`,
    `branching_bias`, `punctuation`, `max_length`, and options of some models, such as `hard`.

    Raises:
        ValueError: if the model induces no trees, or the input is no text.
    """

    _load_tokenizer = True

    def __init__(self, model, *args, batch_size: int = 64, **kwargs):
        if not getattr(model, "induces_trees", False):
            raise ValueError(f'a model of type "{model.config.model_type}" induces no trees: choose one that does')
        super().__init__(model, *args, batch_size=batch_size, **kwargs)

    def __call__(self, inputs: str | Iterable[str], **options) -> dict | list[dict] | Iterator[dict]:
        """See the class. Options given here apply to this call."""
        if isinstance(inputs, Iterable) and not isinstance(inputs, str | Mapping | Dataset):
            inputs = list(inputs) if isinstance(inputs, Sized) else (sentence for sentence in inputs)
        return super().__call__(inputs, **options) if inputs != [] else []

    def save_pretrained(self, save_directory: str | os.PathLike, **options) -> None:
        """Saves the model with its code, this pipeline's name and the tokenizer's fingerprint; and the tokenizer."""
        self.model.config.tokenizer_fingerprint = tokenizer_fingerprint(self.tokenizer)
        self.model.save_pretrained(save_directory, **options)
        self.tokenizer.save_pretrained(save_directory, **options)

    def _sanitize_parameters(self, split_sentences: bool | str = False, **options) -> tuple[dict, dict, dict]:
        return {"split_sentences": split_sentences}, options, {}

    def get_iterator(
        self, inputs, num_workers, batch_size, preprocess_params, forward_params, postprocess_params
    ) -> Iterator[dict]:
        """Yields the records, parsed batch by batch. `parse` pads, so no workers and no collation are needed."""
        texts = iter(inputs)
        while batch := [self.preprocess(text, **preprocess_params) for text in islice(texts, batch_size)]:
            yield from map(self.postprocess, self.forward(batch, **forward_params))

    def run_single(self, inputs: str, preprocess_params: dict, forward_params: dict, postprocess_params: dict) -> dict:
        return next(self.get_iterator([inputs], 0, 1, preprocess_params, forward_params, postprocess_params))

    def preprocess(self, text: str, split_sentences: bool | str = False) -> dict:
        """Returns a text with the spans of its sentences, or one span of all of it without `split_sentences`."""
        if not isinstance(text, str):
            raise ValueError(f"sentences must be strings, not {type(text).__name__}")
        places = sentence_splitter(split_sentences if isinstance(split_sentences, str) else "en")(text)
        if not split_sentences:
            if len(places) > 1:
                logger.warning(
                    f'"{text[:40]}" has {len(places)} sentences, but gets one tree: split_sentences=True parses each'
                )
            places = [(0, len(text))]
        return {"text": text, "places": places, "is_split": bool(split_sentences)}

    def _forward(self, batch: list[dict], **parse_options) -> list[dict]:
        """Adds its trees to each text of a batch."""
        sentences = [text["text"][start:end] for text in batch for start, end in text["places"]]
        fixed_options = {"batch_size": max(1, len(sentences)), "progress": False}
        trees = iter(self.model.parse(sentences, self.tokenizer, **fixed_options, **parse_options))
        return [text | {"trees": list(islice(trees, len(text["places"])))} for text in batch]

    def postprocess(self, text: dict) -> dict | list[dict]:
        """Returns the record of a text, or with `split_sentences` those of its sentences."""
        records = [
            tree.to_record(text["text"][start:end]) | ({"start": start} if text["is_split"] else {})
            for (start, end), tree in zip(text["places"], text["trees"], strict=True)
        ]
        return records if text["is_split"] else records[0]
