"""Training scripts and notebooks: the calls that train, as a document with the keys of the trainer they call."""
