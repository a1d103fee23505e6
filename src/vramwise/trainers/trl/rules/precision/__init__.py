"""Rules of TRL about precision."""
