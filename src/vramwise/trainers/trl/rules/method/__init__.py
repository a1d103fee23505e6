"""Rules of TRL about method."""
