"""The six programs that the paper starts from, and the fastest programs that we know for the data it trains on.

The generic programs are right on all inputs of a task. The ideal ones use what all samples of the biased data share.
Addition and sort are compiled from source; the others are listings with flat entries, which the language cannot say.
"""

from .language import compile_source
from .program import from_listing

ADDITION = """
var first = 0;   # addresses of the summands, then the summands
var second = 1;
var zero = 0;    # JEZ(zero, label) always jumps
first = READ(first);
second = READ(second);
loop: JEZ(second, end);
second = DEC(second);
first = INC(first);
JEZ(zero, loop);
end: WRITE(zero, first);
STOP();
"""

BUBBLE_SORT = """
var address = 0;
var unchanged = 1;  # no pair was swapped since the start of the list
var zero = 0;       # also the number of the first line: JEZ(zero, zero) starts again there
var first = READ(address);
address = INC(address);
var second = READ(address);
JEZ(second, terminate);
var difference = MIN(first, second);
difference = SUB(second, difference);
JEZ(difference, swap);
JEZ(zero, zero);
swap: difference = SUB(first, second);
JEZ(difference, zero);
WRITE(address, first);
address = DEC(address);
WRITE(address, second);
address = INC(address);
unchanged = ZERO();
JEZ(zero, zero);
terminate: JEZ(unchanged, reinit);
STOP();
reinit: address = ZERO();
unchanged = INC(unchanged);
JEZ(zero, zero);
"""

GENERIC = {
    "access": from_listing(10, "0 0 _", "r1 = READ r0; r1 = INC r1; r1 = READ r1; r2 = WRITE r0 r1; r2 = STOP"),
    "increment": from_listing(
        7,
        "0 _ 6 0 0 _",
        "r1 = READ r0; r5 = JEZ r1 r2; r1 = INC r1; r5 = WRITE r0 r1; r0 = INC r0; r5 = JEZ r4 r3; r5 = STOP",
    ),
    "swap": from_listing(
        10,
        "0 1 _ _ 2",
        "r0 = READ r0; r0 = ADD r0 r4; r1 = READ r1; r1 = ADD r1 r4; r2 = READ r0; r3 = READ r1;"
        "r4 = WRITE r0 r3; r4 = WRITE r1 r2; r4 = STOP",
    ),
    "listk": from_listing(
        20,
        "0 1 2 6 0 2 _",
        "r1 = READ r1; r2 = READ r2; r0 = READ r0; r1 = DEC r1; r6 = JEZ r1 r3; r6 = JEZ r4 r5;"
        "r0 = INC r0; r0 = READ r0; r6 = WRITE r2 r0; r6 = STOP",
    ),
    "addition": compile_source(15, ADDITION),
    "sort": compile_source(21, BUBBLE_SORT),
}

IDEAL = {
    # The index is always 3, so the answer is in cell 4.
    "access": from_listing(10, "4 _ 0", "r1 = READ r0; r2 = WRITE r2 r1; r2 = STOP"),
    # All six values are equal: read and increment once, then write from the last cell down to cell 0.
    "increment": from_listing(
        7,
        "5 _ 6 2 0 _",
        "r1 = READ r0; r1 = INC r1; r5 = WRITE r0 r1; r5 = JEZ r0 r2; r0 = DEC r0; r5 = JEZ r4 r3; r5 = STOP",
    ),
    # Always cells 2 and 4.
    "swap": from_listing(10, "2 4 _ _ 0", "r2 = READ r0; r3 = READ r1; r4 = WRITE r0 r3; r4 = WRITE r1 r2; r4 = STOP"),
    # Nodes lie in order, so the value of node k is in cell head + 2 k - 1.
    "listk": from_listing(
        20,
        "0 1 2 _ _ _ _",
        "r0 = READ r0; r1 = READ r1; r2 = READ r2; r1 = ADD r1 r1; r0 = ADD r0 r1; r0 = DEC r0;"
        "r0 = READ r0; r6 = WRITE r2 r0; r6 = STOP",
    ),
    "addition": from_listing(
        15, "_ _ 0 1 0 _", "r4 = READ r4; r3 = READ r3; r4 = ADD r4 r3; r5 = WRITE r2 r4; r5 = STOP"
    ),
    # Three values of which the last is the largest: order the first two.
    "sort": from_listing(
        21,
        "_ _ _ _ _ _ _ 1 0 _",
        "r5 = READ r8; r4 = READ r7; r3 = MIN r5 r4; r4 = MAX r5 r4; r9 = WRITE r8 r3; r9 = WRITE r7 r4; r9 = STOP",
    ),
}
