// The register machine of Adaptive Neural Compilation (Bunel et al. 2016), all steps of a run in one kernel: one
// work-group for each run (a seed and a sample), whose state stays in local memory. On a CPU a group is one work-item,
// which computes rows with vectors of LANES elements.
//
// CELLS: number of memory cells, of values and of program lines. REGS: number of registers. WIDTH: elements of a padded
// row, a multiple of LANES; padded elements of distributions are 0. All of them are constants.
// Rows of `logits`, CELLS columns each: instruction register, REGS registers (their start), then the program's columns:
// REGS rows each for the first argument, the second argument and the output register, and 11 rows for the opcode.
#define GATES (3 * REGS + 11)
#define GATES_WIDTH ((GATES + LANES - 1) / LANES * LANES)
#define ROWS (REGS + 1 + GATES)
#define STATE ((CELLS + REGS + 1) * WIDTH) // memory, registers, instruction register
#define HALTED ((C)0.9)                    // a run ends when its stop probability is above this
#define OPCODES enum { STOP, ZERO, INC, ADD, SUB, DEC, MIN, MAX, READ, WRITE, JEZ }
#ifdef SCHEDULE_RUN // the operand `logits`
#define S_LOGITS S0
#define LOAD_LOGITS LOAD0
#else
#define S_LOGITS S2
#define LOAD_LOGITS LOAD2
#endif

typedef struct { long offset[BUFFERS]; } NAME(Dynamic);
// Strides of the incoming gradients along seeds, samples and steps.
typedef struct { long seeds, samples, steps, exact_stop, by_error[3], by_halting[3]; } NAME(Geometry);
typedef V __attribute__((aligned(sizeof(C)))) NAME(Lanes);

// Vectors of the elements 0 to n - 1, and single elements, divided among the work-items of a group.
#define VECTORS(v, n) for (int v = LANES * first; v < (n); v += LANES * stride)
#define ELEMENTS(v, n) for (int v = first; v < (n); v += stride)
// All rows. Without the pragma clang unrolls them, which takes seconds to compile.
#define OVER(u, n) _Pragma("nounroll") for (int u = 0; u < (n); u++)
#define AT(p) (*(local NAME(Lanes) *)(p)) // the vector at an element
#define STATE_AT(p) (*(global NAME(Lanes) *)(p))
#define SYNC barrier(CLK_LOCAL_MEM_FENCE)
#define NEXT(v) ((v) + 1 < CELLS ? (v) + 1 : 0)
#define BEFORE(v) ((v) > 0 ? (v) - 1 : CELLS - 1)

// What the steps of a run share.
typedef struct {
    C memory[CELLS * WIDTH], registers[REGS * WIDTH], line[WIDTH], onehot[CELLS * WIDTH]; // onehot: the target
    C program[CELLS * GATES_WIDTH]; // the program's logits, the gates of a line side by side
    C gates[GATES_WIDTH];           // softmax of the mixed lines: arguments a and b, output register o, opcode
    C x[WIDTH], y[WIDTH];           // arguments
    // Cyclic: element v is element v + CELLS.
    C x_twice[2 * WIDTH], y_twice[2 * WIDTH], x_reversed[2 * WIDTH], y_reversed[2 * WIDTH], mixed[2 * WIDTH];
    C x_upto[WIDTH], y_upto[WIDTH], x_from[WIDTH], y_from[WIDTH]; // sums over 0..v, and over v..CELLS - 1
    C value[WIDTH], next[WIDTH]; // what goes to the output register, and to the instruction register
} NAME(Machine);

static WG_INLINE C NAME(machine_total)(V x) {
#if LANES == 1
    return x;
#else
    C total = 0;
    WG_UNROLL for (int i = 0; i < LANES; i++) total += x[i];
    return total;
#endif
}

