"""What the learner is told."""
