"""What the embedded engine supports of Axolotl's files and of plain TrainingArguments, and its settings for them.

No torch. The engine's settings use Axolotl's keys, plus these, which appear in no file:

    arguments    passed to TrainingArguments unchanged; samples are blocks of joined texts
    order_seed   rows come in the order of transformers' sampler with this seed
    weights      "auto": in the data type of the checkpoint
"""
