"""Translate other trainers' files for the embedded engine: which keys it supports, and what they become.

No torch. The engine's settings use Axolotl's keys, plus these, which appear in no file:

    arguments       passed to TrainingArguments unchanged
    order           "torch": rows in the order of transformers' sampler with `order_seed`; "file": in file order
    rows_apart      every row is one sample, and rows are held out before any is read; otherwise samples are held out
    held_out_first  the first rows are held out; otherwise they are drawn as `datasets` draws them
    weights         "auto": in the data type of the checkpoint
    end_token, stop_words   how a template changes the tokenizer
"""
