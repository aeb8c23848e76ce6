"""enteron: an open reader for video capsule endoscopy."""

__version__ = "0.1.0"
