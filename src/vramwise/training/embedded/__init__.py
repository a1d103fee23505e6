"""Files of other trainers in the words of the embedded engine: which keys it honours, and what they become.

No torch. The engine's own words are those of its first files (Axolotl's keys), and these, which no file has:

    arguments       what is handed to TrainingArguments as it stands
    order           "torch": rows in the order of transformers' sampler, of `order_seed`; "file": as they come
    rows_apart      every row is one sample, and rows are held out before any is read; else samples are
    held_out_first  they are the first rows; else drawn as `datasets` draws them
    weights         "auto": in the type that the checkpoint has
    end_token, stop_words   what a template makes of the tokenizer
"""
