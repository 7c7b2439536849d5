// The register machine of Adaptive Neural Compilation (Bunel et al. 2016), all steps of a run in one kernel. A run is a
// seed's program on a sample's memory.
//
// Every number of the machine is a vector V of LANES runs, so that the text reads like that of a single run. On a CPU
// a work-group is one work-item, which computes LANES runs by vector instructions. On a GPU LANES is 1, and the
// work-items of a group divide the elements of a run, whose state stays in local memory.
//
// Constants: CELLS is the number of memory cells, of values and of program lines, REGS the number of registers. The
// state is saved every SEGMENT steps; the gradient repeats the steps from there.
//
// Rows of `logits`, CELLS columns each: instruction register, REGS registers (their start), then the program, whose
// columns are its lines: REGS rows each for the first argument, the second argument and the output register, and 11
// rows for the opcode.
#define GATES (3 * REGS + 11)
#define ROWS (REGS + 1 + GATES)
#define LOGITS (ROWS * CELLS)
#define STATE ((CELLS + REGS + 1) * CELLS) // instruction register, registers, memory
#define HALTED ((C)0.9) // a run ends when its stop probability is above this
#define BLOCK (LANES > 1 && CELLS >= 4 ? 4 : 1) // sums that a work-item computes at once, so that they share operands
#define OPCODES enum { STOP, ZERO, INC, ADD, SUB, DEC, MIN, MAX, READ, WRITE, JEZ }

typedef struct { long offset[BUFFERS]; } NAME(Dynamic);
// Numbers of seeds, samples and steps. For the gradient: 1 for the true gradient of the stop probability, 0 for the one
// that leaves out later steps; and strides of the incoming gradients along seeds, samples and steps.
typedef struct { long seeds, samples, steps, exact_stop, by_error[3], by_halting[3]; } NAME(Geometry);
typedef V __attribute__((aligned(sizeof(C)))) NAME(Saved); // tensors are aligned to an element only

