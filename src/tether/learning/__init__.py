"""Numerics: arrays in, arrays out."""
