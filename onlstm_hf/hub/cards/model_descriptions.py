"""Card texts for each type of model: one function a type, from its configuration."""

from collections.abc import Callable
from dataclasses import dataclass

from transformers import PreTrainedConfig

from .published import published_f1, published_perplexity

ORDERED_NEURONS = """@inproceedings{shen2019ordered,
  title={Ordered Neurons: Integrating Tree Structures into Recurrent Neural Networks},
  author={Shen, Yikang and Tan, Shawn and Sordoni, Alessandro and Courville, Aaron},
  booktitle={International Conference on Learning Representations},
  year={2019}
}"""
TREE_LSTM = """@inproceedings{tai2015improved,
  title={Improved Semantic Representations From Tree-Structured Long Short-Term Memory Networks},
  author={Tai, Kai Sheng and Socher, Richard and Manning, Christopher D.},
  booktitle={Proceedings of the 53rd Annual Meeting of the Association for Computational Linguistics},
  year={2015}
}"""
ORDERED_NEURONS_LINK = "[Shen, Tan, Sordoni & Courville, ICLR 2019](https://arxiv.org/abs/1810.09536)"
TREES_CAUTION = (
    "Its trees are unlabelled and binary; many of their constituents are right, many are not, and part of the score "
    "comes from the right-branching rule by which distances become trees ({rules}). It is meant for research and "
    "teaching: do not use it where a parser or a text generator is needed."
)
CELLS = {"lstm": "An LSTM", "gru": "A GRU", "rnn": "A simple recurrent network"}


@dataclass(frozen=True)
class ModelDescription:
    """The words of a model card that depend on the type of model and not on what was measured.

    Attributes:
        kind: the model with its source, as the subject of a sentence.
        ability: what it does, in whole sentences, where `{tree}` stands for a tree of the kind that it was not shown.
        example: Python that shows it, with `model` and `tokenizer`, where `{sentence}` and `{beginning}` stand for
            strings: a sentence, and the beginning of one.
        published: perplexities on the Penn Treebank text that the source reports.
        published_parsing: the parsing scores that it reports on Wall Street Journal text, `None` for a model that
            induces no trees.
        caution: what to keep in mind about its output, in whole sentences.
        tags: for the Hub.
        citation: BibTeX.
    """

    kind: str
    ability: str
    example: str
    published: str
    published_parsing: str | None
    caution: str
    tags: tuple[str, ...]
    citation: str


def describe_model(config: PreTrainedConfig) -> ModelDescription:
    """The description of a model of this configuration.

    Raises:
        ValueError: if there is none of its type.
    """
    if config.model_type not in _DESCRIPTIONS:
        raise ValueError(
            f'there is no model card for models of type "{config.model_type}", only for {", ".join(_DESCRIPTIONS)}: '
            "add a description to onlstm_hf/hub/cards/model_descriptions.py"
        )
    return _DESCRIPTIONS[config.model_type](config)


def _describe_onlstm(config: PreTrainedConfig) -> ModelDescription:
    published = published_perplexity("ON-LSTM")
    f1 = published_f1("ON-LSTM, layer 2")
    return ModelDescription(
        kind=f"An ON-LSTM ({ORDERED_NEURONS_LINK})",
        ability="It predicts the next word, and its forget gates give a constituency tree of each sentence, although "
        "it was never shown {tree}.",
        example="print(model.parse({sentence}, tokenizer))",
        published=f"Published for the paper's {published['parameters'].replace(' ', '-')}-parameter model: "
        f"validation {published['perplexity']['valid']}, test {published['perplexity']['test']}.",
        published_parsing="Published for the paper's model on another test set, section 23 of the full treebank "
        f"(layer 2, mean of five seeds): {f1['wsj']['mean']} on all sentences, {f1['wsj10']['mean']} on WSJ10.",
        caution=TREES_CAUTION.format(rules='`branching_bias="none"` is the rule without it'),
        tags=("on-lstm", "grammar-induction", "unsupervised-parsing", "constituency-parsing"),
        citation=ORDERED_NEURONS,
    )


