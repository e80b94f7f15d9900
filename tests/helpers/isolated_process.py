"""Processes in which `onlstm_hf` cannot be imported, and what they do there with checkpoints that carry their code."""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

# Importing the libraries takes seconds of CPU: this process has done so, and for each line that it reads one that is
# forked from it runs a script.
_LIBRARIES = """
import json, os, signal, sys, traceback
import torch, torch._dynamo
import transformers.modeling_utils, transformers.pipelines, transformers.dynamic_module_utils

def run(script, arguments, modules, folder, output, errors):
    signal.alarm(300)  # which ends it
    for file_number, path in enumerate((os.devnull, output, errors)):
        os.dup2(os.open(path, os.O_RDWR), file_number)
    if folder is not None:
        os.chdir(folder)
    os.environ["HF_MODULES_CACHE"] = transformers.dynamic_module_utils.HF_MODULES_CACHE = modules
    sys.argv[1:] = arguments
    try:
        exec(script, {"__name__": "__main__"})
        return 0
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()

for line in sys.stdin:
    if process := os.fork():
        print(os.waitpid(process, 0)[1], flush=True)
    else:
        os._exit(run(**json.loads(line)))
"""

_HIDE_PACKAGE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "onlstm_hf":
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Absent())
"""
# Everything that checkpoints are for. Each is saved again, and what was saved is used in the same way.
_USE_CHECKPOINTS = """
import json
import torch
from transformers import (
    AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer, pipeline
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

folders = json.loads(sys.argv[1])
try:
    import onlstm_hf
except ModuleNotFoundError as error:
    import_error = str(error)
trusted = {"trust_remote_code": True}

def use_base_model(folder, input_ids):
    output = AutoModel.from_pretrained(folder, **trusted)(input_ids)
    return (output if isinstance(output, torch.Tensor) else output.last_hidden_state).tolist()

def use_language_model(folder, model, tokenizer, sentence):
    input_ids = tokenizer(sentence, return_tensors="pt").input_ids
    report = {
        "logits": model(input_ids).logits[0].tolist(),
        "hidden": use_base_model(folder, input_ids),
        "is_known_to_shift_labels": type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values(),
        "generated": model.generate(input_ids, max_new_tokens=5, do_sample=False)[0].tolist(),
    }
    write = pipeline("text-generation", model=folder, device="cpu", **trusted)
    report["text"] = write(sentence + " ", max_new_tokens=5, do_sample=False)[0]["generated_text"]
    if model.induces_trees:
        tree = model.parse(sentence, tokenizer)
        report |= {"brackets": tree.to_bracket(), "distances": list(tree.distances)}
        parse = pipeline("constituency-parsing", model=folder, device="cpu", **trusted)
        report |= {"pipeline": type(parse).__module__, "records": parse([sentence, "mat"], branching_bias="none")}
    return report

def use_classifier(folder, model, tokenizer, pair):
    classify = pipeline("text-classification", model=folder, device="cpu", **trusted)
    return {
        "scores": classify([pair], top_k=None)[0],
        "hidden": use_base_model(folder, tokenizer(pair["text"], return_tensors="pt").input_ids),
    }

def use(folder, text):
    is_classifier = isinstance(text, dict)
    auto_class = AutoModelForSequenceClassification if is_classifier else AutoModelForCausalLM
    model = auto_class.from_pretrained(folder, **trusted)
    tokenizer = AutoTokenizer.from_pretrained(folder, **trusted)
    report = {"module": type(model).__module__, "config": type(model.config).__module__}
    report |= (use_classifier if is_classifier else use_language_model)(folder, model, tokenizer, text)
    return model, tokenizer, report

reports = {}
for name, (folder, text) in folders.items():
    model, tokenizer, report = use(folder, text)
    for part in (model, tokenizer):
        part.save_pretrained(folder + "-again")
    reports[name] = {"first": report, "again": use(folder + "-again", text)[2]}
print(json.dumps({"import_error": import_error, "reports": reports}))
"""


@cache
def _libraries() -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-I", "-X", "utf8", "-c", _LIBRARIES],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    atexit.register(process.communicate)
    return process


def run_isolated(script: str, *arguments: str | Path, modules: Path, folder: Path | None = None) -> dict:
    """Runs a script without user packages and PYTHON* variables, and reads the JSON of its last line.

    PyTorch and Transformers have been imported before it begins, and nothing that imports this package.

    Args:
        script: Python. The working directory is not among the places that it imports from.
        arguments: its `sys.argv[1:]`.
        modules: where Transformers keeps the code that it runs.
        folder: the working directory.
    """
    with tempfile.NamedTemporaryFile() as output, tempfile.NamedTemporaryFile() as errors:
        place = {"modules": str(modules), "folder": folder and str(folder)}
        files = {"output": output.name, "errors": errors.name}
        process = _libraries()
        job = {"script": script, "arguments": list(map(str, arguments)), **place, **files}
        print(json.dumps(job), file=process.stdin, flush=True)
        status = process.stdout.readline()
        assert status == "0\n", errors.read().decode()
        return json.loads(output.read().decode().splitlines()[-1])


def run_without_package(script: str, *arguments: str | Path, modules: Path, folder: Path | None = None) -> dict:
    """`run_isolated` in a process where the package cannot be imported."""
    return run_isolated(_HIDE_PACKAGE + script, *arguments, modules=modules, folder=folder)


def use_without_package(checkpoints: dict[str, tuple[str, str | dict[str, str]]], modules: Path, folder: Path) -> dict:
    """Uses checkpoints in one process where the package is not importable: loaded, and saved and loaded again.

    Args:
        checkpoints: by any name the folder of each, and a text: the sentence that a language model reads, goes on from
            and parses, or the pair that a classifier classifies, `text` and `text_pair`. Beside each folder one is
            written whose name ends with `-again`.
        modules, folder: see `run_isolated`.

    Returns:
        `import_error`, that of `import onlstm_hf`, and `reports`: by name, `first` and `again`, what was found.
    """
    return run_without_package(_USE_CHECKPOINTS, json.dumps(checkpoints), modules=modules, folder=folder)
