"""Measure ops, models and devices, compare them with other libraries, and write reports: `weftgrad bench`.

`command` has the options, `core`, `library`, `train` and `models.suite` the suites, `running` and `measure` take the
samples, `limits` measures what a device can reach, and `report` prints the results. ARCHITECTURE.md lists all modules.
"""
