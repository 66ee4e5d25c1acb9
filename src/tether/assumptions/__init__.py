"""What the paper assumes of a cost, and one file for each assumption that a constraint may relax.

A constraint without relaxations is the paper's: its expected cost is exactly linear in the features (Assumption 1), the
cost of the safe action is known exactly (Assumption 2), noise is σ-sub-Gaussian (Assumption 3), γ* stands still, every
cost is measured, and τ limits the expected cost. Each file here replaces one of these sentences. It holds what you
declare, what that does to the confidence set, what a certificate says of it, and how others verify and test it.
"""
