"""Training scripts and notebooks: their training calls as a document with the keys of the trainer they use."""
