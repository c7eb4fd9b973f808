"""LLM-API settings as files: one folder per group of workloads, parallelism and TensorRT-LLM version.

llm_args.yaml            `--extra_llm_api_options` of trtllm-bench; paths in it are relative to the folder
moe_load_balancer.yaml   named in it, where experts have slots
environment.json         variables that the process needs, where there are any
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.engines.groups import WorkloadGroup
from harness.engines.llm_args import LlmArgs
from harness.errors import HarnessError, UnreadableInput
from harness.files import read_json, read_yaml
from harness.spec.parallelism import Parallelism

ARGS_FILE = "llm_args.yaml"
ENVIRONMENT_FILE = "environment.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """What one LLM instance is started with, and what it serves."""

    group: WorkloadGroup
    args: LlmArgs

    @property
    def name(self) -> str:
        """Readable; the store adds a hash of the content: `1.3.0rc20-tp4-ep4-decode`."""
        return "-".join((self.args.version, parallelism_slug(self.group.parallelism), self.group.workloads[0].phase))

    def texts(self) -> dict[str, str]:
        """File → text. Nothing in it depends on which workloads there are, but for the sizes."""
        lines = [f"TensorRT-LLM {self.args.version}, {self.group.parallelism.label}", *self.args.notes]
        header = "".join(f"# {line}\n" for line in lines)
        texts = {ARGS_FILE: header + self.args.to_yaml(), **self.args.files}
        if self.args.environment:
            texts[ENVIRONMENT_FILE] = json.dumps(self.args.environment, indent=2, sort_keys=True) + "\n"
        return texts


def parallelism_slug(split: Parallelism) -> str:
    """A parallelism as part of a file name: `tp4-ep4-adp`."""
    return "-".join(part.replace(" ", "").replace("+", "_") for part in split.label.lower().split(" · "))


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings of a folder back, with `environment` beside the fields.

    Raises UnreadableInput where they cannot be read.
    """
    try:
        fields = read_yaml(folder / ARGS_FILE)
        path = folder / ENVIRONMENT_FILE
        environment = read_json(path) if path.exists() else {}
    except HarnessError as error:
        raise UnreadableInput(str(error)) from error
    if not isinstance(fields, dict):
        raise UnreadableInput(f"{folder / ARGS_FILE}: not a mapping")
    return {"fields": fields, "environment": environment}
