"""TRL: `trl sft|dpo|kto|reward|grpo|rloo --config file.yaml`, and recipes of projects built on it."""
