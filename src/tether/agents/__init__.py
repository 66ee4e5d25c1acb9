"""Algorithms: plan, act, observe."""
