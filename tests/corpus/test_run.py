import copy
import gzip
import json
import os
import random
import shutil
import signal
from pathlib import Path

import pytest
import torch
from datatrove.io import DataFolder, get_datafolder
from pyarrow import parquet

from onlstm_hf import build_word_tokenizer
from onlstm_hf.corpus.executors import Engine
from tests.helpers.command_line import TEXT, WORDS
from tests.helpers.corpus_runs import in_a_process, parse, tables, workers_at_once
from tests.helpers.tiny_models import MODEL_TYPES


def test_every_line_has_a_row_in_input_order(corpus, undisturbed):
    table = sum(undisturbed.values(), [])
    texts = [(corpus / name).read_bytes() for name in ("a.txt", "b.txt", "c.txt.gz")]
    texts[2] = gzip.decompress(texts[2])
    lines = [line for text in texts for line in text.decode().splitlines()]
    assert ["".join(row["words"] or []) for row in table] == [line.replace(" ", "") for line in lines]
    assert [row["reason"] for row in table] == [None if line else "no words" for line in lines]


def kill_at_an_operation(number, corpus, output, checkpoint):
    """Parses with processes that are killed at their n-th file operation in the output folder."""
    remaining = number

    def counted(method):
        def call(*arguments, **options):
            nonlocal remaining
            remaining -= 1
            if remaining < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*arguments, **options)

        return call

    for name in ("open", "mv", "rm", "glob", "isfile"):
        setattr(DataFolder, name, counted(getattr(DataFolder, name)))
    parse(corpus, output, checkpoint)


