"""The console command `onlstm-hf`: trees and scores of sentences, and conversion of checkpoints.

Only the standard library is imported before a command runs, so that `--help` and mistakes in the arguments get their
answer at once.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from .version import __version__

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from .evaluation import StreamScore
    from .trees import InducedTree

DEFAULT_MODEL = Path("model_cards", "onlstm-ptb-small")
MAX_TOKENS_PER_CALL = 2048

DESCRIPTION = "Constituency trees that a language model found in raw text, and its scores."
EXAMPLES = """\
examples:
  onlstm-hf parse "the old cat sat on the mat"
  onlstm-hf score --file sentences.txt
  onlstm-hf convert weights.safetensors my-checkpoint --vocab-from train.txt valid.txt test.txt

The model is a checkpoint folder or a name on the Hub. Where --model is not given, it is the environment variable
ONLSTM_MODEL, or else the folder model_cards/onlstm-ptb-small of the current directory or of the checkout that the
package is installed from.
"""
PARSE_DESCRIPTION = """\
Writes the tree of each sentence, in the order of the input. The tree has the words as they were typed; those that the
model does not know are read as <unk>. Brackets and JSON keep to one line a sentence: an empty line gives the tree
without words, ().
"""
PARSE_EXAMPLES = """\
examples:
  onlstm-hf parse "the old cat sat on the mat" --format tree
  onlstm-hf parse --file sentences.txt --output trees.txt
  zcat corpus.txt.gz | onlstm-hf parse --format jsonl | head
  onlstm-hf parse "the cat sat on the mat" --format svg --output tree.png
  onlstm-hf parse --file sentences.txt --format svg --output figures

formats:
  brackets  (the (old cat))
  tree      drawn with characters, an empty line after each
  jsonl     {"words": [...], "bracket": "...", "spans": [[start, end], ...], "distances": [...]}
  svg       the tree above the distances that every layer gives its words. One sentence goes to standard output, or to
            an --output that ends in .svg or .png; several go to a new folder, --output, as 1.svg, 2.svg, ...
"""
SCORE_DESCRIPTION = """\
Writes the natural log probability, the number of tokens and the perplexity of each sentence, and of all together.
Every sentence stands alone: it is read after one <eos>, and the <eos> at its end is predicted and counted, too.
"""
SCORE_EXAMPLES = """\
examples:
  onlstm-hf score "the cats sit on the mat" "the cats sits on the mat"
  onlstm-hf score --file sentences.txt --format jsonl

