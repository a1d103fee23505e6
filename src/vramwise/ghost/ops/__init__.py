"""What each op allocates, saves for backward, and allocates again there. One file a kind of op."""
