"""The version, read by the build and by model files."""

__version__ = "0.1.0"
