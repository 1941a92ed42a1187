"""python train.py key=value …: the same as tutelage train."""

import sys

from tutelage.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
