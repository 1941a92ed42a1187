"""As in RL2F's replication; see tutelage/replication.py."""

import sys

from tutelage.replication import main

if __name__ == "__main__":
    sys.exit(main("generate_dialogues"))
