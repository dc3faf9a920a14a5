"""The papers' figures and the peers, as ratios within one run."""
