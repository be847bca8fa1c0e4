"""Train an encoder with one of the layer norms, in mixed precision or in float32."""

import argparse

from models.encoder import InLowPrecision, SpelledOut, training
from torch import nn


NORMS = {norm.__name__: norm for norm in (SpelledOut, nn.LayerNorm, InLowPrecision)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("norm", choices=NORMS)
    parser.add_argument("--float32", action="store_true")
    options = parser.parse_args()
    step = training(NORMS[options.norm], "cuda", mixed=not options.float32)
    for _ in range(100):
        step()


if __name__ == "__main__":
    main()
