"""Facts about models, cards, trainers and torch versions: bundled data and the pure functions that read it."""
