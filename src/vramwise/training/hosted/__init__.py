"""Inside another trainer's own process: its entry, and our guard in every Trainer that it makes."""
