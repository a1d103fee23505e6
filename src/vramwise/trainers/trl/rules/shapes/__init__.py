"""Rules of TRL about shapes."""
