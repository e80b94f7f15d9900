"""Batches of text: every token is predicted once, and several processes see the batches of one."""

import resource
import statistics
from functools import partial
from itertools import chain, islice
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onlstm_hf import ONLSTMConfig, build_word_tokenizer
from tests.helpers.folders import full_disk
from tests.helpers.forked_processes import forked_context
from tests.helpers.requirements import library
from training.language_models import validation
from training.language_models.recipe import DataArguments, parse_recipe
from training.language_models.text_batches import (
    ChunkLengths,
    EncodedText,
    SentenceBatches,
    StreamBatches,
    StreamedTextBatches,
    TextLines,
    build_batches,
    check_files,
    encode_lines,
    encode_text,
    load_texts,
    pad_sentences,
    store_encoded,
)
from training.loop.task import ProcessShard

EOS = 0
LINES = ["the cat sleeps", "", "a dog sees the small cat", "the dog", "   ", "a bird sings and a cat runs"] * 9


# This text takes 172 MB as one tensor per line and 90 MB as lists. Most of the remaining memory is the tokenizer's.
NUM_LINES, MOST_MEGABYTES = 200_000, 50


@pytest.fixture(scope="module")
def tokenizer():
    return build_word_tokenizer(LINES)


def stream_batches(shard, seed=1, random_bptt=True, length=500):
    return StreamBatches(torch.arange(1, length + 1), EOS, shard, ChunkLengths(20, random_bptt, seed))


def as_text(sentences):
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    return EncodedText(torch.tensor(list(chain.from_iterable(sentences)), dtype=torch.int32), lengths.cumsum(0))


def some_sentences():
    generator = Random(0)
    return [[*(generator.randrange(3, 99) for _ in range(generator.randrange(9))), EOS] for _ in range(50)]


def sentence_batches(shard, seed=1):
    return SentenceBatches(as_text(some_sentences()), EOS, shard, 6, seed)


def rows_of(batches):
    """Returns the inputs and the targets of all batches, row by row."""
    return [torch.cat([getattr(each, name) for each in batches], dim=1) for name in ("input_ids", "shift_labels")]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 300), st.integers(1, 7), st.integers(1, 40), st.booleans(), st.integers(0, 5))
