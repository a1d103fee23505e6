"""Rules: allocator."""
