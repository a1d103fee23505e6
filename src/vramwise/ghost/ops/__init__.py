"""What each op allocates, saves for backward, and allocates there. One file per kind of op."""
