"""How work runs on devices: streams and events, the number of threads, deterministic algorithms."""
