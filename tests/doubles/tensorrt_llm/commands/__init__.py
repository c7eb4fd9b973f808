"""Command lines; `tests/doubles/bin` has them as executables."""
