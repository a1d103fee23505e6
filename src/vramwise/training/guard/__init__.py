"""The memory guard: what it measures, judges and writes down."""
