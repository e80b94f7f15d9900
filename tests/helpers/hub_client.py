"""Functions that run in processes whose Hub is a `HubServer`; this module does not import the package.

`HF_ENDPOINT` and its like are read when `huggingface_hub` is imported, so that no process of another test will do.
"""

import io
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from multiprocessing import forkserver
from typing import NamedTuple
from unittest import mock

SENTENCE = "the company said it expects to report a loss"


class Outcome(NamedTuple):
    """Exit code and output of a command, and the seconds that it would have waited between attempts."""

    code: int
    output: str
    errors: str
    waits: list[float]


@contextmanager
def client_processes(**variables: str) -> Iterator[Callable]:
    """Starts processes that have these environment variables.

    Each is a fork of one that was started with the variables and has imported the libraries, which takes seconds of
    CPU, and nothing of this package.

    Yields:
        A function that starts a process, in which constants of `huggingface_hub` have other values if they are given,
        and returns one that calls its first argument with the others in that process.
    """
    server = forkserver.ForkServer()
    server.set_forkserver_preload(["torch", "transformers.modeling_utils", "transformers.pipelines"])

    with ExitStack() as stack:

        def start(**constants: bool) -> Callable:
            pool = stack.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")))
            # The server of all other tests has imported the package, with other variables.
            with (
                mock.patch.dict(os.environ, variables),
                mock.patch.object(forkserver, "connect_to_new_process", server.connect_to_new_process),
            ):
                pool.submit(_set_constants, constants).result(timeout=300)
            return lambda function, *arguments: pool.submit(function, *arguments).result(timeout=300)

        stack.callback(server._stop)
        yield start


def _set_constants(constants: dict[str, bool]) -> None:
    from huggingface_hub import constants as module

    for name, value in constants.items():
        assert hasattr(module, name)
        setattr(module, name, value)


def hide_package() -> None:
    """From here on `import onlstm_hf` fails in this process."""

    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "onlstm_hf":
                raise ModuleNotFoundError(f"No module named {name!r}")

    sys.meta_path.insert(0, Absent())


def run_command(*arguments: str) -> Outcome:
    """Runs `onlstm-hf`; what waits is passed over."""
    from onlstm_hf.cli.main import main

    waits: list[float] = []
    with mock.patch("time.sleep", waits.append), redirect_stdout(io.StringIO()) as output:
        with redirect_stderr(io.StringIO()) as errors:
            code = main(arguments)
        return Outcome(code, output.getvalue(), " ".join(errors.getvalue().split()), waits)


def run_commands_in(folder: str, commands: list[list[str]]) -> list[Outcome]:
    """Runs `onlstm-hf` with each of the arguments, this folder being the working directory."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        return [run_command(*arguments) for arguments in commands]
    finally:
        os.chdir(before)


def load_model(name: str, trust: bool = False, **options) -> dict:
    """The module of the model's class, and the first logits."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not trust:
        import onlstm_hf  # noqa: F401
    model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=trust, **options)
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trust, **options)
    with torch.no_grad():
        logits = model(**tokenizer(SENTENCE, return_tensors="pt")).logits[0, -1, :8]
    return {"module": type(model).__module__, "logits": logits.tolist()}


def load_each_way(name: str, trust: bool = False) -> dict:
    """Loads a model with `load_model` and runs the pipelines."""
    from transformers import pipeline

    report = load_model(name, trust)
    options = {"model": name, "trust_remote_code": trust, "device": "cpu"}
    generate = pipeline("text-generation", **options)
    report["text"] = generate("the company ", max_new_tokens=4, do_sample=False)[0]["generated_text"]
    if generate.model.induces_trees:
        parse = pipeline("constituency-parsing", **options)
        report |= {"pipeline": type(parse).__module__, "brackets": parse(SENTENCE)["brackets"]}
    return report


def classify_pair(name: str, trust: bool) -> dict:
    """The module of the model's class, and the probability of every label for a pair of formulas."""
    from transformers import pipeline

    if not trust:
        import onlstm_hf  # noqa: F401
    classify = pipeline("text-classification", model=name, trust_remote_code=trust, device="cpu")
    (scores,) = classify([{"text": "( a ( and b ) )", "text_pair": "( not a )"}], top_k=None)
    return {"module": type(classify.model).__module__, "scores": {entry["label"]: entry["score"] for entry in scores}}


def push_by_methods(folder: str, name: str) -> None:
    """Shares a checkpoint by the `push_to_hub` of its model and of its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import onlstm_hf  # noqa: F401

    AutoModelForCausalLM.from_pretrained(folder).push_to_hub(name)
    AutoTokenizer.from_pretrained(folder).push_to_hub(name)


def list_files(name: str, repo_type: str = "model") -> list[str]:
    """The files of a repository, from its tree."""
    from huggingface_hub import HfApi

    return sorted(file.path for file in HfApi().list_repo_tree(name, repo_type=repo_type, recursive=True))


def upload_space(folder: str, name: str) -> None:
    """Uploads a folder as `hf upload --repo-type space` does."""
    from huggingface_hub import HfApi

    HfApi().create_repo(name, repo_type="space", space_sdk="gradio", exist_ok=True)
    HfApi().upload_folder(folder_path=folder, repo_id=name, repo_type="space")


def load_metric(name: str) -> dict[str, str]:
    """The module of the metric of this name."""
    import evaluate

    return {"module": type(evaluate.load(name)).__module__}


def score_trees(name: str) -> float:
    """Sentence F1 of a tree, by the metric of this name."""
    import evaluate

    gold = "(S (NP (DT The) (JJ old) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (PRP it)))) (. .))"
    metric = evaluate.load(name)
    return metric.compute(predictions=["((the (old cat)) ((sat on) it))"], references=[gold])["sentence_f1"]
