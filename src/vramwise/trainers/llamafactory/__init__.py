"""LLaMA-Factory: flat YAML or JSON files for `llamafactory-cli train`."""