// Load program and target, and compute the registers of the start.
static WG_INLINE void NAME(machine_start)(
    local NAME(Machine) *m, global const S_LOGITS *logits, global const long *target, const int first, const int stride) {
    local C *all = (local C *)m;
    ELEMENTS(i, (int)(sizeof(NAME(Machine)) / sizeof(C))) all[i] = 0;
    SYNC;
    OVER(j, CELLS) ELEMENTS(k, GATES)
        m->program[j * GATES_WIDTH + k] = LOAD_LOGITS(logits + (REGS + 1 + k) * CELLS + j);
    ELEMENTS(u, CELLS) if (target[u] >= 0 && target[u] < CELLS) m->onehot[u * WIDTH + target[u]] = 1;
    ELEMENTS(r, REGS + 1) {
        local C *row = r ? m->registers + (r - 1) * WIDTH : m->line;
        C top = -(C)INFINITY, total = 0;
        OVER(v, CELLS) row[v] = LOAD_LOGITS(logits + r * CELLS + v);
        OVER(v, CELLS) top = row[v] > top ? row[v] : top;
        OVER(v, CELLS) total += row[v] = wg_exp(row[v] - top);
        OVER(v, CELLS) row[v] /= total;
    }
    SYNC;
}

// Compute gates, arguments and the output value from memory, registers and line.
static WG_INLINE void NAME(machine_evaluate)(local NAME(Machine) *m, const int first, const int stride) {
    OPCODES;
    local C *gates = m->gates, *x = m->x, *y = m->y, *opcode = gates + 3 * REGS;
    VECTORS(k, GATES_WIDTH) {
        V logits = 0;
        OVER(j, CELLS) logits += AT(m->program + j * GATES_WIDTH + k) * m->line[j];
        AT(gates + k) = logits;
    }
    SYNC;
    ELEMENTS(g, 4) {
        const int begin = g * REGS, end = g < 3 ? begin + REGS : GATES;
        C top = -(C)INFINITY;
        for (int k = begin; k < end; k++) top = gates[k] > top ? gates[k] : top;
        for (int k = begin; k < end; k++) gates[k] -= top;
    }
    SYNC;
    VECTORS(k, GATES_WIDTH) AT(gates + k) = wg_exp(AT(gates + k));
    SYNC;
    ELEMENTS(g, 4) {
        const int begin = g * REGS, end = g < 3 ? begin + REGS : GATES;
        C total = 0;
        for (int k = begin; k < end; k++) total += gates[k];
        total = 1 / total;
        for (int k = begin; k < end; k++) gates[k] *= total;
    }
    SYNC;
    VECTORS(v, WIDTH) {
        V x_v = 0, y_v = 0;
        OVER(r, REGS) {
            x_v += gates[r] * AT(m->registers + r * WIDTH + v);
            y_v += gates[REGS + r] * AT(m->registers + r * WIDTH + v);
        }
        AT(x + v) = x_v;
        AT(y + v) = y_v;
    }
    SYNC;
    if (first == 0) {
        C x_upto = 0, y_upto = 0, x_from = 0, y_from = 0;
        OVER(v, CELLS) {
            const int w = CELLS - 1 - v;
            m->x_upto[v] = x_upto += x[v];
            m->y_upto[v] = y_upto += y[v];
            m->x_from[w] = x_from += x[w];
            m->y_from[w] = y_from += y[w];
        }
    }
    ELEMENTS(v, CELLS) {
        const int mirror = v ? CELLS - v : 0;
        m->x_twice[v] = m->x_twice[v + CELLS] = x[v];
        m->y_twice[v] = m->y_twice[v + CELLS] = y[v];
        m->x_reversed[v] = m->x_reversed[v + CELLS] = x[mirror];
        m->y_reversed[v] = m->y_reversed[v + CELLS] = y[mirror];
        m->mixed[v] = m->mixed[v + CELLS] = opcode[ADD] * y[v] + opcode[SUB] * y[mirror];
    }
    SYNC;
    VECTORS(v, WIDTH) {
        const V x_v = AT(x + v), y_v = AT(y + v), product = x_v * y_v;
        V value = opcode[INC] * AT(m->x_twice + v + CELLS - 1) + opcode[DEC] * AT(m->x_twice + v + 1) +
                  opcode[MAX] * (x_v * AT(m->y_upto + v) + y_v * AT(m->x_upto + v) - product) +
                  opcode[MIN] * (x_v * AT(m->y_from + v) + y_v * AT(m->x_from + v) - product);
        OVER(u, CELLS) value += x[u] * (AT(m->mixed + v - u + CELLS) + opcode[READ] * AT(m->memory + u * WIDTH + v));
        AT(m->value + v) = value;
    }
    SYNC;
    if (first == 0) m->value[0] += opcode[STOP] + opcode[ZERO] + opcode[WRITE] + opcode[JEZ];
    ELEMENTS(v, WIDTH - CELLS) m->value[CELLS + v] = 0;
    const C jump = opcode[JEZ] * x[0];
    ELEMENTS(v, CELLS) m->next[v] = jump * y[v] + (1 - jump) * m->line[BEFORE(v)];
    SYNC;
}