JSON lines also have the tokens, which end with <eos>, and the log probability of each. The last line is
{"total": ...}.
"""
CONVERT_DESCRIPTION = """\
Makes a folder for from_pretrained of a state dict of the authors' code (github.com/yikangshen/Ordered-Neurons). Files
that hold whole pickled objects are refused, since reading these runs code.
"""
CONVERT_EXAMPLES = """\
examples:
  onlstm-hf convert weights.safetensors my-checkpoint
  onlstm-hf convert weights.pt my-checkpoint --weight-dropout 0.45 --vocab-from train.txt valid.txt test.txt
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `onlstm-hf` and returns its exit code: 0, 1 for what the user can mend, 130 for Ctrl-C, 141 for `| head`.

    Args:
        arguments: in place of those of the process.

    Raises:
        SystemExit: with 2 for wrong arguments, and after `--help` and `--version`.
    """
    options = build_parser().parse_args(arguments)
    return run_program("onlstm-hf", lambda: options.run(options))


def run_program(name: str, work: Callable[[], None]) -> int:
    """Runs the work of a command and turns errors that its user can cause into one line on standard error.

    Args:
        name: what the line begins with.
        work: raises `ValueError`, `OSError` or `ImportError` for such errors.

    Returns:
        The exit code.
    """
    try:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")
        work()
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody reads on, and the interpreter must not fail on it again when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The arguments of `onlstm-hf` and its subcommands."""
    shown_as_written = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser("onlstm-hf", description=DESCRIPTION, epilog=EXAMPLES, **shown_as_written)
    parser.add_argument("--version", action="version", version=f"onlstm-hf {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    text = argparse.ArgumentParser(add_help=False)
    source = text.add_mutually_exclusive_group()
    source.add_argument("text", nargs="*", default=[], metavar="TEXT", help="a sentence")
    source.add_argument(
        "--file",
        metavar="FILE",
        help="UTF-8 text, one sentence a line; - here or as TEXT is standard input, as are neither TEXT nor FILE",
    )
    text.add_argument("--model", metavar="PATH_OR_NAME", help="checkpoint folder or name on the Hub")
    text.add_argument(
        "--batch-size",
        type=positive_integer,
        default=64,
        metavar="N",
        help="sentences that go through the model, and are written, at a time (%(default)s)",
    )

    parse = commands.add_parser(
        "parse",
        parents=[text],
        help="sentences to trees",
        description=PARSE_DESCRIPTION,
        epilog=PARSE_EXAMPLES,
        **shown_as_written,
    )
    parse.add_argument("--format", choices=[*TREE_FORMATS, "svg"], default="brackets", help="see below (%(default)s)")
    parse.add_argument(
        "--layer", type=int, metavar="N", help="layer that makes the trees, counted from 0 (the model's parse_layer)"
    )
    parse.add_argument(
        "--branching-bias",
        choices=["right", "none"],
        default="right",
        help="the papers' rule, which favours right branching, or one without bias (%(default)s)",
    )
    parse.add_argument(
        "--units",
        choices=["words", "tokens"],
        default="words",
        help="what the leaves are; they differ with a subword tokenizer (%(default)s)",
    )
    parse.add_argument(
        "--max-length",
        type=positive_integer,
        metavar="N",
        help="tokens of a sentence that are read at a time; bounds the memory for very long ones, same trees",
    )
    parse.add_argument("--output", metavar="PATH", help="new file (or folder) to write, instead of standard output")
    parse.set_defaults(run=_parse)

    score = commands.add_parser(
        "score",
        parents=[text],
        help="log probability and perplexity of sentences",
        description=SCORE_DESCRIPTION,
        epilog=SCORE_EXAMPLES,
        **shown_as_written,
    )
    score.add_argument("--format", choices=["table", "jsonl"], default="table", help="(%(default)s)")
    score.set_defaults(run=_score)

    convert = commands.add_parser(
        "convert",
        help="checkpoint of the authors' code to a checkpoint folder",
        description=CONVERT_DESCRIPTION,
        epilog=CONVERT_EXAMPLES,
        **shown_as_written,
    )
    convert.add_argument("source", metavar="SOURCE", help="state dict: a .safetensors file, or one of torch.save")
    convert.add_argument("out", metavar="OUT", help="new folder to write")
    convert.add_argument("--model-type", choices=["onlstm"], default="onlstm", help="(%(default)s)")
    convert.add_argument(
        "--weight-dropout",
        type=float,
        default=0.45,
        metavar="P",
        help="wdrop of the training, which the weights do not tell and evaluation needs (%(default)s)",
    )
    convert.add_argument(
        "--vocab-from",
        nargs="+",
        metavar="FILE",
        help="text files of the training in the authors' order (train, valid, test), to build the tokenizer from",
    )
    convert.set_defaults(run=_convert)
    return parser


def positive_integer(text: str) -> int:
    """An argument that must be 1 or more."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


def _sentences(options: argparse.Namespace) -> Iterator[str]:
    """The sentences of the arguments, the file or standard input; a file is checked as a whole before this returns."""
    if _reads_standard_input(options):
        if sys.stdin.isatty():
            print("Type a sentence a line; end with Ctrl-D.", file=sys.stderr)
        return read_lines(sys.stdin.buffer, "standard input")
    if options.text:
        return read_lines((os.fsencode(text) for text in options.text), "the text")
    if Path(options.file).is_file():  # what is no regular file, such as a pipe, can be read only once
        for _ in read_text_file(options.file):
            pass
    return read_text_file(options.file)


def _reads_standard_input(options: argparse.Namespace) -> bool:
    return options.file == "-" or (options.file is None and options.text in ([], ["-"]))


def read_text_file(path: str | os.PathLike) -> Iterator[str]:
    """The lines of a UTF-8 text file, read as they are asked for.

    Raises:
        FileNotFoundError, IsADirectoryError: if there is no such file.
        ValueError: see `read_lines`.
    """
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a text file")
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}")
    return read_lines(_binary_lines(path), str(path))


def _binary_lines(path: str | os.PathLike) -> Iterator[bytes]:
    with open(path, "rb") as file:
        yield from file


def read_lines(lines: Iterable[bytes], source: str) -> Iterator[str]:
    """Decodes lines of text as they come.

    Args:
        lines: for instance a file that is open in binary mode.
        source: what error messages call them.

    Raises:
        ValueError: for a line that is not UTF-8, and at the end if no line had a word.
    """
    has_words = False
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{source} is not UTF-8: byte {line[error.start]:#04x} in line {number}; convert it to UTF-8"
            ) from error
        has_words = has_words or bool(text.strip())
        yield text
    if not has_words:
        raise ValueError(f"{source} is empty: there is no sentence in it")


def _batches(options: argparse.Namespace, sentences: Iterator[str]) -> Iterator[list[str]]:
    is_typed = _reads_standard_input(options) and sys.stdin.isatty()
    size = 1 if is_typed else options.batch_size
    while batch := list(islice(sentences, size)):
        yield batch


def _check_is_new(path: Path) -> None:
    if path.exists():
        raise FileExistsError(f"{path} exists already; choose another name or remove it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")


@contextmanager
def written_file(path: str | os.PathLike) -> Iterator[TextIO]:
    """Opens a UTF-8 text file for writing that gets its name only once it is complete."""
    path = Path(path)
    temporary = _beside(path)
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _written_folder(path: Path) -> Iterator[Path]:
    """An empty folder that gets its name only once it is complete."""
    temporary = _beside(path)
    temporary.mkdir()
    try:
        yield temporary
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


@contextmanager
def _output(path: str | None) -> Iterator[TextIO]:
    """A new file, or standard output where none is named."""
    if path is None:
        yield sys.stdout
        return
    _check_is_new(Path(path))
    with written_file(path) as file:
        yield file


def default_model() -> str:
    """The model that is used where none is named.

    Raises:
        FileNotFoundError: if there is none; the message says how to name or train one.
    """
    if os.environ.get("ONLSTM_MODEL"):
        return os.environ["ONLSTM_MODEL"]
    for folder in (Path.cwd(), Path(__file__).resolve().parent.parent):
        if (folder / DEFAULT_MODEL / "config.json").is_file():
            return str(folder / DEFAULT_MODEL)
    raise FileNotFoundError(
        f"no model is named and {DEFAULT_MODEL} is not here: give --model FOLDER_OR_NAME or set ONLSTM_MODEL; "
        "`python training/quickstart.py` in a checkout trains a small one in runs/quickstart/model/best"
    )


def load_checkpoint(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads a recurrent language model, in float32 and on the GPU if there is one, and its tokenizer.

    Args:
        name: a checkpoint folder, or a name on the Hub. Code that comes with it is not run.

    Raises:
        FileNotFoundError: if there is no such folder, or it has no configuration or no tokenizer.
        ValueError: if it cannot be loaded or lacks weights, is no model of this package, has weights that are not
            finite, or a tokenizer that does not fit.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    is_folder = Path(name).is_dir()
    if not is_folder and not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise FileNotFoundError(f"there is no checkpoint folder {name}")
    if is_folder and not (Path(name) / "config.json").is_file():
        raise FileNotFoundError(f"{name} is no checkpoint folder: it has no config.json")
    if is_folder and not any(Path(name).glob("tokenizer*")):
        raise FileNotFoundError(
            f"the checkpoint {name} has no tokenizer; for a converted one, `onlstm-hf convert --vocab-from` builds it"
        )
    hint = "" if is_folder else " (there is no folder of this name)"
    with _quiet_transformers():
        # Corrupt and foreign files fail in more ways than can be listed.
        try:
            model, report = AutoModelForCausalLM.from_pretrained(
                name, dtype=torch.float32, trust_remote_code=False, output_loading_info=True
            )
        except Exception as error:
            raise ValueError(f"cannot load the model {name}{hint}: {error}") from error
        if not hasattr(model, "parse"):
            raise ValueError(f"{name} is a model of type {model.config.model_type}, which induces no trees")
        if report["missing_keys"]:
            missing = sorted(report["missing_keys"])
            raise ValueError(f"the model {name} lacks {len(missing)} of its weights, for instance {missing[0]}")
        for parameter_name, parameter in model.named_parameters():
            if not parameter.isfinite().all():
                raise ValueError(f"the weights of {name} contain NaN or infinity ({parameter_name})")
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        except Exception as error:
            raise ValueError(f"cannot load the tokenizer of {name}: {error}") from error
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer of {name} does not fit the model: it has {len(tokenizer)} tokens, the model's vocabulary "
            f"{model.config.vocab_size}"
        )
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Keeps progress bars and warnings of loading and saving off the terminal; failures still raise."""
    from transformers.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled

    disabled_level, shows_progress = logging.root.manager.disable, is_progress_bar_enabled()
    logging.disable(logging.WARNING)
    disable_progress_bar()
    try:
        yield
    finally:
        logging.disable(disabled_level)
        if shows_progress:
            enable_progress_bar()


def _drawing(tree: InducedTree) -> str:
    from .tree_drawing import tree_to_text

    return tree_to_text(tree, width=shutil.get_terminal_size((120, 24)).columns) + "\n"


def _json_line(tree: InducedTree) -> str:
    fields = {
        "words": tree.words,
        "bracket": tree.to_bracket(),
        "spans": tree.spans(),
        "distances": tree.distances,
    }
    return json.dumps(fields, ensure_ascii=False)


TREE_FORMATS: dict[str, Callable[[InducedTree], str]] = {
    "brackets": lambda tree: tree.to_bracket(),
    "tree": _drawing,
    "jsonl": _json_line,
}


def _parse(options: argparse.Namespace) -> None:
    sentences = _sentences(options)
    if options.format == "svg":
        _draw(options, sentences)
        return
    with _output(options.output) as output:
        model, tokenizer = load_checkpoint(options.model or default_model())
        for batch in _batches(options, sentences):
            for tree in _trees(model, tokenizer, batch, options, options.layer):
                print(TREE_FORMATS[options.format](tree), file=output)
            output.flush()


def _draw(options: argparse.Namespace, sentences: Iterator[str]) -> None:
    from .tree_drawing import save_figure

    output = None if options.output is None else Path(options.output)
    if output is not None:
        _check_is_new(output)
    if output is not None and output.suffix.lower() not in (".svg", ".png"):
        with _written_folder(output) as folder:
            for number, figure in enumerate(_figures(options, sentences), start=1):
                save_figure(figure, folder / f"{number}.svg")
        return
    only = list(islice(sentences, 2))
    if len(only) > 1:
        raise ValueError("one picture shows one sentence; for several name a new folder, such as --output figures")
    figure = next(_figures(options, iter(only)))
    if output is None:
        print(figure)
    else:
        save_figure(figure, output)


def _figures(options: argparse.Namespace, sentences: Iterator[str]) -> Iterator[str]:
    """An SVG document for each sentence: its tree above the distances of every layer."""
    from .tree_drawing import distances_to_svg

    model, tokenizer = load_checkpoint(options.model or default_model())
    chosen = model.config.parse_layer if options.layer is None else options.layer
    layers = range(model.config.num_hidden_layers)
    names = [f"layer {layer + 1}{', which makes the tree' if layer == chosen else ''}" for layer in layers]
    for batch in _batches(options, sentences):
        trees = _trees(model, tokenizer, batch, options, chosen)
        trees_by_layer = [_trees(model, tokenizer, batch, options, layer) for layer in layers]
        for tree, *trees_of_layers in zip(trees, *trees_by_layer, strict=True):
            yield distances_to_svg(tree, [layer_tree.distances for layer_tree in trees_of_layers], names)


def _trees(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: list[str],
    options: argparse.Namespace,
    layer: int | None,
) -> list[InducedTree]:
    return model.parse(
        sentences,
        tokenizer,
        layer=layer,
        branching_bias=options.branching_bias,
        units=options.units,
        batch_size=options.batch_size,
        max_length=options.max_length,
        progress=False,
    )


class SentenceScore(NamedTuple):
    """A sentence by itself, as a language model predicts it after one `<eos>`.

    Attributes:
        tokens: its tokens and the `<eos>` at its end.
        log_probabilities: natural log probability of each token, given all before it.
    """

    tokens: list[str]
    log_probabilities: list[float]

    def total(self) -> StreamScore:
        from .evaluation import StreamScore

        return StreamScore(sum(self.log_probabilities), len(self.log_probabilities))


def score_sentences(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str], batch_size: int = 64
) -> list[SentenceScore]:
    """Log probabilities of sentences that stand alone, in the order of the input.

    Args:
        model: a language model that takes and returns a `state`.
        tokenizer: its tokenizer.
        sentences: strings; an empty one is scored as `<eos>` after `<eos>`.
        batch_size: sentences in one pass, sorted by length and padded.

    Raises:
        ValueError: if the tokenizer has no `<eos>` or does not fit the model, or a probability is not finite.
    """
    import torch

    from .evaluation import check_token_ids

    eos = tokenizer.eos_token_id
    if eos is None:
        raise ValueError("the tokenizer needs an eos_token, which ends every sentence")
    encoded = tokenizer(list(sentences), add_special_tokens=False, verbose=False)["input_ids"] if sentences else []
    framed = [torch.tensor([eos, *ids, eos]) for ids in encoded]
    if framed:
        check_token_ids(torch.cat(framed), model)
    scores: list[SentenceScore | None] = [None] * len(framed)
    order = sorted(range(len(framed)), key=lambda index: len(framed[index]))
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        for index, row in zip(indices, _log_probabilities(model, [framed[i] for i in indices]), strict=True):
            scores[index] = SentenceScore(tokenizer.convert_ids_to_tokens(framed[index][1:].tolist()), row)
    return scores


