"""Teaching: training composed, from a data root to a model folder that a person can look into."""
