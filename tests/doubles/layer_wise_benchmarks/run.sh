#!/usr/bin/env bash
set -euo pipefail
exec "${TRTLLM_DOUBLE_PYTHON:-python3}" -u "$(dirname "${BASH_SOURCE[0]}")/run.py" "$@"
