"""Train GPT-2 large with the savings of one rung of the ladder of memory."""

import argparse

from models.gpt2 import LADDER
from models.gpt2 import LARGE
from models.gpt2 import Training


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rung", type=int, choices=range(len(LADDER)), default=0)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    step = Training(LARGE, "cuda", **LADDER[options.rung])
    for _ in range(options.steps):
        step()


if __name__ == "__main__":
    main()