// The elements 0 to n - 1, divided among the work-items of a group.
#define ELEMENTS(v, n) for (int v = first; v < (n); v += stride)
// The same by blocks of `size` elements, of which v is the first. The last block may overlap the one before it.
#define BLOCKS(v, n, size) \
    for (int next_##v = (size) * first, v; v = next_##v < (n) - (size) ? next_##v : (n) - (size), next_##v < (n); \
         next_##v += (size) * stride)
#define EACH(b) WG_UNROLL for (int b = 0; b < BLOCK; b++)
// All elements. Without the pragma clang unrolls such loops, which takes seconds to compile.
#define OVER(u, n) _Pragma("nounroll") for (int u = 0; u < (n); u++)
// The runs of the group's lanes. Lanes past the last run repeat it, and store nothing.
#define RUN(lane) (group * LANES + (lane) < runs ? group * LANES + (lane) : runs - 1)
#define RUNS(lane, run) for (long lane = 0, run = group * LANES; lane < LANES && run < runs; lane++, run++)
#define LANES_UNROLLED(lane) WG_UNROLL for (int lane = 0; lane < LANES; lane++)
#if LANES > 1
#define TRANSPOSE(block) WG_TRANSPOSE(V, block)
#define SYNC // a group has one work-item
#else
#define TRANSPOSE(block)
#define SYNC barrier(CLK_LOCAL_MEM_FENCE)
#endif
#define LANE(p, lane) (((local C *)(p))[lane])
#define GATHER(x, value) OVER(lane, LANES) ((C *)&(x))[lane] = (value)
// v + 1, v - 1 and -v modulo CELLS
#define NEXT(v) ((v) + 1 < CELLS ? (v) + 1 : 0)
#define BEFORE(v) ((v) > 0 ? (v) - 1 : CELLS - 1)
#define MIRROR(v) ((v) > 0 ? CELLS - (v) : 0)

typedef struct { V line[CELLS], registers[REGS * CELLS], memory[CELLS * CELLS]; } NAME(State);

// What a step computes from the state before it.
typedef struct {
    V gates[GATES];               // softmax of the mixed lines: arguments a and b, output register o, opcode
    V x[2 * CELLS], y[2 * CELLS]; // arguments, cyclic: element v is element v + CELLS
    V mixed[2 * CELLS];           // cyclic; ADD and SUB, by their probabilities, are the convolution of x with this
    V x_upto[CELLS], y_upto[CELLS], x_from[CELLS], y_from[CELLS]; // sums over 0..v, and over v..CELLS - 1
    V value[CELLS];               // the value for the output register
} NAME(Step);

// The memory that a run should end with.
typedef struct {
    V target[CELLS], weight[CELLS];
    int rows[CELLS], count; // cells that have a weight in any run of the group; in most tasks there are few
} NAME(Goal);

static WG_INLINE void NAME(machine_load_goal)(
    local NAME(Goal) *goal, global const long *targets, global const C *weights, const long group, const long runs,
    const int first, const int stride) {
    ELEMENTS(u, CELLS) OVER(lane, LANES) {
        LANE(goal->target + u, lane) = targets[RUN(lane) * CELLS + u];
        LANE(goal->weight + u, lane) = weights[RUN(lane) * CELLS + u];
    }
    SYNC;
    if (first == 0) {
        goal->count = 0;
        OVER(u, CELLS) {
            int has_weight = 0;
            OVER(lane, LANES) has_weight |= LANE(goal->weight + u, lane) != 0;
            if (has_weight) goal->rows[goal->count++] = u;
        }
    }
    SYNC;
}

// Return the difference of an element of row u of the memory and its target.
static WG_INLINE V NAME(machine_difference)(
    local const NAME(Goal) *goal, local const V *memory, const int u, const int v) {
    return memory[u * CELLS + v] - (goal->target[u] == (V)v ? (V)1 : (V)0);
}

static WG_INLINE void NAME(machine_softmax)(local V *row, const int count) {
    V top = -(C)INFINITY, total = 0;
    OVER(v, count) top = row[v] > top ? row[v] : top;
    OVER(v, count) total += row[v] = wg_exp(row[v] - top);
    total = 1 / total;
    OVER(v, count) row[v] *= total;
}

// Load the logits of LANES programs.
static WG_INLINE void NAME(machine_load_logits)(
    local V *logits, global const C *tensor, const long samples, const long group, const long runs, const int first,
    const int stride) {
    BLOCKS(i, LOGITS, LANES) {
        V block[LANES];
        LANES_UNROLLED(lane) block[lane] = *(global const NAME(Saved) *)(tensor + RUN(lane) / samples * LOGITS + i);
        TRANSPOSE(block)
        LANES_UNROLLED(lane) logits[i + lane] = block[lane];
    }
    SYNC;
}

// Compute line and registers of the start.
static WG_INLINE void NAME(machine_start)(
    local NAME(State) *state, local const V *logits, const int first, const int stride) {
    ELEMENTS(v, CELLS) state->line[v] = logits[v];
    ELEMENTS(i, REGS * CELLS) state->registers[i] = logits[CELLS + i];
    SYNC;
    ELEMENTS(r, REGS + 1) NAME(machine_softmax)(r < REGS ? state->registers + r * CELLS : state->line, CELLS);
    SYNC;
}

// Compute a step and the state after it. `running` is 1 in runs that have not halted, and 0 in others, whose memory and
// stop probability stay as they are.
static WG_INLINE void NAME(machine_step)(
    local NAME(State) *after, local NAME(Step) *step, local const NAME(State) *before, local const V *program,
    const V running, const int first, const int stride) {
    OPCODES;
    local V *gates = step->gates, *x = step->x, *y = step->y, *opcode = gates + 3 * REGS;
    BLOCKS(k, GATES, BLOCK) {
        V logit[BLOCK] = {0};
        OVER(j, CELLS) EACH(b) logit[b] += program[(k + b) * CELLS + j] * before->line[j];
        EACH(b) gates[k + b] = logit[b];
    }
    SYNC;
    ELEMENTS(g, 4) NAME(machine_softmax)(gates + g * REGS, g < 3 ? REGS : 11);
    SYNC;
    ELEMENTS(c, 11) opcode[c] *= running;
    ELEMENTS(v, CELLS) {
        V x_v = 0, y_v = 0;
        OVER(r, REGS) {
            x_v += gates[r] * before->registers[r * CELLS + v];
            y_v += gates[REGS + r] * before->registers[r * CELLS + v];
        }
        x[v] = x[v + CELLS] = x_v;
        y[v] = y[v + CELLS] = y_v;
    }
    SYNC;
    if (first == 0) {
        V x_upto = 0, y_upto = 0, x_from = 0, y_from = 0;
        OVER(v, CELLS) {
            const int w = CELLS - 1 - v;
            step->x_upto[v] = x_upto += x[v];
            step->y_upto[v] = y_upto += y[v];
            step->x_from[w] = x_from += x[w];
            step->y_from[w] = y_from += y[w];
        }
    }
    const V jump = opcode[JEZ] * x[0];
    ELEMENTS(v, CELLS) {
        step->mixed[v] = step->mixed[v + CELLS] = opcode[ADD] * y[v] + opcode[SUB] * y[MIRROR(v)];
        after->line[v] = jump * y[v] + (1 - jump) * before->line[BEFORE(v)];
    }
    SYNC;
    BLOCKS(v, CELLS, BLOCK) {
        V sum[BLOCK] = {0}, read[BLOCK] = {0};
        OVER(u, CELLS) {
            const V share = opcode[WRITE] * x[u];
            EACH(b) {
                const V cell = before->memory[u * CELLS + v + b];
                sum[b] += x[u] * step->mixed[v + b - u + CELLS];
                read[b] += x[u] * cell;
                after->memory[u * CELLS + v + b] = cell + share * (y[v + b] - cell);
            }
        }
        EACH(b) step->value[v + b] = sum[b] + opcode[READ] * read[b];
    }
    SYNC;
    ELEMENTS(v, CELLS) {
        const V product = x[v] * y[v];
        V value = step->value[v] + opcode[INC] * x[v + CELLS - 1] + opcode[DEC] * x[v + 1] +
                  opcode[MAX] * (x[v] * step->y_upto[v] + y[v] * step->x_upto[v] - product) +
                  opcode[MIN] * (x[v] * step->y_from[v] + y[v] * step->x_from[v] - product);
        if (v == 0) value += opcode[STOP] + opcode[ZERO] + opcode[WRITE] + opcode[JEZ];
        step->value[v] = value;
    }
    SYNC;
    OVER(r, REGS) {
        const V share = gates[2 * REGS + r];
        ELEMENTS(v, CELLS) {
            const V old = before->registers[r * CELLS + v];
            after->registers[r * CELLS + v] = old + share * (step->value[v] - old);
        }
    }
    SYNC;
}

#ifdef SCHEDULE_RUN
// Sum of squared differences of memory and target over the weighted cells. Every work-item returns it. `sums` is a row
// for intermediate results.
static WG_INLINE V NAME(machine_error)(
    local const NAME(Goal) *goal, local const V *memory, local V *sums, const int first, const int stride) {
    ELEMENTS(v, CELLS) {
        V total = 0;
        OVER(i, goal->count) {
            const V difference = NAME(machine_difference)(goal, memory, goal->rows[i], v);
            total += goal->weight[goal->rows[i]] * difference * difference;
        }
        sums[v] = total;
    }
    SYNC;
    V total = 0;
    OVER(v, CELLS) total += sums[v];
    SYNC; // the sums have been read
    return total;
}

// p0: logits, p1: cells, p2: targets, p3: weights, p4: errors, p5: stop probabilities, p6: final memory, p7: states
// (groups, segments, STATE, LANES).
kernel void NAME(machine_run)(
    global const C *p0, global const long *p1, global const long *p2, global const C *p3, global C *p4,
    global C *p5, global C *p6,
#ifdef KEEPS_STATES
    global C *p7,
#endif
    const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    OPCODES;
    const long group = get_group_id(0), runs = geo.seeds * geo.samples;
    const int first = get_local_id(0), stride = get_local_size(0);
    local V logits[LOGITS];
    local const V *program = logits + (REGS + 1) * CELLS;
    local NAME(State) states[2];
    local NAME(State) *state = states, *other = states + 1;
    local NAME(Step) step;
    local NAME(Goal) goal;
    global const long *cells = WG_AT(const long, p1, dyn.offset[1]);
    global C *errors = WG_AT(C, p4, dyn.offset[4]);
    global C *halting = WG_AT(C, p5, dyn.offset[5]);
    NAME(machine_load_logits)(
        logits, WG_AT(const C, p0, dyn.offset[0]), geo.samples, group, runs, first, stride);
    NAME(machine_start)(state, logits, first, stride);
    NAME(machine_load_goal)(
        &goal, WG_AT(const long, p2, dyn.offset[2]), WG_AT(const C, p3, dyn.offset[3]), group, runs, first, stride);
    ELEMENTS(u, CELLS) {
        OVER(v, CELLS) state->memory[u * CELLS + v] = 0;
        OVER(lane, LANES) {
            const long value = cells[RUN(lane) * CELLS + u];
            if (value >= 0 && value < CELLS) LANE(state->memory + u * CELLS + value, lane) = 1;
        }
    }
    SYNC;
    V error = NAME(machine_error)(&goal, state->memory, step.value, first, stride);
    V stopped = 0, remaining = 1, running = 1;
    int is_running = 1;
    for (long t = 0; t <= geo.steps; t++) {
        if (t > 0 && is_running) {
#ifdef KEEPS_STATES
            if ((t - 1) % SEGMENT == 0) {
                const long segment = group * ((geo.steps + SEGMENT - 1) / SEGMENT) + (t - 1) / SEGMENT;
                global NAME(Saved) *saved = WG_AT(NAME(Saved), p7, dyn.offset[7]) + segment * STATE;
                ELEMENTS(i, STATE) saved[i] = ((local V *)state)[i];
            }
#endif
            NAME(machine_step)(other, &step, state, program, running, first, stride);
            local NAME(State) *before = state;
            state = other, other = before;
            const V stop = step.gates[3 * REGS + STOP];
            stopped += stop * remaining;
            remaining *= 1 - stop;
            running = stopped <= HALTED ? (V)1 : (V)0;
            is_running = 0;
            OVER(lane, LANES) is_running |= ((C *)&running)[lane] > 0;
            error = NAME(machine_error)(&goal, state->memory, step.value, first, stride);
        }
        if (first == 0) RUNS(lane, run) {
            errors[run * (geo.steps + 1) + t] = ((C *)&error)[lane];
            halting[run * (geo.steps + 1) + t] = ((C *)&stopped)[lane];
        }
    }
    RUNS(lane, run) {
        global C *memory = WG_AT(C, p6, dyn.offset[6]) + run * (CELLS * CELLS);
        ELEMENTS(i, CELLS * CELLS) memory[i] = LANE(state->memory + i, lane);
    }
}
#endif

#ifdef SCHEDULE_GRADIENT
// Walk the steps backward. p0: gradient of the errors, p1: of the stop probabilities, p2: logits, p3: targets,
// p4: weights, p5: stop probabilities, p6: states (groups, segments, STATE, LANES), p7: gradient of the logits
// (samples, seeds, ROWS, CELLS). Names that begin with d_ hold the derivative of the loss by the value that follows.
kernel void NAME(machine_gradient)(
    global const C *p0, global const C *p1, global const C *p2, global const long *p3, global const C *p4,
    global const C *p5, global const C *p6, global C *p7, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    OPCODES;
    const long group = get_group_id(0), runs = geo.seeds * geo.samples, segments = (geo.steps + SEGMENT - 1) / SEGMENT;
    const int first = get_local_id(0), stride = get_local_size(0);
    local NAME(State) states[SEGMENT + 1];
    local NAME(Step) steps[SEGMENT];
    local NAME(Goal) goal;
    local V logits[LOGITS], d_logits[LOGITS]; // d_logits holds derivatives by line and registers until the end
    local V *program = logits + (REGS + 1) * CELLS, *d_program = d_logits + (REGS + 1) * CELLS;
    local V *d_line = d_logits, *d_registers = d_logits + CELLS;
    local V d_memories[2 * CELLS * CELLS], d_next[CELLS], d_value[CELLS], d_all_gates[SEGMENT * GATES];
    local V d_x[CELLS], d_y[CELLS], read[CELLS], write[CELLS], sums[CELLS];
    local V d_x_before[CELLS], d_x_after[CELLS], d_y_before[CELLS], d_y_after[CELLS];
    global const C *d_errors = WG_AT(const C, p0, dyn.offset[0]);
    global const C *d_halting = WG_AT(const C, p1, dyn.offset[1]);
    global const C *halting = WG_AT(const C, p5, dyn.offset[5]);
    global NAME(Saved) *saved = WG_AT(NAME(Saved), p6, dyn.offset[6]) + group * segments * STATE;
    long error_offset[LANES], halting_offset[LANES]; // of a run's first element in the incoming gradients
    OVER(lane, LANES) {
        const long seed = RUN(lane) / geo.samples, sample = RUN(lane) % geo.samples;
        error_offset[lane] = seed * geo.by_error[0] + sample * geo.by_error[1];
        halting_offset[lane] = seed * geo.by_halting[0] + sample * geo.by_halting[1];
    }
#define D_ERROR_AT(t) d_errors[error_offset[lane] + (t) * geo.by_error[2]]
#define D_HALTING_AT(t) d_halting[halting_offset[lane] + (t) * geo.by_halting[2]]
#define HALTING_AT(t) halting[RUN(lane) * (geo.steps + 1) + (t)]
    NAME(machine_load_logits)(
        logits, WG_AT(const C, p2, dyn.offset[2]), geo.samples, group, runs, first, stride);
    NAME(machine_load_goal)(
        &goal, WG_AT(const long, p3, dyn.offset[3]), WG_AT(const C, p4, dyn.offset[4]), group, runs, first, stride);
    local V *d_memory = d_memories, *d_memory_before = d_memories + CELLS * CELLS; // after a step, and before it
    ELEMENTS(i, CELLS * CELLS) d_memory[i] = 0;
    ELEMENTS(i, LOGITS) d_logits[i] = 0;
    SYNC;
    long last = 0; // the steps that the longest run of the group executed, later the end of the segment
    OVER(lane, LANES) while (last < geo.steps && HALTING_AT(last) <= HALTED) last++;
    V d_stopped = 0, d_error = 0;
    for (long t = geo.steps; t > last; t--) { // values after the end repeat those of the end
        V more_error, more_stopped;
        GATHER(more_error, D_ERROR_AT(t));
        GATHER(more_stopped, D_HALTING_AT(t));
        d_error += more_error;
        d_stopped += more_stopped;
    }
    for (long begin = (last - 1) / SEGMENT * SEGMENT; last > 0; last = begin, begin -= SEGMENT) {
        ELEMENTS(i, STATE) ((local V *)states)[i] = saved[begin / SEGMENT * STATE + i];
        SYNC;
        for (int i = 0; i < last - begin; i++) {
            V stopped;
            GATHER(stopped, HALTING_AT(begin + i));
            const V running = stopped <= HALTED ? (V)1 : (V)0;
            NAME(machine_step)(states + i + 1, steps + i, states + i, program, running, first, stride);
        }
        for (int i = last - begin - 1; i >= 0; i--) {
            local const NAME(Step) *step = steps + i;
            local const NAME(State) *state = states + i;
            local const V *gates = step->gates, *opcode = gates + 3 * REGS, *x = step->x, *y = step->y;
            local V *d_gates = d_all_gates + i * GATES, *d_opcode = d_gates + 3 * REGS;
            V stopped, more_error, more_stopped;
            GATHER(stopped, HALTING_AT(begin + i));
            GATHER(more_error, D_ERROR_AT(begin + i + 1));
            GATHER(more_stopped, D_HALTING_AT(begin + i + 1));
            d_error += more_error;
            d_stopped += more_stopped;
            OVER(row, goal.count) {
                const int u = goal.rows[row];
                ELEMENTS(v, CELLS)
                    d_memory[u * CELLS + v] +=
                        2 * d_error * goal.weight[u] * NAME(machine_difference)(&goal, state[1].memory, u, v);
            }
            d_error = 0;
            const V jump = opcode[JEZ] * x[0], d_stop = d_stopped * (1 - stopped);
            if (geo.exact_stop) d_stopped *= 1 - opcode[STOP];

            // Output register and value.
            ELEMENTS(v, CELLS) {
                V total = 0;
                OVER(r, REGS) total += gates[2 * REGS + r] * d_registers[r * CELLS + v];
                d_value[v] = total;
            }
            ELEMENTS(r, REGS) {
                V total = 0;
                OVER(v, CELLS) total += d_registers[r * CELLS + v] * (step->value[v] - state->registers[r * CELLS + v]);
                d_gates[2 * REGS + r] = total;
            }
            SYNC;

            // ADD, SUB, READ and WRITE by rows and columns, and the sums of MIN and MAX.
            BLOCKS(v, CELLS, BLOCK) {
                V sum[BLOCK] = {0}, written[BLOCK] = {0};
                OVER(u, CELLS) EACH(b) {
                    sum[b] += d_value[u] * x[u - v - b + CELLS];
                    written[b] += x[u] * d_memory[u * CELLS + v + b];
                }
                EACH(b) {
                    sums[v + b] = sum[b];
                    d_y[v + b] = opcode[WRITE] * written[b] + jump * d_line[v + b];
                }
            }
            BLOCKS(u, CELLS, BLOCK) {
                V sum[BLOCK] = {0}, reads[BLOCK] = {0}, writes[BLOCK] = {0}, rest[BLOCK], share[BLOCK];
                EACH(b) {
                    rest[b] = 1 - opcode[WRITE] * x[u + b];
                    share[b] = opcode[READ] * x[u + b];
                }
                OVER(v, CELLS) EACH(b) {
                    const V cell = state->memory[(u + b) * CELLS + v], d_cell = d_memory[(u + b) * CELLS + v];
                    sum[b] += d_value[v] * step->mixed[v - u - b + CELLS];
                    reads[b] += d_value[v] * cell;
                    writes[b] += d_cell * (y[v] - cell);
                    d_memory_before[(u + b) * CELLS + v] = rest[b] * d_cell + share[b] * d_value[v];
                }
                EACH(b) {
                    d_x[u + b] = sum[b] + opcode[READ] * reads[b] + opcode[WRITE] * writes[b];
                    read[u + b] = reads[b];
                    write[u + b] = writes[b];
                }
            }
            if (first == 0) {
                V x_before = 0, y_before = 0, x_after = 0, y_after = 0;
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
            V d_inc = 0, d_dec = 0, d_add = 0, d_sub = 0, d_min = 0, d_max = 0, d_read = 0, d_write = 0, d_jump = 0;
            OVER(v, CELLS) {
                const V d = d_value[v], product = x[v] * y[v];
                d_inc += d * x[v + CELLS - 1];
                d_dec += d * x[v + 1];
                d_add += y[v] * sums[v];
                d_sub += y[v] * sums[MIRROR(v)];
                d_min += d * (x[v] * step->y_from[v] + y[v] * step->x_from[v] - product);
                d_max += d * (x[v] * step->y_upto[v] + y[v] * step->x_upto[v] - product);
                d_read += x[v] * read[v];
                d_write += x[v] * write[v];
                d_jump += d_line[v] * (y[v] - state->line[BEFORE(v)]);
            }
            if (first == 0) {
                d_opcode[STOP] = d_value[0] + d_stop;
                d_opcode[ZERO] = d_value[0];
                d_opcode[INC] = d_inc;
                d_opcode[ADD] = d_add;
                d_opcode[SUB] = d_sub;
                d_opcode[DEC] = d_dec;
                d_opcode[MIN] = d_min;
                d_opcode[MAX] = d_max;
                d_opcode[READ] = d_read;
                d_opcode[WRITE] = d_value[0] + d_write;
                d_opcode[JEZ] = d_value[0] + d_jump * x[0];
            }

            // Arguments.
            ELEMENTS(v, CELLS) {
                const V d = d_value[v];
                d_x[v] += opcode[INC] * d_value[NEXT(v)] + opcode[DEC] * d_value[BEFORE(v)] +
                          opcode[MAX] * (d * step->y_upto[v] + d_x_after[v]) +
                          opcode[MIN] * (d * step->y_from[v] + d_x_before[v]);
                if (v == 0) d_x[v] += d_jump * opcode[JEZ];
                d_y[v] += opcode[ADD] * sums[v] + opcode[SUB] * sums[MIRROR(v)] +
                          opcode[MAX] * (d * step->x_upto[v] + d_y_after[v]) +
                          opcode[MIN] * (d * step->x_from[v] + d_y_before[v]);
                d_next[v] = (1 - jump) * d_line[NEXT(v)];
            }
            SYNC;
            ELEMENTS(r, REGS) {
                V d_a = 0, d_b = 0;
                OVER(v, CELLS) {
                    d_a += d_x[v] * state->registers[r * CELLS + v];
                    d_b += d_y[v] * state->registers[r * CELLS + v];
                }
                d_gates[r] = d_a;
                d_gates[REGS + r] = d_b;
            }
            SYNC;
            ELEMENTS(g, 4) { // softmax
                const int begin = g * REGS, end = g < 3 ? begin + REGS : GATES;
                V mean = 0;
                for (int k = begin; k < end; k++) mean += gates[k] * d_gates[k];
                for (int k = begin; k < end; k++) d_gates[k] = gates[k] * (d_gates[k] - mean);
            }

            // The state before the step.
            OVER(r, REGS) {
                const V rest = 1 - gates[2 * REGS + r], a = gates[r], b = gates[REGS + r];
                ELEMENTS(v, CELLS)
                    d_registers[r * CELLS + v] = rest * d_registers[r * CELLS + v] + a * d_x[v] + b * d_y[v];
            }
            SYNC;
            BLOCKS(j, CELLS, BLOCK) {
                V total[BLOCK] = {0};
                OVER(k, GATES) EACH(b) total[b] += program[k * CELLS + j + b] * d_gates[k];
                EACH(b) d_line[j + b] = d_next[j + b] + total[b];
            }
            local V *d_memory_after = d_memory;
            d_memory = d_memory_before, d_memory_before = d_memory_after;
            SYNC;
        }
        OVER(k, GATES) ELEMENTS(j, CELLS) {
            V total = d_program[k * CELLS + j];
            for (int i = 0; i < last - begin; i++) total += d_all_gates[i * GATES + k] * states[i].line[j];
            d_program[k * CELLS + j] = total;
        }
        SYNC;
    }
    ELEMENTS(r, REGS + 1) { // softmax of the start
        local V *row = r < REGS ? states->registers + r * CELLS : states->line;
        local V *d_row = r < REGS ? d_registers + r * CELLS : d_line;
        V mean = 0;
        OVER(v, CELLS) mean += row[v] * d_row[v];
        OVER(v, CELLS) d_row[v] = row[v] * (d_row[v] - mean);
    }
    SYNC;
    global C *gradient = WG_AT(C, p7, dyn.offset[7]);
    BLOCKS(i, LOGITS, LANES) {
        V block[LANES];
        LANES_UNROLLED(lane) block[lane] = d_logits[i + lane];
        TRANSPOSE(block)
        LANES_UNROLLED(lane) {
            const long run = group * LANES + lane;
            const long row = run % geo.samples * geo.seeds + run / geo.samples;
            if (run < runs) *(global NAME(Saved) *)(gradient + row * LOGITS + i) = block[lane];
        }
    }
}
#undef D_ERROR_AT
#undef D_HALTING_AT
#undef HALTING_AT
#endif
#undef GATES
#undef BLOCK
#undef BLOCKS
#undef EACH
#undef LOGITS
#undef ROWS
#undef STATE
#undef HALTED
#undef OPCODES
#undef ELEMENTS
#undef OVER
#undef RUN
#undef RUNS
#undef LANE
#undef LANES_UNROLLED
#undef TRANSPOSE
#undef GATHER
#undef SYNC
#undef NEXT
#undef BEFORE
#undef MIRROR
