"""How a model is scored during training and at its end: held-out text and gold trees."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from recipe import DataArguments
from text_batches import encode_lines, load_column, load_texts, pad_sentences
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from onlstm_hf.evaluation import StreamScore, stream_log_likelihood
from onlstm_hf.parsing import evaluation_mode
from onlstm_hf.treebank import GoldTree, gold_trees_from_brackets, read_treebank


@dataclass(frozen=True)
class HeldOutText:
    """A text to be scored the way the model is trained: as one stream, or sentence by sentence.

    Attributes:
        sentences: token ids of each sentence, its `<eos>` at the end.
        independent: whether each sentence starts from an empty state.
    """

    sentences: Sequence[Sequence[int]]
    independent: bool

    def score(self, model: PreTrainedModel, batch_size: int, progress: bool = False) -> StreamScore:
        if self.independent:
            return sentence_log_likelihood(model, self.sentences, batch_size)
        return stream_log_likelihood(model, list(chain.from_iterable(self.sentences)), batch_size, progress=progress)


def sentence_log_likelihood(
    model: PreTrainedModel, sentences: Sequence[Sequence[int]], batch_size: int
) -> StreamScore:
    """Scores sentences on their own: every token of each, after an `<eos>` and from an empty state.

    Args:
        model: a causal language model.
        sentences: token ids of each sentence, its `<eos>` at the end.
        batch_size: sentences in one call of the model; it does not change the result.
    """
    in_order = sorted(sentences, key=len)
    total = 0.0
    with evaluation_mode(model):
        for start in range(0, len(in_order), batch_size):
            batch = pad_sentences(in_order[start : start + batch_size], model.config.eos_token_id)
            input_ids, shift_labels, attention_mask = (tensor.to(model.device) for tensor in batch)
            output = model(
                input_ids=input_ids, attention_mask=attention_mask, shift_labels=shift_labels, num_items_in_batch=1
            )
            total -= output.loss.item()
    return StreamScore(total, sum(map(len, sentences)))


def load_held_out_text(data: DataArguments, part: str, tokenizer: PreTrainedTokenizerBase) -> HeldOutText | None:
    """The `"validation"` or `"test"` text, `None` where the recipe names none.

    Raises:
        ValueError: if it is empty.
    """
    texts = load_texts(data, part)
    if texts is None:
        return None
    sentences = list(encode_lines(texts, tokenizer, data.text_column))
    if not sentences:
        raise ValueError(f"the {part} text is empty")
    return HeldOutText(sentences, data.independent_sentences)


def load_gold_trees(data: DataArguments) -> list[GoldTree] | None:
    """Gold trees from a file or from a column of the validation split, `None` where the recipe names none."""
    if data.gold_trees is not None:
        return read_treebank(data.gold_trees)
    if data.gold_tree_column is not None:
        rows = load_column(data, "validation", data.gold_tree_column)
        return gold_trees_from_brackets(row[data.gold_tree_column] for row in rows)
    return None
