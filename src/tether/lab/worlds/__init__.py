"""What the learner must find out."""
