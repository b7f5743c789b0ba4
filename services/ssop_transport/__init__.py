"""gRPC on libnghttp2: the same on the wire as the reference transport of the chassis, for a fraction of its cost."""
