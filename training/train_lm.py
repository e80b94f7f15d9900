"""Trains a language model of this package: `accelerate launch training/train_lm.py RECIPE.yaml [--name value ...]`.

docs/training.md lists what a run leaves. Both checkpoints hold the evaluated weights, which are the averaged ones once
averaging has begun.
"""

import sys
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import extract_model_from_parallel, get_mixed_precision_context_manager
from transformers import PreTrainedConfig, PreTrainedModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

import onlstm_hf
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.text.unknown_words import unknown_words
from onlstm_hf.trees.baselines import baseline_trees
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.tree_files import FILE_NAME, SentenceDistances, write_tree_file
from onlstm_hf.utils.files import fingerprint, write_json
from onlstm_hf.utils.training_stages import previous_stages, training_stages
from training.distillation.target_trees import TargetTrees, WithTargetTrees
from training.language_models.curves import draw_curves
from training.language_models.model_setup import build_config, build_model, build_tokenizer
from training.language_models.recipe import LanguageModelRecipe, ModelArguments, parse_recipe
from training.language_models.text_batches import Batch, build_batches, check_files, encode_text, load_texts, text_of
from training.language_models.validation import (
    HeldOutText,
    distances_of_layers,
    held_out_sentences,
    load_gold_trees,
    store_preprocessing,
)
from training.loop.checkpointing import file_checksum
from training.loop.run import run_script, train
from training.loop.task import BatchSource, ProcessShard, Progress, Task

# Number of texts in the fingerprint of a streamed dataset, which may be too large to download twice.
NUM_STREAMED_LINES = 10_000
# Baselines whose F1 is reported with that of the run.
BASELINES_SHOWN = ("left branching", "right branching", "balanced")


