"""Scripts by a language model over the words of events: the likeliest next events by beam search."""

from collections.abc import Iterator, Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from eval.narrative_cloze.event_files import KINDS, Script
from onlstm_hf.utils.evaluation_mode import evaluation_mode
from onlstm_hf.utils.iteration import progress_bar


class ScriptLanguageModel:
    """Predicts events word by word: the verb, its three arguments, the preposition.

    Args:
        model: a language model with a `state`, trained on the text of scripts.
        tokenizer: its tokenizer.
        beam_size: how many beginnings of events are kept at each of the five steps.

    Raises:
        ValueError: if the tokenizer lacks words of some kind: it is not one of scripts.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, beam_size: int = 100):
        self.model, self.tokenizer, self.beam_size = model, tokenizer, beam_size
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        self.words = {index: word for word, index in vocabulary}
        self.choices = [torch.tensor([index for word, index in vocabulary if word.startswith(kind)]) for kind in KINDS]
        if not all(map(len, self.choices)):
            raise ValueError("the model's tokenizer is not one of the words of events")

    def predict(self, scripts: Sequence[Script], count: int) -> list[list[Script]]:
        """For each script and each of its events after the first, the `count` likeliest events after those before it.

        The scripts are read side by side, one event at a time. Only events of words of the right kinds are predicted.
        """
        predictions: list[list[Script]] = [[] for _ in scripts]
        rows = [number for number, script in enumerate(scripts) if len(script) > 1]
        state = None
        with evaluation_mode(self.model):
            for place in progress_bar(range(max(map(len, scripts), default=0) - 1), unit="event"):
                going_on = [row for row, number in enumerate(rows) if len(scripts[number]) > place + 1]
                rows = [rows[row] for row in going_on]
                state = state.index_select(torch.tensor(going_on)) if state is not None else None
                read = [" ".join(scripts[number][place]) for number in rows]
                if place == 0:
                    read = [f"{self.tokenizer.eos_token} {text}" for text in read]
                tokens = self.tokenizer(read, return_tensors="pt", add_special_tokens=False)
                output = self._read(tokens.input_ids, state)
                state = output.state
                for number, prediction in zip(rows, self._search(output, count), strict=True):
                    predictions[number].append(prediction)
        return predictions

    def _read(self, input_ids: torch.Tensor, state):
        return self.model(input_ids.to(self.model.device), state=state, use_cache=True)

    def _search(self, output, count: int) -> Iterator[Script]:
        """Beam search from the model's output `[B, T]` for the events before the held-out one."""
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
            yield [tuple(self.words[index] for index in event) for event in event_ids]
