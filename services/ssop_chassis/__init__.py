"""What every service of the mesh shares: settings, logs, calls, serving, identity, health, errors, metrics.

Functions and frozen dataclasses. A service calls the chassis; the chassis calls back handlers, and nothing else.
"""

import os

# gRPC writes a line of its own to stderr for each handshake that fails, which anybody can bring about. It reads this
# variable when it is imported, so that nothing later could set it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
