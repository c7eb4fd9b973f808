"""Prices from NVIDIA's published measurements of TensorRT-LLM kernels (the `tables` extra)."""

from __future__ import annotations

from harness.pricing.tables.availability import tabled_systems, tables_available
from harness.pricing.tables.pricer import TablesPricer

__all__ = ["TablesPricer", "tabled_systems", "tables_available"]
