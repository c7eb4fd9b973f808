"""SQLite exports of Nsight Systems as tests make them; columns are those of its published schema."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

PROCESS = 4242 << 24
THREAD = PROCESS | 4242

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ENUM_NSYS_EVENT_TYPE (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_NSYS_EVENT_TYPE VALUES (59, 'NvtxPushPopRange', ''), (60, 'NvtxStartEndRange', ''),
  (75, 'NvtxDomainCreate', '');
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_NAME', 'NVIDIA Nsight Systems'),
  ('EXPORT_PRODUCT_VERSION', '2025.3.2');
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
  globalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, graphNodeId INTEGER);
CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, nameId INTEGER NOT NULL, graphNodeId INTEGER NOT NULL, originalGraphNodeId INTEGER);
"""
COPIES = """
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device');
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER);
"""


class Export:
    """An export being made; rows are as they run, names go to StringIds by themselves."""

    def __init__(self, path: Path, *, copies: bool = True) -> None:
        self.path = path
        self._texts: dict[str, int] = {}
        self.run(SCHEMA + (COPIES if copies else ""))

    def run(self, script: str) -> Export:
        with closing(sqlite3.connect(self.path)) as base, base:
            base.executescript(script)
        return self

    def add(self, table: str, rows: Iterable[Sequence[object]]) -> Export:
        with closing(sqlite3.connect(self.path)) as base, base:
            for row in rows:
                base.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        return self

    def text(self, value: str) -> int:
        if value not in self._texts:
            self._texts[value] = len(self._texts) + 1
            self.add("StringIds", [(self._texts[value], value)])
        return self._texts[value]

    def call(self, start: int, name: str, correlation: int, process: int = PROCESS) -> Export:
        row = (start, start + 5, 0, process | 4242, correlation, self.text(name), 0)
        return self.add("CUPTI_ACTIVITY_KIND_RUNTIME", [row])

    def kernel(
        self, start: int, end: int, name: str, stream: int, correlation: int | None = None, node: int | None = None,
        gpu: int = 0, process: int = PROCESS,
    ) -> Export:  # fmt: skip
        named = self.text(name)
        row = (start, end, gpu, 1, stream, correlation, process, named, named, node)
        return self.add("CUPTI_ACTIVITY_KIND_KERNEL", [row])

    def range(
        self, start: int, end: int | None, name: str, domain: int = 0, kind: int = 59, thread: int = THREAD
    ) -> Export:
        return self.add("NVTX_EVENTS", [(start, end, kind, None, thread, self.text(name), domain)])


FMHA = "fmhaSm100fKernel_QkvE4m3OBfloat16H128PagedKv"
GEMM = "nvjet_sm100_tst_128x64_64x8_2x1_v_bz_TNT"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
MYSTERY = "void acme::mysteryKernel<float, 4>(float*, int)"
STEP = "[Executor] _forward_step {}: 0 ctx reqs, 8 gen reqs"


def two_steps(path: Path) -> Path:
    """Two decode steps on two streams: CUDA graphs, communication beside compute, an unknown kernel.

    ns        1000    1350 1400 1500   1700      2050 2100 2200 2250 2400 ... 3000 3100 3150  3200 3600
    stream 7  attention---------|  GEMM-----------------|                      copy-|fill|     attention
                                                   unknown-----------|
    stream 20         all-reduce-------------|                 all-reduce--|
    """
    export = Export(path)
    # Captured at start-up: nodes 1 to 3; what is replayed is 101 and 102, clones, and 103, whose capture is not known.
    export.range(10, 20, "attn").range(20, 30, "mlp").range(5, 40, "capture")
    export.range(12, 14, "ncclAllReduce", domain=3).add("NVTX_EVENTS", [(1, None, 75, "NCCL", THREAD, None, 3)])
    export.range(800, 950, STEP.format(10)).range(2850, 3000, STEP.format(11))
    nodes = [(11, 12, 1, None), (21, 22, 2, None), (50, 51, 101, 1), (51, 52, 102, 2)]
    graph = export.text("Graph Node Creation")
    export.add("CUDA_GRAPH_NODE_EVENTS", [(a, b, 0, THREAD, graph, node, parent) for a, b, node, parent in nodes])
    export.call(900, "cudaGraphLaunch_v10000", 1).call(2950, "cudaGraphLaunch_v10000", 4)
    export.call(2900, "cudaMemcpyAsync_v3020", 2).call(2910, "cudaMemsetAsync_v3020", 3)
    export.kernel(1000, 1400, FMHA, 7, 1, 101).kernel(1500, 2100, GEMM, 7, 1, 102)
    export.kernel(2050, 2250, MYSTERY, 7, 1, 103)
    export.kernel(1350, 1700, ALL_REDUCE, 20, 1, 103).kernel(2200, 2400, ALL_REDUCE, 20, 1, 103)
    export.kernel(3200, 3600, FMHA, 7, 4, 101)
    export.add("CUPTI_ACTIVITY_KIND_MEMCPY", [(3000, 3100, 0, 1, 7, 2, PROCESS, 4096, 1, None)])
    export.add("CUPTI_ACTIVITY_KIND_MEMSET", [(3100, 3150, 0, 1, 7, 3, PROCESS, 0, 64, None)])
    return path
