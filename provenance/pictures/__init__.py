"""Tensors as pictures: cells joined, coloured and painted."""
