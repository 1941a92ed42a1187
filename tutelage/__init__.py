"""Tutelage: train a teacher model by how much its student gains."""

__version__ = "0.1.0"
