"""What `new` needs: the plan of a run, trials of it, and the text of the config with its reasons."""
