"""Other people's Gymnasium environments as problems that Tether can learn on."""
