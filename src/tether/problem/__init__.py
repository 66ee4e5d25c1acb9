"""What the learner knows."""
