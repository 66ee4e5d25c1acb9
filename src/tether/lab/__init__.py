"""Studies: the only layer that sees both the learner and the world."""
