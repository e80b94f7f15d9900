"""Trains an ON-LSTM on your own text with the `Trainer` of Transformers, exports it, and draws a tree.

    python examples/trainer.py train.txt valid.txt runs/trainer
    python examples/trainer.py train.txt valid.txt runs/trainer --report_to tensorboard --push user/my-onlstm

The files have one sentence per line. As in `parse`, the model reads each sentence between two `<eos>`, so the
perplexity is that of independent sentences. `training/train_lm.py` reads the text as one stream and has the schedules
of the papers.
"""

import argparse
import math
from pathlib import Path

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
)

from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM, build_word_tokenizer
from onlstm_hf.hub.export import export_checkpoint
from onlstm_hf.hub.push import push_model


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Trains with command-line arguments and returns the scores of the validation text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train_file")
    parser.add_argument("validation_file")
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--num_epochs", type=float, default=5)
    parser.add_argument("--max_steps", type=int, default=-1)
    parser.add_argument("--vocab_size", type=int, default=10_000)
    parser.add_argument("--report_to", default="none", help="tensorboard, trackio or wandb show curves")
    parser.add_argument("--push", metavar="USER/NAME", help="repository on the Hub to push the model to")
    options = parser.parse_args(arguments)

    # 1. The text, and a tokenizer that splits ordinary text into words.
    texts = load_dataset("text", data_files={"train": options.train_file, "validation": options.validation_file})
    texts = texts.filter(lambda line: line["text"].strip() != "")
    tokenizer = build_word_tokenizer(
        texts["train"], vocab_size=options.vocab_size, lowercase=True, split="treebank", drop_punctuation=True
    )

    def encode(batch: dict) -> dict:
        eos = [tokenizer.eos_token_id]
        return {"input_ids": [eos + ids + eos for ids in tokenizer(batch["text"]).input_ids]}

    sentences = texts.map(encode, batched=True, remove_columns="text")

    # 2. A small model. Each layer has its own distances; `parse` uses those of `parse_layer`, counted from 0.
    model = ONLSTMForCausalLM(
        ONLSTMConfig(
            vocab_size=len(tokenizer),
            embedding_size=200,
            hidden_size=400,
            num_hidden_layers=2,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )

    # 3. Training. The collator pads with <pad> and ignores its labels.
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(options.output_dir / "checkpoints"),
            num_train_epochs=options.num_epochs,
            max_steps=options.max_steps,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=64,
            learning_rate=3e-3,
            lr_scheduler_type="cosine",
            weight_decay=0.01,
            max_grad_norm=1.0,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model="eval_loss",
            logging_steps=50,
            report_to=options.report_to,
        ),
        train_dataset=sentences["train"],
        eval_dataset=sentences["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
    )
    trainer.train()
    scores = trainer.evaluate()
    print(f"validation perplexity {math.exp(scores['eval_loss']):.2f}")

    # 4. The best weights with the model's code, so that Transformers can load them without this package.
    trainer.save_model(str(options.output_dir / "best"))
    print(export_checkpoint(options.output_dir / "best", options.output_dir / "exported"))
    if options.push:
        print(push_model(options.output_dir / "exported", options.push))

    # 5. A tree.
    model = AutoModelForCausalLM.from_pretrained(options.output_dir / "exported")
    tokenizer = AutoTokenizer.from_pretrained(options.output_dir / "exported")
    sentence = next(text for text in texts["validation"]["text"] if 4 <= len(text.split()) <= 12)
    print(model.parse(sentence, tokenizer))
    return scores


if __name__ == "__main__":
    main()
