"""Nothing here may reach the network; set before the first import of datasets, which reads these once."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
