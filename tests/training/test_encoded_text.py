"""Memory-mapped training text: contents, cleanup and memory use."""

import random
import resource
from itertools import islice
from pathlib import Path

import pytest

from onlstm_hf import build_word_tokenizer
from tests.helpers.folders import full_disk
from tests.helpers.forked_processes import forked_context
from training.language_models.recipe import parse_recipe
from training.language_models.text_batches import build_batches, store_encoded
from training.loop.task import ProcessShard

# This text takes 172 MB as one tensor per line and 90 MB as lists. Most of the remaining memory is the tokenizer's.
NUM_LINES, MOST_MEGABYTES = 200_000, 50


def test_a_text_is_mapped_from_unlinked_files(tmp_path):
    text = store_encoded(iter([[5, 6, 0], [0], [70_000, 0]]), tmp_path)
    assert text.ids.tolist() == [5, 6, 0, 0, 70_000, 0]
    assert text.ends.tolist() == [3, 4, 6]
    assert list(tmp_path.iterdir()) == []


def test_an_empty_text_and_a_full_disk_are_refused(tmp_path):
    with pytest.raises(ValueError, match="the training text is empty"):
        store_encoded(iter([]), tmp_path)
    with full_disk(), pytest.raises(OSError, match="too large"):
        store_encoded(([7] * 100 for _ in range(100)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def read_batches(results, folder, options):
    arguments = ["--output_dir", "run", "--train_files", "train.txt", "--validation_files", "train.txt"]
    recipe = parse_recipe([*(f"{folder}/{text}" if text.endswith(".txt") else text for text in arguments), *options])
    recipe.run.output_dir = folder
    tokenizer = build_word_tokenizer(f"{folder}/train.txt")
    before = megabytes()
    source = build_batches(recipe, tokenizer, ProcessShard(20))
    num_tokens = sum(batch.shift_labels.numel() for batch in islice(source.batches(0), 5))
    results.put((megabytes() - before, num_tokens))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="memory units of Linux")
@pytest.mark.parametrize(
    "options", [[], ["--independent_sentences"], ["--streaming"]], ids=["stream", "sentences", "streamed"]
)
def test_a_text_of_a_million_tokens_takes_little_memory(tmp_path, options):
    generator = random.Random(0)
    words = [f"word{number}" for number in range(5000)]
    with open(tmp_path / "train.txt", "w") as file:
        file.writelines(" ".join(generator.choices(words, k=4)) + "\n" for _ in range(NUM_LINES))
    context = forked_context()
    results = context.Queue()
    process = context.Process(target=read_batches, args=(results, str(tmp_path), options))
    process.start()
    growth, num_tokens = results.get(timeout=100)
    process.join()
    assert num_tokens > 0
    assert growth < MOST_MEGABYTES
