#!/usr/bin/env bash
# What only a GPU can answer, most valuable first, in as many minutes as there are:
#
#     bash benchmarks/gpu.sh [--minutes 9] [--part NAME]... [--out FOLDER] [--small] [--list]
#
# PYTHON names the interpreter with a CUDA build of torch (default: python3). The plugin is used
# from this checkout where it is not installed. Nothing of the GPU is set or reset.
# Exit status: 0 if every part passed, 1 if one failed or had no time, 4 without a GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${PYTHON:-python3}" benchmarks/gpu_run.py "$@"
