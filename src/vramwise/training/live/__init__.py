"""Reads the objects of a running program: a trainer before it trains, a model with its optimizer, a loop."""
