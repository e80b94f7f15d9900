"""What quantised weights give on a CPU: perplexity, F1, size and time of a model, beside those in float32.

    python eval/benchmark_quantization.py model_cards/onlstm-ptb-small --text test.txt --treebank wsj/

It needs the extra `quantizers`. Perplexity is that of the text in ten rows, F1 that of sentences (the model's own
layer), the size that of the saved weights. All variants take turns at parsing the first 160 sentences, at a pass over
10 x 256 tokens of the text, and at generating 20 tokens one by one. What is compared is the time of the CPU in one
thread, which other programs on the machine hardly change: the table has it relative to float32 in the same round, the
median and the quartiles over the rounds.
"""

import argparse
import io
import sys
import time
from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from eval.data.texts import read_sentences
from eval.extras import import_extra
from eval.report.tables import markdown_table
from eval.speed.measurement import Spread, ratios, take_turns
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.scoring.stream import encode_sentence_stream, stream_chunks, stream_log_likelihood
from onlstm_hf.trees.treebank import read_treebank
from onlstm_hf.utils.checkpoints import load_checkpoint, quiet_transformers
from onlstm_hf.utils.programs import positive_integer, run_program
from onlstm_hf.utils.results_file import describe_machine

FLOAT32 = "float32"
NUM_ROWS, NUM_SENTENCES, NUM_GENERATED = 10, 160, 20
SHORTEST_TURN = 0.5  # seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    options = build_parser().parse_args(arguments)
    return run_program("benchmark_quantization.py", lambda: benchmark_quantization(options))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="checkpoint folder or name on the Hub")
    parser.add_argument("--text", required=True, metavar="FILE", help="text for the perplexity, a sentence a line")
    parser.add_argument("--treebank", required=True, metavar="PATH", help="Penn-style trees: a file or folder")
    parser.add_argument("--rounds", type=positive_integer, default=7, metavar="N", help="turns of each (%(default)s)")
    return parser


def benchmark_quantization(options: argparse.Namespace) -> None:
    """Scores and times all variants of the model, and prints a table of them."""
    torch.set_num_threads(1)
    gold = read_treebank(options.treebank)
    sentences = [list(tree.words) for tree in gold]
    tokenizer, variants = load_variants(options.model)
    stream = encode_sentence_stream(tokenizer, read_sentences(options.text))
    inputs, _ = next(stream_chunks(variants[FLOAT32], stream, NUM_ROWS))
    print(", ".join(f"{name}: {value}" for name, value in describe_machine(torch.device("cpu")).items()), flush=True)

    cells = {}
    for name, model in variants.items():
        perplexity = stream_log_likelihood(model, stream, NUM_ROWS).perplexity
        scores = score_parses(model.parse(sentences, tokenizer, progress=False), gold, num_resamples=0)
        size = saved_bytes(model) / 2**20
        cells[name] = [f"{perplexity:.3f}", f"{100 * scores.sentence_f1:.2f}", f"{size:.1f}"]
    generated = {"min_new_tokens": NUM_GENERATED, "max_new_tokens": NUM_GENERATED, "do_sample": False}
    workloads = {
        "parsing": lambda model: model.parse(sentences[:NUM_SENTENCES], tokenizer, progress=False),
        "long pass": lambda model: model(inputs),
        "word by word": lambda model: model.generate(inputs[:1, :1], **generated),
    }
    for run in workloads.values():
        contestants = {name: partial(run, model) for name, model in variants.items()}
        with torch.no_grad():
            seconds = take_turns(
                contestants, options.rounds, torch.device("cpu"), SHORTEST_TURN, clock=time.process_time
            )
        for name, times in seconds.items():
            cells[name].append(str(Spread.of(ratios(times, seconds[FLOAT32]))))
    header = ["", "perplexity", "F1", "MiB", *(f"{workload}, time / {FLOAT32}" for workload in workloads)]
    print(markdown_table(header, [[name, *row] for name, row in cells.items()]))


def load_variants(name: str) -> tuple[PreTrainedTokenizerBase, dict[str, PreTrainedModel]]:
    """The tokenizer of a checkpoint, and its model on the CPU in float32 and by every quantiser, by name.

    Raises:
        ImportError: if a quantiser is not installed.
    """
    torchao, _ = (import_extra(library, extra="quantizers") for library in ("torchao.quantization", "bitsandbytes"))
    model, tokenizer = load_checkpoint(name)
    model = model.cpu()
    variants = {
        FLOAT32: model,
        "torch.ao.quantization.quantize_dynamic": torch.ao.quantization.quantize_dynamic(model, {nn.Linear}),
    }
    for config in (torchao.Int8WeightOnlyConfig(), torchao.Int8DynamicActivationInt8WeightConfig()):
        variant = variants[f"torchao, {type(config).__name__}"] = deepcopy(model)
        torchao.quantize_(variant, config)
    with quiet_transformers():
        variants["bitsandbytes, load_in_8bit"] = AutoModelForCausalLM.from_pretrained(
            name, quantization_config=BitsAndBytesConfig(load_in_8bit=True), dtype=torch.float32, device_map="cpu"
        )
    return tokenizer, variants


def saved_bytes(model: PreTrainedModel) -> int:
    """The size of the file that `torch.save` makes of the weights."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return len(file.getbuffer())


if __name__ == "__main__":
    sys.exit(main())
