"""Prediction of the next event by beam search with a language model over the words of events."""

from collections.abc import Iterator, Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from eval.narrative_cloze.event_files import KINDS, Script
from onlstm_hf.utils.evaluation_mode import evaluation_mode
from onlstm_hf.utils.iteration import progress_bar


class ScriptLanguageModel:
    """Predicts events word by word: the verb, its three arguments, the preposition."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, beam_size: int = 100):
        self.model, self.tokenizer, self.beam_size = model, tokenizer, beam_size
        vocabulary = tokenizer.get_vocab().items()
        self.choices = [
            torch.tensor(sorted(index for word, index in vocabulary if word.startswith(kind))) for kind in KINDS
        ]
        if not all(map(len, self.choices)):
            raise ValueError("the model's tokenizer is not one of the words of events")

    def predict(self, scripts: Sequence[Script], count: int) -> list[list[Script]]:
        """Predicts the `count` most probable events for each event after the first of each script.

        The scripts are read as a batch, one event at a time. Predicted events have words of the right kinds only.
        """
        predictions: list[list[Script]] = [[] for _ in scripts]
        rows = [number for number, script in enumerate(scripts) if len(script) > 1]
        state = None
        with evaluation_mode(self.model):
            for place in progress_bar(range(max(map(len, scripts), default=0) - 1), unit="event"):
                unfinished = [row for row, number in enumerate(rows) if len(scripts[number]) > place + 1]
                rows = [rows[row] for row in unfinished]
                state = state.index_select(torch.tensor(unfinished)) if state is not None else None
                texts = [" ".join(scripts[number][place]) for number in rows]
                if place == 0:
                    texts = [f"{self.tokenizer.eos_token} {text}" for text in texts]
                tokens = self.tokenizer(texts, return_tensors="pt", add_special_tokens=False)
                output = self._read(tokens.input_ids, state)
                state = output.state
                for number, prediction in zip(rows, self._search(output, count), strict=True):
                    predictions[number].append(prediction)
        return predictions

    def _read(self, input_ids: torch.Tensor, state):
        return self.model(input_ids.to(self.model.device), state=state, use_cache=True)

    def _search(self, output, count: int) -> Iterator[Script]:
        """Runs beam search from the model's output for the events before the held-out one, logits `[B, T, V]`."""
        num_rows = output.logits.shape[0]
        scores = torch.zeros(num_rows, 1)
        beams = torch.empty(num_rows, 1, 0, dtype=torch.long)
        for choices in self.choices:
            log_probabilities = output.logits[:, -1].float().log_softmax(-1).cpu()[:, choices]
            extended = (scores[:, :, None] + log_probabilities.view(num_rows, -1, len(choices))).flatten(1)
            best, places = extended.topk(min(self.beam_size, extended.shape[1]))
            beam, choice = places // len(choices), places % len(choices)
            parents = (beam + torch.arange(num_rows)[:, None] * scores.shape[1]).flatten()
            beams, scores = torch.cat([beams.flatten(0, 1)[parents], choices[choice].view(-1, 1)], dim=1), best
            if beams.shape[1] < len(KINDS):
                output = self._read(beams[:, -1:], output.state.index_select(parents))
            beams = beams.view(num_rows, -1, beams.shape[1])
        for event_ids in beams[:, :count].tolist():
            yield [tuple(self.tokenizer.convert_ids_to_tokens(event)) for event in event_ids]
