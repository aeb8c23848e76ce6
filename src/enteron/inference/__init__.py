"""Inference: frames to embeddings, embeddings to probabilities. Each frame is encoded once."""

import os

# The wheels of onnxruntime report their use to Microsoft, and on import write an id of the machine
# into the home folder (seen with 1.31.1 on Linux). Its switch is read when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
