"""Models: shapes of known ones, families written by hand, traces and the recorder that makes them."""