def _log_probabilities(model: PreTrainedModel, sequences: list[torch.Tensor]) -> list[list[float]]:
    """The log probability of every token of each sequence but its first."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    from .parsing import evaluation_mode

    padded = pad_sequence(sequences, batch_first=True).to(model.device)
    lengths = torch.tensor([len(sequence) - 1 for sequence in sequences], device=model.device)
    inputs, targets = padded[:, :-1], padded[:, 1:]
    mask = (torch.arange(inputs.shape[1], device=model.device) < lengths[:, None]).long()
    pieces, state = [], None
    length = max(1, MAX_TOKENS_PER_CALL // len(sequences))
    with evaluation_mode(model):
        for start in range(0, inputs.shape[1], length):
            piece = slice(start, start + length)
            output = model(inputs[:, piece], attention_mask=mask[:, piece], state=state, use_cache=True)
            state = output.state
            log_probabilities = output.logits.float().log_softmax(dim=-1)
            pieces.append(log_probabilities.gather(-1, targets[:, piece, None]).squeeze(-1))
    rows = torch.cat(pieces, dim=1)
    if not rows[mask.bool()].isfinite().all():
        raise ValueError("a log probability is not finite: the model's weights contain NaN or infinity")
    return [row[:length] for row, length in zip(rows.tolist(), lengths.tolist(), strict=True)]


def _score(options: argparse.Namespace) -> None:
    from .evaluation import StreamScore

    sentences = _sentences(options)
    model, tokenizer = load_checkpoint(options.model or default_model())
    if options.format == "table":
        print(f"{'log probability':>15} {'tokens':>9} {'perplexity':>12}  sentence")
    log_likelihood, num_tokens, num_sentences = 0.0, 0, 0
    for batch in _batches(options, sentences):
        for text, score in zip(batch, score_sentences(model, tokenizer, batch, options.batch_size), strict=True):
            total = score.total()
            if options.format == "table":
                print(_table_row(total, " ".join(text.split())))
            else:
                print(json.dumps({"text": text, **_score_fields(total), **score._asdict()}, ensure_ascii=False))
            log_likelihood += total.total_log_likelihood
            num_tokens += total.num_tokens
            num_sentences += 1
        sys.stdout.flush()
    total = StreamScore(log_likelihood, num_tokens)
    if options.format == "table":
        print(_table_row(total, f"total ({num_sentences} sentence{'s' if num_sentences > 1 else ''})"))
    else:
        print(json.dumps({"total": {"num_sentences": num_sentences, **_score_fields(total)}}))


def _table_row(score: StreamScore, text: str) -> str:
    return f"{score.total_log_likelihood:15.4f} {score.num_tokens:9d} {score.perplexity:12.2f}  {text}"


def _score_fields(score: StreamScore) -> dict[str, float]:
    return {
        "log_probability": score.total_log_likelihood,
        "num_tokens": score.num_tokens,
        "perplexity": score.perplexity,
    }


def _convert(options: argparse.Namespace) -> None:
    out = Path(options.out)
    _check_is_new(out)
    state_dict = _read_state_dict(Path(options.source))

    from .conversion import convert_original_state_dict
    from .tokenization import build_word_tokenizer

    tokenizer, token_ids = None, {}
    if options.vocab_from:
        tokenizer = build_word_tokenizer(vocabulary=original_vocabulary(options.vocab_from), pad_token="<eos>")
        token_ids = {name: getattr(tokenizer, name) for name in ("eos_token_id", "pad_token_id")}
    model = convert_original_state_dict(state_dict, options.model_type, options.weight_dropout, **token_ids)
    if tokenizer is not None and len(tokenizer) != model.config.vocab_size:
        raise ValueError(
            f"the vocabulary does not fit: {', '.join(options.vocab_from)} have {len(tokenizer)} words (<eos> and "
            f"<unk> included), the model {model.config.vocab_size}; name the files of its training, in the authors' "
            "order: train, valid, test"
        )
    with _written_folder(out) as folder, _quiet_transformers():
        model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
    print(
        f"{out}: {type(model).__name__}, layers of {model.config.layer_sizes} units, {model.config.vocab_size} words, "
        f"{'with its tokenizer' if tokenizer else 'without a tokenizer (--vocab-from builds it)'}"
    )


def original_vocabulary(files: Sequence[str | os.PathLike]) -> list[str]:
    """The words in the order of the ids that the authors' code gives them: of first appearance, `<eos>` ends a line.

    Args:
        files: the training, validation and test text, in this order.

    Raises:
        FileNotFoundError: if a file does not exist.
        ValueError: if a file is empty or not UTF-8.
    """
    vocabulary: dict[str, None] = {}
    for path in files:
        for line in read_text_file(path):
            vocabulary.update(dict.fromkeys([*line.split(), "<eos>"]))
    return list(vocabulary)


def _read_state_dict(path: Path) -> dict[str, torch.Tensor]:
    from pickle import UnpicklingError

    import torch
    from safetensors.torch import load_file

    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise ValueError(
            f"{path} is corrupt or holds pickled Python objects, which are not loaded as they could run any code; "
            "save the weights alone, torch.save(model.state_dict(), ...), with the code that made the file"
        ) from error
    except Exception as error:  # as above, a corrupt file can fail in any way
        raise ValueError(f"cannot read {path}: {error}") from error
    if not isinstance(loaded, dict) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise ValueError(f"{path} is no state dict: expected names with tensors; save model.state_dict()")
    return loaded


if __name__ == "__main__":
    sys.exit(main())
