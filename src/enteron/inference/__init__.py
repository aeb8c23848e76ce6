"""Inference: frames to embeddings, embeddings to probabilities. Each frame is encoded once."""