class LanguageModeling(Task):
    """Predicts the next token of a text. F1 against gold trees is reported on the way."""

    name, unit = "language_model", "tokens"
    recipe: LanguageModelRecipe

    def build_model(self, checkpoint: Path | None) -> PreTrainedModel:
        data, arguments = self.recipe.data, self.recipe.model
        check_files(data)
        if checkpoint is not None:
            data, arguments = replace(data, tokenizer=str(checkpoint)), ModelArguments(init_from=str(checkpoint))
        build_config(arguments)  # raises errors before the text is read
        self.tokenizer = build_tokenizer(data, arguments.init_from)
        model = build_model(arguments, self.tokenizer)
        model.set_implementation(self.recipe.model.implementation)
        store_preprocessing(data, model.config)
        self.num_classes = model.config.vocab_size
        return model

    def read_data(self, config: PreTrainedConfig) -> None:
        """Reads texts and trees for a model with this configuration, and sets `fingerprints`."""
        data = self.recipe.data
        self.treebank = load_gold_trees(data, config)
        self.target_trees = None
        if data.target_trees is not None:
            self.target_trees = TargetTrees.read(data.target_trees, self.recipe.optimization.tree_temperature)
        self.held_out_sentences = held_out_sentences(data)
        lines = (text_of(item, data.text_column) for item in load_texts(data, "train"))
        parts = {"training text": islice(lines, NUM_STREAMED_LINES) if data.streaming else lines}
        parts |= {f"{part} text": sentences for part, sentences in self.held_out_sentences.items()}
        if data.streaming and data.train_files:
            parts["bytes of the training text"] = map(file_checksum, data.train_files)
        if self.treebank:
            parts["gold trees"] = (f"{' '.join(tree.words)} {tree.constituents}" for tree in self.treebank)
        if self.target_trees:
            parts["target trees"] = self.target_trees.lines()
        self.fingerprints = {name: fingerprint(texts) for name, texts in parts.items()}

    def load_data(self, model: PreTrainedModel, shard: ProcessShard) -> BatchSource:
        data, arguments = self.recipe.data, self.recipe.optimization
        self.read_data(model.config)
        for name, trees in {"gold": self.treebank, "target": self.target_trees}.items():
            if trees and not model.induces_trees:
                kind = model.config.model_type
                raise ValueError(f'models of type "{kind}" induce no trees: leave out the {name} trees')
        held_out = {}
        for part, sentences in self.held_out_sentences.items():
            stream = encode_text(sentences, self.tokenizer, data.text_column, part)
            held_out[part] = HeldOutText(sentences, stream, self.tokenizer, data.independent_sentences)
        self.validation, self.test = held_out["validation"], held_out.get("test")
        batches = build_batches(self.recipe, self.tokenizer, shard)
        if self.target_trees is None:
            return batches
        training_trees, self.held_out_trees = self.target_trees.split()
        shard = replace(shard, batch_size=arguments.tree_batch_size)
        return WithTargetTrees(batches, training_trees, self.tokenizer, shard, arguments.seed)

    def loss(
        self, model: torch.nn.Module, batch: Batch, num_items: float, device: torch.device
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        arguments = self.recipe.optimization
        output = model(
            input_ids=batch.input_ids.to(device),
            attention_mask=None if batch.attention_mask is None else batch.attention_mask.to(device),
            shift_labels=batch.shift_labels.to(device),
            state=self.state if batch.continues else None,
            use_cache=True,
            num_items_in_batch=torch.as_tensor(num_items),  # torch.compile would recompile for each Python number
            skip_logits=True,
        )
        self.state = output.state.detach()
        if batch.trees is None:
            return output.loss, {"loss": output.cross_entropy}
        # After the text, which updates the running statistics of batch normalisation in place.
        with get_mixed_precision_context_manager(native_amp=arguments.mixed_precision != "no"):
            tree_loss = self.target_trees.loss(extract_model_from_parallel(model), batch.trees)
        tree_loss = tree_loss * (batch.num_items / num_items)
        loss = output.loss + arguments.tree_loss_weight * tree_loss
        return loss, {"loss": output.cross_entropy, "tree_loss": tree_loss}

    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        score = self.validation.score(model, self.recipe.run.eval_batch_size)
        scores = {"validation_loss": score.loss, "validation_perplexity": score.perplexity}
        if self.treebank:
            stored = self._gold_distances(model)
            f1 = {layer: 100 * self._sentence_f1(stored.trees(layer)) for layer in stored.by_layer}
            scores["parsing_f1"] = f1[stored.parse_layer]
            scores |= {f"parsing_f1_layer_{layer + 1}": score for layer, score in f1.items() if layer is not None}
        if self.target_trees:
            scores |= self.held_out_trees.score(model, self.tokenizer)
        return scores

    def validation_loss(self, scores: dict[str, float]) -> float:
        """Returns the validation loss, with target trees plus the weighted loss on held-out ones."""
        if not self.target_trees:
            return scores["validation_loss"]
        return scores["validation_loss"] + self.recipe.optimization.tree_loss_weight * scores["held_out_tree_loss"]

    def write_results(self, model: PreTrainedModel, output_dir: Path, progress: Progress) -> dict:
        run = self.recipe.run
        model.set_implementation(self.recipe.model.implementation)
        results = {"validation_perplexity": self.validation.score(model, run.eval_batch_size).perplexity}
        results["validation_unknown_words"] = unknown_words(self.tokenizer, self.validation.sentences)
        if self.test is not None:
            results["test_perplexity"] = self.test.score(model, run.test_batch_size, progress=None).perplexity
            results["test_unknown_words"] = unknown_words(self.tokenizer, self.test.sentences)
        if self.treebank:
            results |= self._parse_gold_sentences(model, output_dir / FILE_NAME)
        if self.target_trees:
            is_own_text = self.target_trees.stored.model["text"] == self.fingerprints["training text"]
            scores = {"of_training_text": is_own_text, **self.held_out_trees.score(model, self.tokenizer)}
            results["target_trees"] = self.target_trees.describe() | scores
        results |= {
            "training_seconds": round(progress.seconds, 1),
            "parameters": model.num_parameters(),
            "onlstm_hf": onlstm_hf.__version__,
            "torch": torch.__version__,
            **self.record(progress),
        }
        init_from = self.recipe.model.init_from
        if init_from is not None and (stages := previous_stages(init_from)):
            results["stages"] = stages + training_stages(results)
        write_json(output_dir / "results.json", results)
        draw_curves(output_dir / "log.jsonl", output_dir / "curves.svg", results.get("baselines", {}))
        return results

    def summary(self, results: dict) -> str:
        scores = [f"validation perplexity {results['validation_perplexity']:.2f}"]
        if "test_perplexity" in results:
            scores.append(f"test perplexity {results['test_perplexity']:.2f}")
        if "parsing" in results:
            baselines = ", ".join(f"{name} {100 * f1:.1f}" for name, f1 in results["baselines"].items())
            gold = "gold trees" if self.recipe.data.gold_trees else "gold trees of the validation split"
            scores.append(f"sentence F1 {100 * results['parsing']['sentence_f1']:.1f} on {gold} ({baselines})")
        if "target_trees" in results:
            scores.append(f"F1 against held-out target trees {results['target_trees']['held_out_tree_f1']:.1f}")
        return ", ".join(scores)

    def _parse_gold_sentences(self, model: PreTrainedModel, tree_file: Path) -> dict:
        """Stores the distances of every layer, and returns the scores of their trees."""
        stored = self._gold_distances(model, seed=self.recipe.optimization.seed)
        write_tree_file(tree_file, stored)
        f1_by_layer = {
            "all layers" if layer is None else f"layer {layer + 1}": {
                rule: self._sentence_f1(stored.trees(layer, rule)) for rule in ("right", "none")
            }
            for layer in stored.by_layer
        }
        return {
            "parsing": score_parses(stored.trees(), self.treebank).to_dict(),
            "baselines": {name: self._sentence_f1(baseline_trees(name, self.treebank)) for name in BASELINES_SHOWN},
            "sentence_f1_by_layer": f1_by_layer,
            "parsing_unknown_words": stored.model["unknown_words"],
        }

    def _gold_distances(self, model: PreTrainedModel, **description: Any) -> SentenceDistances:
        words = [list(tree.words) for tree in self.treebank]
        return distances_of_layers(model, self.tokenizer, words, progress=False, **description)

    def _sentence_f1(self, trees: list[InducedTree]) -> float:
        return score_parses(trees, self.treebank, num_resamples=0).sentence_f1


main = partial(train, LanguageModeling, parse_recipe)

if __name__ == "__main__":
    run_script("train_lm.py", main)
