"""Writes generated data as a dataset folder with a card for `load_dataset` and `onlstm-hf push --dataset`.

    python training/write_data.py listops runs/listops
    python training/write_data.py logic runs/logic-pairs --num 10000 --seed 2
    python training/write_data.py toy-english runs/toy-english
    onlstm-hf push --dataset runs/listops user/listops

docs/data.md describes the three data sets. The same seed yields the same examples on every machine.
"""

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf import generate_logic_pairs
from onlstm_hf.logic.formulas import split_by_operators
from onlstm_hf.logic.listops import build_listops_dataset, generate_listops
from onlstm_hf.logic.pairs import build_logic_dataset
from onlstm_hf.utils.files import check_writable, written_folder
from onlstm_hf.utils.iteration import progress_bar
from onlstm_hf.utils.programs import positive_integer, run_program
from training.toy_english import write_toy_corpus

# Default of `--num` for each data set.
NUM_EXAMPLES = {"listops": 100_000, "logic": 100_000, "toy-english": 10_000}
SIZE_CATEGORIES = {"n<1K": 10**3, "1K<n<10K": 10**4, "10K<n<100K": 10**5, "100K<n<1M": 10**6, "1M<n<10M": math.inf}
CARDS = {
    "listops": """\
# ListOps

Nested operations on lists of digits, with their values and binary trees, newly generated after Nangia & Bowman,
[ListOps: A Diagnostic Dataset for Latent Tree Learning](https://aclanthology.org/N18-4013/) (2018). No expression
occurs twice.

Columns: `text`, the expression; `brackets`, the same with the brackets of its binary tree; `label`, its value; `depth`
of the lists; `num_tokens`. The data test whether a model that only sees the values finds the lists. They are not
natural language.""",
    "logic": """\
# Pairs of formulas

Pairs of formulas of propositional logic over six variables, with one of seven relations between them, newly generated
after Bowman, Manning & Potts, [Tree-Structured Composition in Neural Networks without Tree-Structured
Architectures](https://arxiv.org/abs/1506.04834) (2015).

Columns: `left` and `right`, fully bracketed; `label`, the relation; `num_operators` of the longer side. The names of
the splits have this number: train on few operators, test on many.""",
    "toy-english": """\
# Toy English

Sentences with constituency trees, sampled from a small hand-written probabilistic grammar of English, for tests of
language models and unsupervised parsers. The sentences are grammatical but mean little. Subjects and verbs agree in
number, also across relative clauses and prepositional phrases; noun phrases, verb phrases and clauses are coordinated;
prepositional phrases modify nouns and verbs. The text is lower case without punctuation. No sentence occurs twice.

Columns: `text`, the words separated by spaces; `tree`, the gold tree in brackets with the labels and part-of-speech
tags of the Penn Treebank. The gold trees are the derivations of the grammar.""",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=list(NUM_EXAMPLES))
    parser.add_argument("folder", type=Path, help="new folder to write")
    defaults = ", ".join(f"{name} {number:,}" for name, number in NUM_EXAMPLES.items())
    number = f"number of examples; for toy-english, of training examples ({defaults})"
    parser.add_argument("--num", type=positive_integer, metavar="N", help=number)
    parser.add_argument("--seed", type=int, default=0, help="seed of the random choices (default: %(default)s)")
    options = parser.parse_args(arguments)
    return run_program("write_data.py", lambda: write_data(options))


def write_data(options: argparse.Namespace) -> None:
    """Generates the examples, and writes the folder: a file for each split, and a card."""
    options.folder.parent.mkdir(parents=True, exist_ok=True)
    check_writable(options.folder, is_new=True)
    number = options.num or NUM_EXAMPLES[options.data]
    with written_folder(options.folder) as folder:
        if options.data == "toy-english":
            write_toy_corpus(folder, num_train=number, seed=options.seed)
            num_rows = {file.stem: len(file.read_bytes().splitlines()) for file in sorted(folder.glob("*.jsonl"))}
            # The card does not list the files; their names say their splits. If a card lists them, the cache key of
            # `datasets` includes neither path nor content, and one corpus would be taken for another.
            metadata = {"language": ["en"], "tags": ["constituency-parsing", "grammar-induction", "synthetic"]}
        else:
            if options.data == "listops":
                examples = progress_bar(generate_listops(number, options.seed), total=number, unit="expression")
                expressions, held_out = list(examples), max(1, number // 10)
                splits = {"train": expressions[2 * held_out :], "validation": expressions[held_out : 2 * held_out]}
                dataset = build_listops_dataset(splits | {"test": expressions[:held_out]})
            else:
                pairs = progress_bar(generate_logic_pairs(number, options.seed), total=number, unit="pair")
                dataset = build_logic_dataset(split_by_operators(pairs))
            for split, rows in dataset.items():
                rows.to_parquet(folder / f"{split}.parquet")
            num_rows = dataset.num_rows
            files = [{"split": split, "path": f"{split}.parquet"} for split in dataset]
            metadata = {
                "tags": ["synthetic", "compositionality"],
                "task_categories": ["text-classification"],
                "configs": [{"config_name": "default", "data_files": files}],
            }
        command = f"python training/write_data.py {options.data} FOLDER --num {number} --seed {options.seed}"
        write_card(folder, CARDS[options.data], num_rows, command, metadata)
    print(f"{options.folder}: {', '.join(sorted(path.name for path in options.folder.iterdir()))}")


def write_card(folder: Path, text: str, num_rows: Mapping[str, int], command: str, metadata: Mapping) -> None:
    size = next(size for size, limit in SIZE_CATEGORIES.items() if sum(num_rows.values()) < limit)
    title = text.partition("\n")[0].removeprefix("# ")
    header = {"license": "apache-2.0", "pretty_name": title, "size_categories": [size], **metadata}
    rows = "\n".join(f"| {split} | {number:,} |" for split, number in num_rows.items())
    table = f"| split | examples |\n| --- | ---: |\n{rows}"
    front_matter = yaml.safe_dump(header, sort_keys=False)
    card = f"---\n{front_matter}---\n\n{text}\n\n{table}\n\nGenerated by onlstm_hf:\n\n```sh\n{command}\n```\n"
    (folder / "README.md").write_text(card, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    sys.exit(main())
