"""Inference: frames to embeddings, embeddings to probabilities, each frame encoded once."""
