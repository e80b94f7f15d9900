"""Trains a neural grammar: `accelerate launch training/train_grammar.py RECIPE.yaml [--name value ...]`.

    accelerate launch training/train_grammar.py training/recipes/grammar_ptb.yaml --train_files train.txt
    accelerate launch training/train_grammar.py training/recipes/grammar_ptb_focused.yaml --train_files train.txt \\
        --votes seed_1111.ranks.xz seed_2222.ranks.xz prpn.ranks.xz=3

With the trees of other parsers as votes, the grammar is trained on the trees of a sentence that have votes, otherwise
on all trees. Gold trees are not used for training. docs/training.md lists what a run leaves, and how it is used.
"""

import math
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import torch
from transformers import PreTrainedModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.text.unknown_words import unknown_words
from onlstm_hf.text.word_alignment import encode_words, is_word_level
from onlstm_hf.trees.rank_files import write_rank_file
from onlstm_hf.trees.tree_files import FILE_NAME, write_tree_file
from onlstm_hf.utils.evaluation_mode import evaluation_mode
from onlstm_hf.utils.files import fingerprint
from onlstm_hf.utils.programs import split_weights
from onlstm_hf.utils.results_file import portable, write_results
from training.grammar.model import NeuralGrammar, NeuralGrammarConfig
from training.grammar.sentences import (
    EncodedSentences,
    GrammarBatch,
    GrammarBatches,
    SpanVotes,
    groups_of_one_length,
    parse_sentences,
    stored_trees,
)
from training.language_models.model_setup import build_tokenizer
from training.language_models.recipe import TextArguments, check_text_arguments
from training.language_models.text_batches import check_files, load_texts, text_of
from training.language_models.validation import load_gold_trees, store_preprocessing
from training.loop.model_setup import changed_config
from training.loop.recipe import (
    ModelFields,
    Recipe,
    RunArguments,
    UpdateArguments,
    fixed,
    parse_groups,
    recorded,
    with_default,
)
from training.loop.run import run_script, train
from training.loop.task import BatchSource, ProcessShard, Progress, Task

# Every 50th sentence is held out of training.
HELD_OUT_EVERY = 50
TEXT_TREES = "text.ranks.xz"


@dataclass
class GrammarDataArguments(TextArguments):
    """Text, and the trees of other parsers for it."""

    streaming: ClassVar[bool] = False
    subwords: ClassVar[None] = None

    min_length: int = fixed("Shortest training sentences, in words.", 3, at_least=2)
    max_length: int = fixed("Longest training sentences, in words.", 40, at_least=2)
    votes: list[str] = recorded(
        "Files of training/average_trees.py with other parsers' trees of the text; FILE=WEIGHT counts as WEIGHT.", []
    )
    vote_strength: float = recorded(
        "A vote for a span multiplies the weight of its trees by exp(vote_strength).", 0.5, at_least=0
    )
    vote_branching_bias: Literal["right", "none"] = recorded("Rule that builds trees from voters' distances.", "right")
    parse_text: bool = recorded("Write the grammar's trees of the training text at the end (text.ranks.xz).", True)


@dataclass
class GrammarOptimizationArguments(UpdateArguments):
    """Adam with a constant learning rate."""

    optimizer: ClassVar[str] = "adam"
    average_from_start: ClassVar[bool] = False
    schedule: ClassVar[str] = "constant"
    warmup_steps: ClassVar[int] = 0
    mixed_precision: ClassVar[str] = "no"
    torch_compile: ClassVar[bool] = False

    learning_rate: float = with_default(UpdateArguments, "learning_rate", 0.003)
    adam_beta1: float = with_default(UpdateArguments, "adam_beta1", 0.75)
    weight_decay: float = with_default(UpdateArguments, "weight_decay", 0.0)
    max_grad_norm: float = with_default(UpdateArguments, "max_grad_norm", 3.0)
    batch_size: int = fixed("Words per batch in each process, in sentences of one length.", 1500, at_least=1)
    num_epochs: int = with_default(UpdateArguments, "num_epochs", 3)


@dataclass
class GrammarRunArguments(RunArguments):
    """Fields of every run, and the batch size of validation in words."""

    eval_batch_size: int = recorded("Words per batch in validation and parsing.", 6000, at_least=1)


class GrammarRecipe(Recipe):
    """All arguments of a run, by group. A `ValueError` names a contradiction."""

    def __post_init__(self):
        super().__post_init__()
        data = self.data
        check_text_arguments(data)
        if data.max_length < data.min_length:
            raise ValueError(f"max_length {data.max_length} is less than min_length {data.min_length}")


def parse_grammar_recipe(arguments: list[str]) -> GrammarRecipe:
    groups = (GrammarDataArguments, ModelFields, GrammarOptimizationArguments, GrammarRunArguments)
    return GrammarRecipe(*parse_groups(arguments, groups, "train_grammar.py", "Trains a neural grammar."))


