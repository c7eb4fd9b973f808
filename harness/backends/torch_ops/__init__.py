"""Runs a case's own ops with PyTorch, at their real shapes and formats, on one GPU or on this processor."""
