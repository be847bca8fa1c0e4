#!/bin/sh
# A test on two ranks, each on a machine of its own: two network namespaces of this one,
# with a cable between them. As root, with iproute2 (apt-get install iproute2):
#
#     sh examples/two_machines.sh examples/distributed/test_two_ranks.py
#
# What follows the name of the script goes to pytest.
set -eu

name=gpuperf-$$
first=10.201.0.1
second=10.201.0.2

cleanup() {
    ip netns delete "$name-0" 2>/dev/null || true
    ip netns delete "$name-1" 2>/dev/null || true
}
trap cleanup EXIT
trap 'exit 1' INT TERM

ip netns add "$name-0"
ip netns add "$name-1"
ip link add eth0 netns "$name-0" type veth peer name eth0 netns "$name-1"
ip -n "$name-0" address add "$first/24" dev eth0
ip -n "$name-1" address add "$second/24" dev eth0
for machine in 0 1; do
    ip -n "$name-$machine" link set lo up
    ip -n "$name-$machine" link set eth0 up
done

# What to run on machine $1 of two: the same command, but for the number of the machine.
rank_of() {
    machine=$1
    shift
    ip netns exec "$name-$machine" env GLOO_SOCKET_IFNAME=eth0 \
        "${PYTHON:-python3}" -m torch.distributed.run \
        --nnodes 2 --node-rank "$machine" --nproc-per-node 1 \
        --rdzv-endpoint "$first:29500" \
        -m pytest --gpuperf --gpuperf-device=cpu "$@"
}

rank_of 1 "$@" &
other=$!
status=0
rank_of 0 "$@" || status=$?
wait "$other" || test "$status" -ne 0 || status=1
exit "$status"