class GrammarInduction(Task):
    """Trains a grammar on the words of sentences, with or without the trees of other parsers."""

    name, unit = "grammar", "words"
    recipe: GrammarRecipe

    def build_model(self, checkpoint: Path | None) -> PreTrainedModel:
        data = self.recipe.data
        check_files(data)
        if checkpoint is not None:
            data = replace(data, tokenizer=str(checkpoint))
        self.tokenizer = build_tokenizer(data, None)
        if not is_word_level(self.tokenizer):
            raise ValueError(f"a grammar needs one token per word, but {data.tokenizer} is a subword tokenizer")
        fields = {"vocab_size": max(self.tokenizer.get_vocab().values()) + 1}
        model = NeuralGrammar(changed_config(NeuralGrammarConfig(), fields, self.recipe.model.model))
        store_preprocessing(data, model.config)
        self.num_classes = model.config.vocab_size
        return model

    def load_data(self, model: PreTrainedModel, shard: ProcessShard) -> BatchSource:
        data = self.recipe.data
        lines = [text_of(item, data.text_column) for item in load_texts(data, "train")]
        self.text = EncodedSentences.from_lines(lines, self.tokenizer)
        self.fingerprints, self.votes = {"training text": fingerprint(lines)}, None
        if data.votes:
            self.votes = SpanVotes.read(data.votes, self.text.words, data.vote_branching_bias, data.vote_strength)
            self.fingerprints["votes"] = fingerprint(self.votes.lines())
        self.treebank = load_gold_trees(data, model.config)
        if self.treebank:
            parts = (f"{' '.join(tree.words)} {tree.constituents}" for tree in self.treebank)
            self.fingerprints["gold trees"] = fingerprint(parts)
        lengths = range(data.min_length, data.max_length + 1)
        training = [index for index, ids in enumerate(self.text.ids) if len(ids) in lengths]
        self.held_out = training[::HELD_OUT_EVERY]
        del training[::HELD_OUT_EVERY]
        seed = self.recipe.optimization.seed
        self.batches = GrammarBatches(self.text.ids, training, self.votes, shard, seed)
        return self.batches

    def loss(
        self, model: torch.nn.Module, batch: GrammarBatch, num_items: float, device: torch.device
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        scores = None if batch.span_scores is None else batch.span_scores.to(device)
        loss = -model(batch.input_ids.to(device), scores).sum() / num_items
        return loss, {"loss": loss}

    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        """Returns loss per word and perplexity (without votes) of the held-out sentences, and F1 of gold trees."""
        total_loss, total_loss_without_votes, num_words = 0.0, 0.0, 0
        with evaluation_mode(model):
            for group in groups_of_one_length(self.held_out, self.text.ids, self.recipe.run.eval_batch_size):
                batch = self.batches.batch(group, 0)
                loss, _ = self.loss(model, batch, 1, model.device)
                num_words += batch.input_ids.numel()
                total_loss += loss.item()
                if batch.span_scores is not None:
                    loss, _ = self.loss(model, batch._replace(span_scores=None), 1, model.device)
                total_loss_without_votes += loss.item()
        perplexity = math.exp(total_loss_without_votes / num_words)
        scores = {"validation_loss": total_loss / num_words, "validation_perplexity": perplexity}
        if self.treebank:
            scores["parsing_f1"] = 100 * score_parses(self._gold_parses(model), self.treebank).sentence_f1
        return scores

    def _gold_parses(self, model: PreTrainedModel) -> list:
        words = [tree.words for tree in self.treebank]
        sentences = EncodedSentences(words, [encode_words(self.tokenizer, sentence)[0] for sentence in words])
        with evaluation_mode(model):
            return parse_sentences(model, sentences, self.recipe.run.eval_batch_size)

    def write_results(self, model: PreTrainedModel, output_dir: Path, progress: Progress) -> dict:
        data = self.recipe.data
        description = {"model_type": model.config.model_type, "num_parameters": model.num_parameters()}
        description["seed"] = self.recipe.optimization.seed
        if model.config.treebank_preprocessing is not None:
            description["treebank_preprocessing"] = model.config.treebank_preprocessing
        results = {
            "task": "grammar induction",
            "name": output_dir.name,
            "model_type": model.config.model_type,
            "parameters": model.num_parameters(),
            **{name: score for name, score in self.validate(model).items() if name != "parsing_f1"},
            "best_epoch": progress.best_epoch,
            "training_seconds": round(progress.seconds, 1),
            "training_sentences": len(self.batches.indices),
            "held_out_sentences": len(self.held_out),
            "votes": [{"file": path, "weight": weight} for path, weight in split_weights(data.votes)],
            **self.record(progress),
        }
        if self.treebank:
            trees = self._gold_parses(model)
            unknown = unknown_words(self.tokenizer, [list(tree.words) for tree in self.treebank])
            write_tree_file(output_dir / FILE_NAME, stored_trees(trees, **description, unknown_words=unknown))
            results["parsing"] = score_parses(trees, self.treebank).to_dict()
            results["parsing_unknown_words"] = unknown
        if data.parse_text:
            trees = parse_sentences(model, self.text, self.recipe.run.eval_batch_size, progress=None)
            write_rank_file(output_dir / TEXT_TREES, stored_trees(trees, **portable(description)))
        return write_results(output_dir / "results.json", results, "training/train_grammar.py", self.command_line)

    def summary(self, results: dict) -> str:
        perplexity = f"perplexity {results['validation_perplexity']:.1f}"
        f1 = f", sentence F1 {100 * results['parsing']['sentence_f1']:.1f}" if "parsing" in results else ""
        return f"validation loss {results['validation_loss']:.3f}, {perplexity}{f1}"


main = partial(train, GrammarInduction, parse_grammar_recipe)

if __name__ == "__main__":
    run_script("train_grammar.py", main)
