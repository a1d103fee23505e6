"""A server that runs in a thread while a test asks it."""

import threading
from contextlib import contextmanager


@contextmanager
def serving(server):
    """Serve until the block ends; the server is closed by whoever made it."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
