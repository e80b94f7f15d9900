"""The console command `onlstm-hf`: trees and scores of sentences, a web page, converted and shared checkpoints."""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TextIO

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..conversion.checkpoints import convert_original_checkpoint
from ..hub.push import push_metric, push_model
from ..scoring.sentences import score_sentences
from ..scoring.stream import StreamScore
from ..trees.drawing import save_figure, tree_to_text
from ..trees.induced_tree import InducedTree
from ..utils.checkpoints import add_code_option, default_model, load_checkpoint, quiet_transformers
from ..utils.files import read_lines, read_text_file, written_file, written_folder
from ..version import __version__

DESCRIPTION = "Constituency trees that a language model found in raw text, and its scores."
EXAMPLES = """\
examples:
  onlstm-hf parse "the old cat sat on the mat"
  onlstm-hf score --file sentences.txt
  onlstm-hf demo
  onlstm-hf convert PTB.pt my-checkpoint --vocab-from train.txt valid.txt test.txt
  onlstm-hf push my-checkpoint user/my-checkpoint

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
Makes a folder for from_pretrained of a file that the authors' scripts saved (Ordered-Neurons and PRPN of
github.com/yikangshen): [model, criterion, optimizer], a model, or a state dict. Their code is not needed, and nothing
in the file is run: tensors are read, objects are read as records of their attributes, and a file that calls anything
else is refused.
"""
CONVERT_EXAMPLES = """\
examples:
  onlstm-hf convert PTB.pt my-checkpoint --vocab-from train.txt valid.txt test.txt
  onlstm-hf convert state_dict.pt my-checkpoint --weight-dropout 0.45 --vocab-from train.txt valid.txt test.txt
"""
DEMO_DESCRIPTION = """\
Shows a web page with the trees of sentences, the distances of every layer and the surprisal of every word. It needs
pip install "onlstm_hf[demo]", and the page asks no other server for anything.
"""
DEMO_EXAMPLES = """\
examples:
  onlstm-hf demo
  onlstm-hf demo model_cards/onlstm-ptb-small runs/my-model/best --port 8080
  onlstm-hf demo --host 0.0.0.0 --allowed-host parser.example.org
"""
PUSH_DESCRIPTION = """\
Shares a checkpoint folder on the Hugging Face Hub, a language model or a classifier of pairs. First the folder is
checked: that the model loads and parses (or classifies a pair), that its weights are in safetensors files, that it
carries its code and nothing else, and that its card is valid. The card is written from --results, or from results.json
where the folder has one, and is its README.md otherwise. Then everything is uploaded as
one commit, after which the repository has these files and no others. If the upload fails, it stays as it was; one
that was created for it is empty. Where the connection breaks before the Hub has answered, the repository is looked at:
if the commit is there, the push has succeeded. Pushing again is safe in any case: nothing is committed twice.
"""
PUSH_METRIC_DESCRIPTION = """\
Shares a metric folder as a Space of the Hugging Face Hub, as one commit. evaluate.load("user/name") then finds the
metric; it looks for name.py, so the Space must have the name of the folder's module.
"""
PUSH_EXAMPLES = """\
examples:
  onlstm-hf push model_cards/onlstm-ptb-small user/onlstm-ptb-small --private
  onlstm-hf push runs/logic_onlstm/best user/logic-onlstm --results runs/logic_onlstm/results.json
  onlstm-hf push-metric eval/parsing_f1 user/parsing_f1

The token is that of `hf auth login` or of the environment variable HF_TOKEN unless it is given.
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
    add_code_option(text)
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
        choices=["right", "none", "ranges"],
        default="right",
        help="the papers' rule, which favours right branching, or one without bias, or the one of a PRPN's gates at "
        "infinite temperature (%(default)s)",
    )
    parse.add_argument(
        "--hard",
        action="store_const",
        dest="branching_bias",
        const="ranges",
        help="trees of hard gates, as --branching-bias ranges",
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

    demo = commands.add_parser(
        "demo", help="web page", description=DEMO_DESCRIPTION, epilog=DEMO_EXAMPLES, **shown_as_written
    )
    demo.add_argument("models", nargs="*", metavar="FOLDER", help="checkpoints (or names on the Hub) to choose from")
    demo.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on; 0.0.0.0 lets others in (%(default)s)",
    )
    demo.add_argument("--port", type=positive_integer, default=7860, metavar="N", help="(%(default)s)")
    demo.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name under which others reach this machine, once for each; its addresses need none",
    )
    demo.set_defaults(run=_demo)

    convert = commands.add_parser(
        "convert",
        help="checkpoint of the authors' code to a checkpoint folder",
        description=CONVERT_DESCRIPTION,
        epilog=CONVERT_EXAMPLES,
        **shown_as_written,
    )
    convert.add_argument("source", metavar="SOURCE", help="file of torch.save, or a state dict in .safetensors")
    convert.add_argument("out", metavar="OUT", help="new folder to write")
    read_off = convert.add_argument_group(
        "read from the file", "A state dict lacks these. Then they are what stands in brackets, unless given here."
    )
    read_off.add_argument(
        "--weight-dropout",
        type=float,
        metavar="P",
        help="ON-LSTM: wdrop of the training, which evaluation needs (0.45)",
    )
    read_off.add_argument("--num-slots", type=positive_integer, metavar="N", help="PRPN: slots of the memory (15)")
    read_off.add_argument("--resolution", type=float, metavar="R", help="PRPN: resolution of the distances (0.1)")
    read_off.add_argument(
        "--hard",
        action=argparse.BooleanOptionalAction,
        help="PRPN: whether its gates are of the hard kind (they are)",
    )
    convert.add_argument(
        "--vocab-from",
        nargs="+",
        metavar="FILE",
        help="text files of the training in the authors' order (train, valid, test), to build the tokenizer from; "
        "they must have as many different words as the model",
    )
    convert.set_defaults(run=_convert)

    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("folder", metavar="FOLDER", help="what to upload")
    shared.add_argument("repository", metavar="USER/NAME", help="where to; it is created if it does not exist")
    shared.add_argument("--private", action="store_true", help="nobody else can see it")
    shared.add_argument("--revision", metavar="BRANCH", help="branch to commit to, created if need be (main)")
    shared.add_argument("--token", metavar="TOKEN", help="a token with write access")
    for name, push, help_text, description in [
        ("push", push_model, "share a checkpoint folder on the Hub", PUSH_DESCRIPTION),
        ("push-metric", push_metric, "share a metric folder as a Space", PUSH_METRIC_DESCRIPTION),
    ]:
        command = commands.add_parser(
            name, parents=[shared], help=help_text, description=description, epilog=PUSH_EXAMPLES, **shown_as_written
        )
        command.set_defaults(run=_push, push=push, results=None)
        if push is push_model:
            command.add_argument(
                "--results", metavar="FILE", help="results.json of the training, if it is not in the folder"
            )
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
def _output(path: str | None) -> Iterator[TextIO]:
    """A new file, or standard output where none is named."""
    if path is None:
        yield sys.stdout
        return
    _check_is_new(Path(path))
    with written_file(path) as file:
        yield file


def _drawing(tree: InducedTree) -> str:
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


def _load_model(options: argparse.Namespace) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    return load_checkpoint(options.model or default_model(), trust_remote_code=options.trust_remote_code)


def _parse(options: argparse.Namespace) -> None:
    sentences = _sentences(options)
    if options.format == "svg":
        _draw(options, sentences)
        return
    with _output(options.output) as output:
        model, tokenizer = _load_model(options)
        for batch in _batches(options, sentences):
            for tree in model.parse(batch, tokenizer, progress=False, **_parse_options(options)):
                print(TREE_FORMATS[options.format](tree), file=output)
            output.flush()


def _draw(options: argparse.Namespace, sentences: Iterator[str]) -> None:
    output = None if options.output is None else Path(options.output)
    if output is not None:
        _check_is_new(output)
    if output is not None and output.suffix.lower() not in (".svg", ".png"):
        with written_folder(output) as folder:
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
    model, tokenizer = _load_model(options)
    for sentence in sentences:
        yield model.draw_distances(sentence, tokenizer, **_parse_options(options))


def _parse_options(options: argparse.Namespace) -> dict:
    names = ("layer", "branching_bias", "units", "batch_size", "max_length")
    return {name: getattr(options, name) for name in names}


def _score(options: argparse.Namespace) -> None:
    sentences = _sentences(options)
    model, tokenizer = _load_model(options)
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


def _demo(options: argparse.Namespace) -> None:
    from ..demo.app import serve  # which needs the extra

    serve(options.models, options.host, options.port, options.allowed_host)


def _convert(options: argparse.Namespace) -> None:
    out = Path(options.out)
    _check_is_new(out)
    given = {name: getattr(options, name) for name in ("weight_dropout", "num_slots", "resolution", "hard")}
    overrides = {name: value for name, value in given.items() if value is not None}
    model, tokenizer = convert_original_checkpoint(options.source, options.vocab_from, **overrides)
    with written_folder(out) as folder, quiet_transformers():
        model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
    print(
        f"{out}: {type(model).__name__}, {model.num_parameters():,} parameters, {model.config.vocab_size} words, "
        f"{'with its tokenizer' if tokenizer else 'without a tokenizer (--vocab-from builds it)'}"
    )


def _push(options: argparse.Namespace) -> None:
    names = ("private", "revision", "token", *(["results"] if options.results else []))
    given = {name: getattr(options, name) for name in names}
    print(options.push(options.folder, options.repository, **given))


if __name__ == "__main__":
    sys.exit(main())
