#!/usr/bin/env bash
# Everything that needs a real GPU, in one go, from anywhere:
#
#     bash benchmarks/gpu.sh
#
# PYTHON  the interpreter with a CUDA build of torch (default: python3); the plugin
#         is used from this checkout where it is not installed
# OUT     where the results go (default: docs/evidence/<hardware key>)
#
# PART_SECONDS  the time-out of each part (default: none)
# CLOCK  settings of the environment for pytest, such as those of the stub rig's virtual
#        clock (default: none)
# EXAMPLES  which of the examples are run (default: examples)
# NO_EXAMPLES  where it is set, the examples are left out
# OPINFO  where it is set, torch's own operations are compared as well: long
#
# Exit status: 0 if every part passed, 1 if one failed, 4 without a GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-python3}

if ! "$PYTHON" -c 'import importlib.metadata as m; m.version("pytest-gpuperf")' 2>/dev/null; then
    export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
    export PYTEST_PLUGINS=pytest_gpuperf.plugin
fi

key=$("$PYTHON" benchmarks/gpu_machine.py --key) || exit 4
OUT=${OUT:-docs/evidence/$key}
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
baselines=$OUT/baselines
status=0
: >"$OUT/status.txt"

# part NAME COMMAND...: run it, keep its output and its exit status
part() {
    local name=$1 rc
    shift
    echo "== $name: $*"
    timeout "${PART_SECONDS:-0}" "$@" 2>&1 | sed "s|$PWD/||g" | tee "$OUT/$name.txt" | tail -n 5
    rc=${PIPESTATUS[0]}
    echo "$name $rc" >>"$OUT/status.txt"
    [ "$rc" -eq 0 ] || status=1
}

"$PYTHON" benchmarks/gpu_machine.py >"$OUT/machine.json" || status=1

# Inside of the time-out, which must not follow another clock.
pytest=(env ${CLOCK:-} "$PYTHON" -m pytest -p no:cacheprovider -q -ra --color=no --durations=5)
examples=(env -u CI "${pytest[@]}" "${EXAMPLES:-examples}" --gpuperf --gpuperf-device=cuda "--override-ini=gpuperf_baselines=$baselines")

part tests-gpu "${pytest[@]}" tests/gpu -m gpu

# What the pretend GPU says of the same code, and what this one does.
part agreement-corpus "$PYTHON" benchmarks/agreement.py corpus --out "$OUT"
part agreement-bytes "$PYTHON" benchmarks/agreement_bytes.py --out "$OUT"
[ -z "${OPINFO:-}" ] || part agreement-operations "$PYTHON" benchmarks/agreement_operations.py --out "$OUT/agreement-operations.md"

# Budgets alone, then a recorded baseline, then the unchanged code against it.
if [ -z "${NO_EXAMPLES:-}" ]; then
    part examples-budgets "${examples[@]}" --gpuperf-claims
    part examples-refresh "${examples[@]}" --gpuperf-update=all
    part examples-unchanged "${examples[@]}"
fi

cat "$OUT/status.txt"
exit "$status"
