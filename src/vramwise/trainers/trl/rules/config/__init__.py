"""Rules of TRL about config."""