#ifdef SCHEDULE_RUN
// Sum of squared differences of memory and target over the weighted cells. Every work-item returns it.
static WG_INLINE C NAME(machine_error)(
    local NAME(Machine) *m, global const S3 *weight, const int first, const int stride) {
    SYNC; // the last total has been read, and memory is written
    VECTORS(v, WIDTH) {
        V total = 0;
        OVER(u, CELLS) {
            const V difference = AT(m->memory + u * WIDTH + v) - AT(m->onehot + u * WIDTH + v);
            total += LOAD3(weight + u) * difference * difference;
        }
        AT(m->value + v) = total;
    }
    SYNC;
    V total = 0;
    for (int v = 0; v < WIDTH; v += LANES) total += AT(m->value + v);
    return NAME(machine_total)(total);
}

// p0: logits, p1: cells, p2: targets, p3: weights, p4: errors, p5: stop probabilities, p6: final memory, p7: states.
kernel void NAME(machine_run)(
    global const S0 *p0, global const long *p1, global const long *p2, global const S3 *p3, global S4 *p4,
    global S5 *p5, global S6 *p6,
#ifdef KEEPS_STATES
    global S7 *p7,
#endif
    const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    OPCODES;
    const long run = get_group_id(0);
    const int first = get_local_id(0), stride = get_local_size(0);
    local NAME(Machine) machine;
    local NAME(Machine) *m = &machine;
    local C *opcode = m->gates + 3 * REGS;
    global const long *cells = WG_AT(const long, p1, dyn.offset[1]) + run * CELLS;
    global const long *target = WG_AT(const long, p2, dyn.offset[2]) + run * CELLS;
    global const S3 *weight = WG_AT(const S3, p3, dyn.offset[3]) + run * CELLS;
    global S4 *errors = WG_AT(S4, p4, dyn.offset[4]) + run * (geo.steps + 1);
    global S5 *halting = WG_AT(S5, p5, dyn.offset[5]) + run * (geo.steps + 1);
    global const S0 *logits = WG_AT(const S0, p0, dyn.offset[0]) + run / geo.samples * (ROWS * CELLS);
    NAME(machine_start)(m, logits, target, first, stride);
    ELEMENTS(u, CELLS) if (cells[u] >= 0 && cells[u] < CELLS) m->memory[u * WIDTH + cells[u]] = 1;
    C stopped = 0, running = 1, error = NAME(machine_error)(m, weight, first, stride);
    if (first == 0) {
        STORE4(errors, error);
        STORE5(halting, stopped);
    }
    long t = 1;
    for (; t <= geo.steps && stopped <= HALTED; t++) {
#ifdef KEEPS_STATES
        global S7 *state = WG_AT(S7, p7, dyn.offset[7]) + (run * geo.steps + t - 1) * STATE;
        OVER(u, CELLS) VECTORS(v, WIDTH) STATE_AT(state + u * WIDTH + v) = AT(m->memory + u * WIDTH + v);
        OVER(r, REGS) VECTORS(v, WIDTH) STATE_AT(state + (CELLS + r) * WIDTH + v) = AT(m->registers + r * WIDTH + v);
        VECTORS(v, WIDTH) STATE_AT(state + (CELLS + REGS) * WIDTH + v) = AT(m->line + v);
#endif
        SYNC; // the last error has been read
        NAME(machine_evaluate)(m, first, stride);
        OVER(u, CELLS) {
            const C share = opcode[WRITE] * m->x[u];
            VECTORS(v, WIDTH) AT(m->memory + u * WIDTH + v) += share * (AT(m->y + v) - AT(m->memory + u * WIDTH + v));
        }
        OVER(r, REGS) {
            const C share = m->gates[2 * REGS + r];
            VECTORS(v, WIDTH)
                AT(m->registers + r * WIDTH + v) += share * (AT(m->value + v) - AT(m->registers + r * WIDTH + v));
        }
        VECTORS(v, WIDTH) AT(m->line + v) = AT(m->next + v);
        stopped += opcode[STOP] * running;
        running *= 1 - opcode[STOP];
        error = NAME(machine_error)(m, weight, first, stride);
        if (first == 0) {
            STORE4(errors + t, error);
            STORE5(halting + t, stopped);
        }
    }
    for (t += first; t <= geo.steps; t += stride) {
        STORE4(errors + t, error);
        STORE5(halting + t, stopped);
    }
    global S6 *memory = WG_AT(S6, p6, dyn.offset[6]) + run * (CELLS * CELLS);
    OVER(u, CELLS) ELEMENTS(v, CELLS) STORE6(memory + u * CELLS + v, m->memory[u * WIDTH + v]);
}
#endif

