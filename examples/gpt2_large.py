"""Train GPT-2 large with the savings of one rung of the ladder of memory."""

import argparse
from dataclasses import replace

from models.gpt2 import LADDER, LARGE, WIDE, Training
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore


def first_of_two():
    """Return a mesh of two ranks, of which this is the first: nothing is sent."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    return init_device_mesh("cuda", (2,))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rung", type=int, choices=range(len(LADDER) + 1), default=0)
    parser.add_argument("--wide-layers", type=int, help="train so many of width 1600")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    shape = LARGE
    if options.wide_layers:
        shape = replace(WIDE, layers=options.wide_layers)
    savings = (*LADDER, LADDER[-1])[options.rung]
    mesh = first_of_two() if options.rung == len(LADDER) else None
    step = Training(shape, "cuda", mesh=mesh, **savings)
    for _ in range(options.steps):
        step()


if __name__ == "__main__":
    main()
