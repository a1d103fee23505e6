"""LLaMA-Factory: flat YAML or JSON files that `llamafactory-cli train` takes."""
