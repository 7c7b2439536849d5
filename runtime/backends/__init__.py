"""One file a backend: how to reach a device's memory, queues and compiler."""
