"""Profiles of real runs: what ran on the GPU, kernel by kernel, from Nsight Systems or torch.profiler.

    kernels      what a profile holds: executions on GPUs, ranges, totals
    read         a file of any known format → `Trace`; nsys_export, nsys_sqlite, nsys_csv, torch_trace read one each
    windows      which executions count: capture ranges, chosen NVTX ranges
    buckets      kernel name → bucket, by the dated table `harness/data/kernel_buckets.yaml`
    timeline     exact sums: busy, gaps, overlap, communication that is hidden
    profile      a trace, bucketed: `Profile`
    against      a profile beside the composed price of an attempt

Times are whole nanoseconds until they are printed.
"""

from __future__ import annotations

from harness.profiles.against import Against, Comparison, compare, find_against
from harness.profiles.buckets import BucketTable, kernel_buckets
from harness.profiles.kernels import Kernel, Range, Total, Trace
from harness.profiles.profile import Profile, make_profile
from harness.profiles.read import read_trace
from harness.profiles.windows import Choice

__all__ = [
    "Against",
    "BucketTable",
    "Choice",
    "Comparison",
    "Kernel",
    "Profile",
    "Range",
    "Total",
    "Trace",
    "compare",
    "find_against",
    "kernel_buckets",
    "make_profile",
    "read_trace",
]
