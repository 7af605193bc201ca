"""What the results' storage and the ground truth need of SQL databases."""
