"""Finding better schedules by measurement.

    measure   one call with data of its own, run by candidate plans: right or not, and how long
    evidence  whether one of two ways is faster, by samples taken in turns
    search    the candidates of a space, by successive halving
    store     what was found, in the user's cache
    record    which calls a program makes, how often, and what they take
    missed    calls tuned when they are first planned (`WEFTGRAD_TUNE=1`)
"""
