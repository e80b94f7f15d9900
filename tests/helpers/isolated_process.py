"""Use of checkpoints with remote code in processes that cannot import `onlstm_hf`."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_HIDE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden}:
            raise ModuleNotFoundError(f"No module named {{name!r}}")

sys.meta_path.insert(0, Absent())
"""
# Uses each checkpoint in all ways, saves it, and uses the saved copy in the same way.
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

def refusal(call, *arguments, **options):
    try:
        return f"no error: {call(*arguments, **options)}"
    except (AttributeError, ValueError) as error:
        return str(error)

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
        report["pipeline"] = type(parse).__module__
        report["records"] = parse([sentence, "3\\\\/4 mat"], branching_bias="none", batch_size=2)
        report["refusals"] = [
            *(refusal(model.parse, wrong, tokenizer) for wrong in ([sentence.split()], [3, 4], input_ids)),
            refusal(model.parse, sentence, tokenizer, punctuation="cue"),
            refusal(parse, sentence, split_sentences=True),
            refusal(parse, [sentence.split()]),
            *(refusal(getattr, tree, name) for name in ("to_record", "compare", "to_nltk", "to_svg")),
        ]
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


def run_isolated(
    script: str, *arguments: str | Path, modules: Path, folder: Path | None = None, hidden: Sequence[str] = ()
) -> dict:
    """Runs a script without user packages and PYTHON* variables, and parses the JSON in its last line of output.

    Args:
        script: Python code; it does not import from the working directory.
        arguments: `sys.argv[1:]` of the script.
        modules: cache folder of Transformers for remote code.
        folder: working directory.
        hidden: packages that the script cannot import.
    """
    command = [sys.executable, "-I", "-X", "utf8", "-c", _HIDE.format(hidden=[*hidden]) + script, *map(str, arguments)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(modules)}
    options = {"capture_output": True, "encoding": "utf-8", "timeout": 300}
    process = subprocess.run(command, env=environment, cwd=folder, **options)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def use_without_package(checkpoints: dict[str, tuple[str, str | dict[str, str]]], modules: Path, folder: Path) -> dict:
    """Uses checkpoints in a process that cannot import the package, then saves and reloads them.

    Args:
        checkpoints: folder and input of each checkpoint, by any name. The input is a sentence for a language model, or
            a pair (`text`, `text_pair`) for a classifier. The copy of a checkpoint is in its folder's name + `-again`.
        modules, folder: see `run_isolated`.

    Returns:
        `import_error`, the error of `import onlstm_hf`, and `reports` with the results of `first` and `again` by name.
    """
    return run_isolated(
        _USE_CHECKPOINTS, json.dumps(checkpoints), modules=modules, folder=folder, hidden=["onlstm_hf"]
    )