#ifdef SCHEDULE_GRADIENT
// Walk the steps backward. p0: gradient of the errors, p1: of the stop probabilities, p2: logits, p3: targets,
// p4: weights, p5: stop probabilities, p6: final memory, p7: states, p8: gradient of the logits, (samples, seeds, ROWS,
// CELLS). Names that begin with d_ hold the derivative of the loss by the value that follows.
kernel void NAME(machine_gradient)(
    global const S0 *p0, global const S1 *p1, global const S2 *p2, global const long *p3, global const S4 *p4,
    global const S5 *p5, global const S6 *p6, global S7 *p7, global S8 *p8, const NAME(Geometry) geo,
    const NAME(Dynamic) dyn) {
    OPCODES;
    const long run = get_group_id(0), seed = run / geo.samples, sample = run % geo.samples;
    const int first = get_local_id(0), stride = get_local_size(0);
    local NAME(Machine) machine;
    local NAME(Machine) *m = &machine;
    local C *gates = m->gates, *opcode = gates + 3 * REGS, *x = m->x, *y = m->y;
    local C d_memory[CELLS * WIDTH], d_registers[REGS * WIDTH], d_line[WIDTH], d_program[CELLS * GATES_WIDTH];
    local C d_gates[GATES_WIDTH], d_x[WIDTH], d_y[WIDTH], d_value[WIDTH], add[WIDTH], subtract[WIDTH], read[WIDTH];
    local C write[WIDTH], d_x_before[WIDTH], d_x_after[WIDTH], d_y_before[WIDTH], d_y_after[WIDTH];
    global const S0 *d_errors = WG_AT(const S0, p0, dyn.offset[0]) + seed * geo.by_error[0] + sample * geo.by_error[1];
    global const S1 *d_halting =
        WG_AT(const S1, p1, dyn.offset[1]) + seed * geo.by_halting[0] + sample * geo.by_halting[1];
    global const long *target = WG_AT(const long, p3, dyn.offset[3]) + run * CELLS;
    global const S4 *weight = WG_AT(const S4, p4, dyn.offset[4]) + run * CELLS;
    global const S5 *halting = WG_AT(const S5, p5, dyn.offset[5]) + run * (geo.steps + 1);
    global const S6 *memory = WG_AT(const S6, p6, dyn.offset[6]) + run * (CELLS * CELLS);
    global S7 *states = WG_AT(S7, p7, dyn.offset[7]) + run * geo.steps * STATE;
    global S8 *gradient = WG_AT(S8, p8, dyn.offset[8]) + (sample * geo.seeds + seed) * (ROWS * CELLS);
    NAME(machine_start)(m, WG_AT(const S2, p2, dyn.offset[2]) + seed * (ROWS * CELLS), target, first, stride);
    OVER(u, CELLS) {
        ELEMENTS(v, CELLS) m->memory[u * WIDTH + v] = LOAD6(memory + u * CELLS + v);
        VECTORS(v, WIDTH) AT(d_memory + u * WIDTH + v) = 0;
    }
    OVER(r, REGS) VECTORS(v, WIDTH) AT(d_registers + r * WIDTH + v) = 0;
    VECTORS(v, WIDTH) {
        AT(d_line + v) = AT(read + v) = AT(write + v) = 0;
        AT(d_x_before + v) = AT(d_x_after + v) = AT(d_y_before + v) = AT(d_y_after + v) = 0;
    }
    OVER(j, CELLS) VECTORS(k, GATES_WIDTH) AT(d_program + j * GATES_WIDTH + k) = 0;
    VECTORS(k, GATES_WIDTH) AT(d_gates + k) = 0;
    SYNC;
    long last = 0; // number of executed steps
    while (last < geo.steps && LOAD5(halting + last) <= HALTED) last++;
    C d_stopped = 0, d_error = 0;
    for (long t = geo.steps; t > last; t--) { // values after the end repeat those of the end
        d_error += LOAD0(d_errors + t * geo.by_error[2]);
        d_stopped += LOAD1(d_halting + t * geo.by_halting[2]);
    }
    for (long t = last; t > 0; t--) {
        d_error += LOAD0(d_errors + t * geo.by_error[2]);
        d_stopped += LOAD1(d_halting + t * geo.by_halting[2]);
        global S7 *state = states + (t - 1) * STATE;
        OVER(u, CELLS) {
            const C scale = 2 * d_error * LOAD4(weight + u);
            VECTORS(v, WIDTH) {
                AT(d_memory + u * WIDTH + v) += scale * (AT(m->memory + u * WIDTH + v) - AT(m->onehot + u * WIDTH + v));
                AT(m->memory + u * WIDTH + v) = STATE_AT(state + u * WIDTH + v);
            }
        }
        d_error = 0;
        OVER(r, REGS) VECTORS(v, WIDTH) AT(m->registers + r * WIDTH + v) = STATE_AT(state + (CELLS + r) * WIDTH + v);
        VECTORS(v, WIDTH) AT(m->line + v) = STATE_AT(state + (CELLS + REGS) * WIDTH + v);
        SYNC;
        NAME(machine_evaluate)(m, first, stride);
        const C jump = opcode[JEZ] * x[0], d_stop = d_stopped * (1 - LOAD5(halting + t - 1));
        if (geo.exact_stop) d_stopped *= 1 - opcode[STOP];

        // Output register and value.
        VECTORS(v, WIDTH) {
            V total = 0;
            OVER(r, REGS) total += gates[2 * REGS + r] * AT(d_registers + r * WIDTH + v);
            AT(d_value + v) = total;
        }
        ELEMENTS(r, REGS) {
            V total = 0;
            for (int v = 0; v < WIDTH; v += LANES)
                total += AT(d_registers + r * WIDTH + v) * (AT(m->value + v) - AT(m->registers + r * WIDTH + v));
            d_gates[2 * REGS + r] = NAME(machine_total)(total);
        }
        SYNC;

        // READ, WRITE, and the parts of ADD, SUB, MIN and MAX.
        ELEMENTS(u, CELLS) {
            V read_u = 0, write_u = 0;
            for (int v = 0; v < WIDTH; v += LANES) {
                read_u += AT(m->memory + u * WIDTH + v) * AT(d_value + v);
                write_u += AT(d_memory + u * WIDTH + v) * (AT(y + v) - AT(m->memory + u * WIDTH + v));
            }
            read[u] = NAME(machine_total)(read_u);
            write[u] = NAME(machine_total)(write_u);
        }
        VECTORS(v, WIDTH) {
            V add_v = 0, subtract_v = 0, d_y_v = 0;
            OVER(u, CELLS) {
                const C d = d_value[u];
                add_v += d * AT(m->y_reversed + v - u + CELLS);
                subtract_v += d * AT(m->y_twice + v - u + CELLS);
                d_y_v += d * (opcode[ADD] * AT(m->x_reversed + v - u + CELLS) + opcode[SUB] * AT(m->x_twice + v + u)) +
                         opcode[WRITE] * x[u] * AT(d_memory + u * WIDTH + v);
            }
            AT(add + v) = add_v;
            AT(subtract + v) = subtract_v;
            AT(d_y + v) = d_y_v;
        }
        if (first == 0) {
            C x_before = 0, y_before = 0, x_after = 0, y_after = 0;
            OVER(v, CELLS) {
                const int w = CELLS - 1 - v;
                d_x_before[v] = y_before;
                d_y_before[v] = x_before;
                d_x_after[w] = y_after;
                d_y_after[w] = x_after;
                x_before += d_value[v] * x[v];
                y_before += d_value[v] * y[v];
                x_after += d_value[w] * x[w];
                y_after += d_value[w] * y[w];
            }
        }
        SYNC;

        // Opcodes. Every work-item computes these sums.
        V d_inc = 0, d_dec = 0, d_add = 0, d_sub = 0, d_min = 0, d_max = 0, d_read = 0, d_write = 0;
        C d_jump = 0;
        OVER(i, WIDTH / LANES) {
            const int v = i * LANES;
            const V x_v = AT(x + v), y_v = AT(y + v), d = AT(d_value + v), product = x_v * y_v;
            d_inc += d * AT(m->x_twice + v + CELLS - 1);
            d_dec += d * AT(m->x_twice + v + 1);
            d_add += x_v * AT(add + v);
            d_sub += x_v * AT(subtract + v);
            d_min += d * (x_v * AT(m->y_from + v) + y_v * AT(m->x_from + v) - product);
            d_max += d * (x_v * AT(m->y_upto + v) + y_v * AT(m->x_upto + v) - product);
            d_read += x_v * AT(read + v);
            d_write += x_v * AT(write + v);
        }
        OVER(v, CELLS) d_jump += d_line[v] * (y[v] - m->line[BEFORE(v)]);

        // Arguments.
        VECTORS(v, WIDTH) {
            const V d = AT(d_value + v);
            AT(d_x + v) = opcode[WRITE] * AT(write + v) + opcode[READ] * AT(read + v) + opcode[ADD] * AT(add + v) +
                          opcode[SUB] * AT(subtract + v) + opcode[MAX] * (d * AT(m->y_upto + v) + AT(d_x_after + v)) +
                          opcode[MIN] * (d * AT(m->y_from + v) + AT(d_x_before + v));
            AT(d_y + v) += opcode[MAX] * (d * AT(m->x_upto + v) + AT(d_y_after + v)) +
                           opcode[MIN] * (d * AT(m->x_from + v) + AT(d_y_before + v)) + jump * AT(d_line + v);
        }
        SYNC;
        ELEMENTS(v, CELLS) {
            d_x[v] += opcode[INC] * d_value[NEXT(v)] + opcode[DEC] * d_value[BEFORE(v)];
            if (v == 0) d_x[0] += d_jump * opcode[JEZ];
            m->next[v] = (1 - jump) * d_line[NEXT(v)];
        }
        ELEMENTS(v, WIDTH - CELLS) d_x[CELLS + v] = d_y[CELLS + v] = 0;
        if (first == 0) {
            local C *d_opcode = d_gates + 3 * REGS;
            d_opcode[STOP] = d_value[0] + d_stop;
            d_opcode[ZERO] = d_value[0];
            d_opcode[INC] = NAME(machine_total)(d_inc);
            d_opcode[ADD] = NAME(machine_total)(d_add);
            d_opcode[SUB] = NAME(machine_total)(d_sub);
            d_opcode[DEC] = NAME(machine_total)(d_dec);
            d_opcode[MIN] = NAME(machine_total)(d_min);
            d_opcode[MAX] = NAME(machine_total)(d_max);
            d_opcode[READ] = NAME(machine_total)(d_read);
            d_opcode[WRITE] = d_value[0] + NAME(machine_total)(d_write);
            d_opcode[JEZ] = d_value[0] + d_jump * x[0];
        }
        SYNC;
        ELEMENTS(r, REGS) {
            V d_a = 0, d_b = 0;
            for (int v = 0; v < WIDTH; v += LANES) {
                d_a += AT(d_x + v) * AT(m->registers + r * WIDTH + v);
                d_b += AT(d_y + v) * AT(m->registers + r * WIDTH + v);
            }
            d_gates[r] = NAME(machine_total)(d_a);
            d_gates[REGS + r] = NAME(machine_total)(d_b);
        }
        SYNC;
        ELEMENTS(g, 4) { // softmax
            const int begin = g * REGS, end = g < 3 ? begin + REGS : GATES;
            C mean = 0;
            for (int k = begin; k < end; k++) mean += gates[k] * d_gates[k];
            for (int k = begin; k < end; k++) d_gates[k] = gates[k] * (d_gates[k] - mean);
        }

        // The state before the step.
        OVER(u, CELLS) {
            const C rest = 1 - opcode[WRITE] * x[u], share = opcode[READ] * x[u];
            VECTORS(v, WIDTH)
                AT(d_memory + u * WIDTH + v) = rest * AT(d_memory + u * WIDTH + v) + share * AT(d_value + v);
        }
        OVER(r, REGS) {
            const C rest = 1 - gates[2 * REGS + r], a = gates[r], b = gates[REGS + r];
            VECTORS(v, WIDTH)
                AT(d_registers + r * WIDTH + v) =
                    rest * AT(d_registers + r * WIDTH + v) + a * AT(d_x + v) + b * AT(d_y + v);
        }
        SYNC;
        OVER(j, CELLS) VECTORS(k, GATES_WIDTH) AT(d_program + j * GATES_WIDTH + k) += AT(d_gates + k) * m->line[j];
        ELEMENTS(j, CELLS) {
            V total = 0;
            for (int k = 0; k < GATES_WIDTH; k += LANES) total += AT(m->program + j * GATES_WIDTH + k) * AT(d_gates + k);
            d_line[j] = m->next[j] + NAME(machine_total)(total);
        }
        SYNC;
    }
    ELEMENTS(r, REGS + 1) { // softmax of the start
        local const C *row = r ? m->registers + (r - 1) * WIDTH : m->line;
        local const C *d_row = r ? d_registers + (r - 1) * WIDTH : d_line;
        C mean = 0;
        OVER(v, CELLS) mean += row[v] * d_row[v];
        OVER(v, CELLS) STORE8(gradient + r * CELLS + v, row[v] * (d_row[v] - mean));
    }
    OVER(j, CELLS) ELEMENTS(k, GATES) STORE8(gradient + (REGS + 1 + k) * CELLS + j, d_program[j * GATES_WIDTH + k]);
}
#endif
#undef GATES
#undef GATES_WIDTH
#undef ROWS
#undef STATE
#undef HALTED
#undef OPCODES
#undef S_LOGITS
#undef LOAD_LOGITS
#undef VECTORS
#undef ELEMENTS
#undef OVER
#undef AT
#undef STATE_AT
#undef SYNC
#undef NEXT
#undef BEFORE