def _describe_prpn(config: PreTrainedConfig) -> ModelDescription:
    published, f1 = published_perplexity("PRPN"), published_f1("PRPN-LM")
    return ModelDescription(
        kind="A PRPN ([Shen, Lin, Huang & Courville, ICLR 2018](https://arxiv.org/abs/1711.02013))",
        ability="It predicts the next word, and its parsing network gives a constituency tree of each sentence, "
        "although it was never shown {tree}.",
        example="print(model.parse({sentence}, tokenizer))",
        published=f"Published for the paper's model ({published['parameters']} parameters by our count): "
        f"test {published['perplexity']['test']}.",
        published_parsing="Published for the paper's language model on another test set, section 23 of the full "
        "treebank (mean of five seeds, as measured by Htut, Cho & Bowman 2018): "
        f"{f1['wsj']['mean']} on all sentences; on WSJ10, {f1['wsj10']['mean']}.",
        caution=TREES_CAUTION.format(
            rules='`branching_bias="none"` is the rule without it, `hard=True` that of the gates'
        ),
        tags=("prpn", "grammar-induction", "unsupervised-parsing", "constituency-parsing"),
        citation="""@inproceedings{shen2018neural,
  title={Neural Language Modeling by Jointly Learning Syntax and Lexicon},
  author={Shen, Yikang and Lin, Zhouhan and Huang, Chin-Wei and Courville, Aaron},
  booktitle={International Conference on Learning Representations},
  year={2018}
}""",
    )


def _describe_rnn(config: PreTrainedConfig) -> ModelDescription:
    published = published_perplexity("AWD-LSTM")
    return ModelDescription(
        kind=f"{CELLS[config.cell_type]} with the regularisation of the AWD-LSTM "
        "([Merity, Keskar & Socher, ICLR 2018](https://arxiv.org/abs/1708.02182))",
        ability="It predicts the next word. It is a baseline for models that induce syntax, and induces none itself: "
        "its `parse` says so.",
        example='inputs = tokenizer({beginning}, return_tensors="pt")\n'
        "print(tokenizer.decode(model.generate(**inputs, max_new_tokens=20)[0]))",
        published=f"Published for the AWD-LSTM of {published['parameters']} parameters: "
        f"validation {published['perplexity']['valid']}, test {published['perplexity']['test']}.",
        published_parsing=None,
        caution="It is meant for research and teaching: do not use it where a text generator is needed.",
        tags=("awd-lstm", config.cell_type),
        citation="""@inproceedings{merity2018regularizing,
  title={Regularizing and Optimizing {LSTM} Language Models},
  author={Merity, Stephen and Keskar, Nitish Shirish and Socher, Richard},
  booktitle={International Conference on Learning Representations},
  year={2018}
}""",
    )


_DESCRIPTIONS: dict[str, Callable[[PreTrainedConfig], ModelDescription]] = {
    "onlstm": _describe_onlstm,
    "prpn": _describe_prpn,
    "rnn": _describe_rnn,
}


@dataclass(frozen=True)
class ClassifierDescription:
    """The words of the card of a classifier of sequence pairs that depend on the type of its encoder.

    Attributes:
        kind: the encoder with its source, as the subject of a sentence.
        reading: how it reads a sequence, in a whole sentence.
        tags: for the Hub.
        citation: BibTeX, `None` for what needs none.
    """

    kind: str
    reading: str
    tags: tuple[str, ...]
    citation: str | None


def describe_classifier(config: PreTrainedConfig) -> ClassifierDescription:
    """The description of a classifier of pairs of this configuration.

    Raises:
        ValueError: if there is none of its type.
    """
    in_order = "It reads a formula from left to right, brackets included, and is shown no trees."
    if config.model_type == "onlstm":
        return ClassifierDescription(f"An ON-LSTM ({ORDERED_NEURONS_LINK})", in_order, ("on-lstm",), ORDERED_NEURONS)
    if config.model_type == "rnn":
        return ClassifierDescription(CELLS[config.cell_type], in_order, (config.cell_type,), None)
    if config.model_type == "tree_lstm":
        return ClassifierDescription(
            "A binary Tree-LSTM ([Tai, Socher & Manning, ACL 2015](https://arxiv.org/abs/1503.00075))",
            "It composes a formula along its brackets, which must make a binary tree: what other models have to find "
            "out, it is told.",
            ("tree-lstm",),
            TREE_LSTM,
        )
    raise ValueError(
        f'there is no card for classifiers of type "{config.model_type}", only for onlstm, rnn and tree_lstm: add a '
        "description to onlstm_hf/hub/cards/model_descriptions.py"
    )