def test_every_token_of_a_row_is_predicted_once_and_from_the_token_before_it(length, rows, bptt, random_bptt, epoch):
    stream = torch.arange(1, length + 1)
    if length < rows:
        with pytest.raises(ValueError, match=f"{length} tokens, too few for {rows} rows"):
            StreamBatches(stream, EOS, ProcessShard(rows), ChunkLengths(bptt, random_bptt, seed=3))
        return
    source = StreamBatches(stream, EOS, ProcessShard(rows), ChunkLengths(bptt, random_bptt, seed=3))
    batches = list(source.batches(epoch))
    inputs, targets = rows_of(batches)
    assert targets.flatten().tolist() == list(range(1, length // rows * rows + 1))
    assert torch.equal(inputs, targets - 1)  # the stream counts upwards from <eos>, which is 0
    assert [batch.continues for batch in batches] == [False] + [True] * (len(batches) - 1)
    assert all(batch.num_items == batch.shift_labels.numel() for batch in batches)
    assert len(batches) == source.num_batches(epoch)


def test_the_learning_rate_is_scaled_with_the_length_of_a_chunk():
    for batch in stream_batches(ProcessShard(2)).batches(0):
        assert batch.lr_scale == batch.input_ids.shape[1] / 20
    assert {batch.lr_scale for batch in stream_batches(ProcessShard(2), random_bptt=False).batches(0)} == {1.0}


def test_chunk_lengths_are_drawn_as_in_the_paper():
    lengths = list(islice(ChunkLengths(70, True, 0).draw(0), 20000))
    short = [length for length in lengths if length < 52]
    assert 0.045 < len(short) / len(lengths) < 0.055
    long = [length for length in lengths if length >= 52]
    assert statistics.mean(long) == pytest.approx(69.5, abs=0.2)  # int() removes half a token on average
    assert statistics.stdev(long) == pytest.approx(5, abs=0.15)
    assert statistics.mean(short) == pytest.approx(34.5, abs=0.6)
    assert min(islice(ChunkLengths(6, True, 0).draw(0), 1000)) == 5
    assert set(islice(ChunkLengths(70, False, 0).draw(0), 100)) == {70}


@pytest.mark.parametrize("build", [stream_batches, sentence_batches])
def test_rows_of_two_processes_equal_those_of_one_with_twice_the_batch(build):
    whole = list(build(ProcessShard(4)).batches(1))
    halves = [list(build(ProcessShard(2, process, 2)).batches(1)) for process in (0, 1)]
    assert len(whole) > 2
    for one, first, second in zip(whole, *halves, strict=True):
        assert torch.equal(one.input_ids, torch.cat([first.input_ids, second.input_ids]))
        assert torch.equal(one.shift_labels, torch.cat([first.shift_labels, second.shift_labels]))
        assert one.lr_scale == first.lr_scale == second.lr_scale
        assert one.continues == first.continues == second.continues
        assert first.num_items == second.num_items == one.num_items / 2
        assert one.num_items == (one.shift_labels != -100).sum()


def test_epochs_and_seeds_differ():
    def order(build, seed, epoch):
        return [batch.input_ids.tolist() for batch in build(ProcessShard(2), seed).batches(epoch)]

    for build in (stream_batches, sentence_batches):
        assert order(build, 1, 0) == order(build, 1, 0)
        assert order(build, 1, 0) != order(build, 1, 1)
        assert order(build, 1, 0) != order(build, 2, 0)


def test_padding_is_masked_and_not_predicted():
    inputs, targets, mask = pad_sentences([[5, 6, EOS], [EOS], [7, EOS]], EOS)
    assert inputs.tolist() == [[EOS, 5, 6], [EOS, 0, 0], [EOS, 7, 0]]
    assert targets.tolist() == [[5, 6, EOS], [EOS, -100, -100], [7, EOS, -100]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]


def test_an_epoch_has_every_sentence_once_truncated_to_the_maximum_length():
    source = sentence_batches(ProcessShard(5))
    seen = []
    for batch in source.batches(0):
        assert batch.continues is False and batch.lr_scale == 1.0
        lengths = batch.attention_mask.sum(dim=1)
        assert lengths.max() == batch.input_ids.shape[1] <= 6
        for row, length in zip(batch.shift_labels, lengths, strict=True):
            seen.append(row[:length].tolist())
    assert sorted(seen) == sorted(sentence[:6] for sentence in some_sentences())


def test_each_epoch_drops_another_remainder_of_sentences():
    source = SentenceBatches(as_text([[number, EOS] for number in range(1, 11)]), EOS, ProcessShard(4), 6, seed=0)
    left_out = set()
    for epoch in range(12):
        seen = set(chain.from_iterable(batch.shift_labels[:, 0].tolist() for batch in source.batches(epoch)))
        assert len(seen) == 8
        left_out |= set(range(1, 11)) - seen
    assert len(left_out) > 5


def test_streamed_rows_are_sequences_of_whole_documents(tokenizer):
    texts = partial(encode_lines, LINES, tokenizer, "text")
    source = StreamedTextBatches(texts, tokenizer.eos_token_id, 2, ChunkLengths(8, True, seed=5))
    inputs, targets = rows_of(list(source.batches(0)))
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert (inputs[:, 0] == tokenizer.eos_token_id).all()
    documents = {tuple(ids) for ids in encode_lines(LINES, tokenizer, "text")}
    for row in targets.tolist():
        ends = [position + 1 for position, token in enumerate(row) if token == tokenizer.eos_token_id]
        starts = [0, *ends[:-1]]
        assert ends and {tuple(row[start:end]) for start, end in zip(starts, ends, strict=True)} <= documents
    total = sum(len(ids) for ids in encode_lines(LINES, tokenizer, "text"))
    assert total - targets.numel() < 2 * (15 + 8)  # less than a chunk and a document remains per row


def test_text_too_short_for_a_batch_is_refused(tokenizer):
    with pytest.raises(ValueError, match="too short for a batch of 50 rows"):
        texts = partial(encode_lines, LINES[:4], tokenizer, "text")
        next(StreamedTextBatches(texts, tokenizer.eos_token_id, 50, ChunkLengths(8, False, seed=0)).batches(0))
    with pytest.raises(ValueError, match="1 training sentences are too few for a batch of 2"):
        SentenceBatches(as_text([[3, EOS]]), EOS, ProcessShard(2), 10, seed=0)
    with pytest.raises(ValueError, match="the training text is empty"):
        encode_text(["", "  "], tokenizer, "text", "training")


def test_every_line_ends_with_eos_and_empty_ones_are_skipped(tokenizer):
    encoded = list(encode_lines(LINES[:3], tokenizer, "text"))
    assert [tokenizer.decode(ids) for ids in encoded] == ["the cat sleeps <eos>", "a dog sees the small cat <eos>"]
    rows = [{"words": line} for line in LINES[:3]]
    assert list(encode_lines(rows, tokenizer, "words")) == encoded
    with pytest.raises(ValueError, match="no text in the column 'text'.*the cat sleeps"):
        list(encode_lines(rows, tokenizer, "text"))
    assert encode_text(LINES[:3], tokenizer, "text", "training").tolist() == [*encoded[0], *encoded[1]]


def test_lines_of_text_files(tmp_path):
    (tmp_path / "a.txt").write_bytes("un café\r\n\nzwei".encode())
    (tmp_path / "b.txt").write_bytes(b"drei\n")
    lines = TextLines([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")])
    assert list(lines) == list(lines) == ["un café", "", "zwei", "drei"]


@pytest.mark.parametrize("name", ["train_files", "validation_files", "test_files"])
def test_missing_files_are_named_before_anything_is_read(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=rf"nowhere\.txt \({name}\)"):
        check_files(DataArguments(**{name: [str(tmp_path / "nowhere.txt")]}))
    with pytest.raises(FileNotFoundError, match="gold_trees"):
        check_files(DataArguments(gold_trees=str(tmp_path / "nowhere.mrg")))


@pytest.fixture
def dataset_folder(tmp_path, monkeypatch):
    datasets = library("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "dataset"
    folder.mkdir()
    for split in ("train", "validation"):
        rows = "".join(f'{{"words": "{split} {number}", "other": {number}}}\n' for number in range(3))
        (folder / f"{split}.jsonl").write_text(rows)
    return str(folder)


@pytest.mark.parametrize("streaming", [False, True])
def test_texts_of_a_dataset_folder(dataset_folder, streaming):
    arguments = DataArguments(dataset=dataset_folder, text_column="words", streaming=streaming)
    assert [row["words"] for row in load_texts(arguments, "train")] == ["train 0", "train 1", "train 2"]
    assert [row["words"] for row in load_texts(arguments, "validation")][0] == "validation 0"
    assert load_texts(arguments, "test") is None


def test_a_dataset_without_the_column_or_split_is_refused(dataset_folder):
    with pytest.raises(ValueError, match=r"\['text'\] not in the dataset.*words.*other"):
        load_texts(DataArguments(dataset=dataset_folder), "train")
    with pytest.raises(ValueError, match="nosplit"):
        load_texts(DataArguments(dataset=dataset_folder, text_column="words", train_split="nosplit"), "train")


@pytest.mark.parametrize("tree", [None, 3])
def test_a_row_without_a_gold_tree_is_named(monkeypatch, tree):
    monkeypatch.setattr(validation, "load_dataset_column", lambda *_: [{"tree": "(S (X a) (X b))"}, {"tree": tree}])
    data = DataArguments(dataset="toy", gold_tree_column="tree")
    with pytest.raises(ValueError, match=f"no text in the column 'tree': .*{tree}"):
        validation.load_gold_trees(data, ONLSTMConfig())


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


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="memory units of Linux")
@pytest.mark.parametrize(
    "options", [[], ["--independent_sentences"], ["--streaming"]], ids=["stream", "sentences", "streamed"]
)
def test_a_text_of_a_million_tokens_takes_little_memory(tmp_path, options):
    generator = Random(0)
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