def kill_after(seconds, victim, process):
    """Kills a worker, its parent process, or all processes at once."""
    process.join(seconds)
    try:
        if victim == "worker":
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for worker in children[:1]:
                os.kill(int(worker), signal.SIGKILL)
        elif victim == "parent":
            os.kill(process.pid, signal.SIGKILL)
        else:
            os.killpg(process.pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        pass  # it had already ended
    process.join(60)
    assert process.exitcode is not None


@pytest.mark.slow
def test_a_run_killed_at_any_time_and_restarted_writes_the_same_rows(corpus, checkpoint, undisturbed, tmp_path):
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    generator = random.Random(seed)
    output, kills = tmp_path / "0", 0
    while kills < 20:
        if kills % 2:
            number = generator.randrange(75)  # a worker performs about a hundred
            process = in_a_process(number, corpus, output, checkpoint, function=kill_at_an_operation)
            process.join(60)
        else:
            process = in_a_process(corpus, output, checkpoint)
            kill_after(generator.uniform(0, 0.5), generator.choice(["worker", "parent", "group"]), process)
        kills += process.exitcode != 0
        if process.exitcode == 0:
            assert tables(output) == undisturbed
            output = output.with_name(f"{kills}")
        assert tables(output).items() <= undisturbed.items()
    process = in_a_process(corpus, output, checkpoint)
    process.join(60)
    assert process.exitcode == 0
    assert tables(output) == undisturbed
    assert not list(output.glob(".run/unfinished/*"))


def one_task_at_a_time(**options):
    return {"engine": workers_at_once(1), "tasks": 3, **options}


@pytest.fixture
def small(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("\n".join(TEXT))
    return tmp_path / "corpus"


@pytest.mark.parametrize("output_format", ["parquet", "jsonl"])
def test_load_dataset_reads_the_table(small, checkpoint, tmp_path, output_format):
    from datasets import load_dataset

    output = tmp_path / "output"
    options = one_task_at_a_time(log_probability=True, output_format=output_format)
    assert parse(small, output, checkpoint, **options) == {"parsed": len(TEXT)}
    table = load_dataset(str(output), split="train")
    assert list(table["words"]) == [sentence.split() for sentence in TEXT]
    assert table[0]["spans"][0] == {"start": 0, "end": len(TEXT[0]), "word_start": 0, "word_end": 7}
    assert all(0 <= distance <= 1 for distances in table["distances"] for distance in distances)
    assert max(table["log_probability"]) < 0
    assert json.loads((output / ".run/manifest.json").read_text())["settings"]["schema_version"] == 2
    if output_format == "parquet":
        schema = parquet.read_schema(output / "00000.parquet")
        assert schema.metadata[b"onlstm_hf.schema_version"] == b"2"
        assert str(schema.field("distances").type) == "list<element: halffloat>"
    files = sorted(path.name for path in output.iterdir() if path.name != ".run")
    assert files == [f"0000{task}.{'parquet' if output_format == 'parquet' else 'jsonl.gz'}" for task in range(2)]


@pytest.mark.parametrize("log_probability", [True, False])
@pytest.mark.parametrize(
    ("kind", "model_options", "options", "message"),
    [
        ("prpn", {"parsing_network": False}, {}, "induces no trees"),
        ("rnn", {}, {}, "induces no trees"),
        ("onlstm", {}, {"layer": 9}, "layer 9 does not exist"),
    ],
)
def test_models_without_the_trees_are_refused_before_anything_is_written(
    small, tokenizer, tmp_path, kind, model_options, options, message, log_probability
):
    model = MODEL_TYPES[kind].make(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, **model_options)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "checkpoint")
    with pytest.raises(ValueError, match=message):
        parse(small, tmp_path / "output", str(tmp_path / "checkpoint"), log_probability=log_probability, **options)
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("output_format", ["parquet", "jsonl"])
def test_punctuation_has_no_distance_in_the_table(small, model, tmp_path, output_format):
    from datasets import load_dataset

    checkpoint = str(tmp_path / "checkpoint")
    model.save_pretrained(checkpoint)
    build_word_tokenizer(vocabulary=WORDS, drop_punctuation=True, pad_token="<eos>").save_pretrained(checkpoint)
    (small / "a.txt").write_text("the cat sat ( on the mat )\n")
    options = one_task_at_a_time(punctuation="attach", output_format=output_format)
    assert parse(small, tmp_path / "output", checkpoint, **options) == {"parsed": 1}
    (row,) = load_dataset(str(tmp_path / "output"), split="train")
    has_distance = [distance is not None for distance in row["distances"]]
    assert has_distance == [word not in "()" for word in row["words"]]


def test_restarting_a_complete_run_does_nothing(small, checkpoint, tmp_path):
    times = []
    for _ in range(2):
        assert parse(small, tmp_path / "output", checkpoint, **one_task_at_a_time(tasks=12)) == {"parsed": len(TEXT)}
        times.append({path.stat().st_mtime_ns for path in (tmp_path / "output").glob("*.parquet")})
    assert times[0] == times[1]
    assert len(times[0]) <= len(TEXT)  # tasks without input write nothing


def test_a_changed_option_model_or_corpus_is_refused(small, checkpoint, model, tokenizer, tmp_path):
    output = tmp_path / "output"

    def check_refused(message, checkpoint=checkpoint, **options):
        with pytest.raises(ValueError, match=f"begun differently: {message}"):
            parse(small, output, checkpoint, **one_task_at_a_time(**options))

    parse(small, output, checkpoint, **one_task_at_a_time())
    check_refused("branching_bias was right, not none", branching_bias="none")
    check_refused("output_format was parquet, not jsonl", output_format="jsonl")
    parse(small, output, checkpoint, **one_task_at_a_time(tasks=None))
    check_refused("tasks was 3, not 5", tasks=5)

    changed = copy.deepcopy(model)
    with torch.no_grad():
        next(changed.parameters())[0, 0] += 1
    for part in (changed, tokenizer):
        part.save_pretrained(tmp_path / "changed")
    check_refused("model was ", str(tmp_path / "changed"))
    moved = shutil.copytree(checkpoint, tmp_path / "moved")
    parse(small, output, str(moved), **one_task_at_a_time())

    with (small / "a.txt").open("a") as file:
        file.write("\none more\n")
    check_refused(r"the file a\.txt has changed;")
    (small / "b.txt").write_text("one more")
    check_refused(r"the file a\.txt has changed, the file b\.txt has changed;")
    (small / "a.txt").rename(small / "b.txt")
    check_refused(r"the file a\.txt has changed, the file b\.txt has changed;")


@pytest.mark.parametrize("partition", ["cpu", None])
def test_slurm_gets_only_options_with_a_value(partition, tmp_path):
    engine = Engine("slurm", sbatch={"time": "1:00:00", "partition": partition})
    options = engine.executor([], 1, get_datafolder(str(tmp_path))).get_sbatch_args()
    assert options.get("partition") == partition
    assert options["time"] == "1:00:00"
    assert None not in options.values()
