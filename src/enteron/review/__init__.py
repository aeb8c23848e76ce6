"""What people decide about a reading: the record, the state derived from it, scores, exchange."""
