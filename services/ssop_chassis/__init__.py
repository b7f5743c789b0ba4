"""What every service of the mesh shares: settings, logs, calls, serving, identity, health, errors, metrics.

Functions and frozen dataclasses. A service calls the chassis; the chassis calls back handlers, and nothing else.
"""
