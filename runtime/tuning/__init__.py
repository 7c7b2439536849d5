"""Find faster schedules by measuring them.

measure   runs candidate plans of one call on test data: checks their results and times them
evidence  decides from interleaved samples whether a candidate is faster than the baseline
search    searches the schedule space of a call by successive halving
store     keeps the tuned schedules in a JSON file in the user's cache
record    counts and times the calls that a program makes
trial     compares shipped and tuned schedules inside the running program
program   runs a Python program under `record` or `trial`
autotune  tunes a call when it is first planned (`WEFTGRAD_TUNE=1`)
"""
